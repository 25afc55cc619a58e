-- load_reservations --
-- Reservations are locked before counters, and each in key order: two batches cannot deadlock.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also
  FROM reservations
 WHERE id = ANY ($1::uuid[])
 ORDER BY id
   FOR UPDATE;

-- load_counters --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
  JOIN quota_counters USING (tenant_id, resource, scope)
 WHERE shard < shards
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C", shard
   FOR UPDATE OF quota_counters;

-- load_closed --
SELECT tenant_id, resource, scope, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage
  FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[]) AS wanted (tenant_id, resource, scope, epoch)
  JOIN closed_counters USING (tenant_id, resource, scope, epoch)
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C", epoch
   FOR UPDATE OF closed_counters;

-- load_requests --
-- After the counters are locked: whoever reserved with the same id on the same quota has committed by now.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also
  FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, request_id)
  JOIN reservations USING (tenant_id, request_id);

-- load_adjustments --
SELECT tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at
  FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, request_id)
  JOIN adjustments USING (tenant_id, request_id);

-- load_readings --
SELECT tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, at
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
    AS wanted (tenant_id, resource, scope, source, incarnation)
  JOIN meter_readings USING (tenant_id, resource, scope, source, incarnation);

-- store --
-- Everything that a batch changed, in one round trip, provided that what it was decided upon still is so: counters by
-- their version, reservations by state and end, new request ids by not being there. Returns whether it is.
-- Locks are taken as the loads take them; no row is touched by two of the parts. Each part comes as a JSON array of
-- rows, or NULL: to a client in Python an array per column costs three times as much. Times are seconds since 1970.
WITH held AS MATERIALIZED (
    SELECT
      FROM json_to_recordset($1::json) AS w (id uuid, state text, expires_at double precision)
      JOIN reservations AS r ON r.id = w.id
     WHERE r.state = w.state AND r.expires_at = to_timestamp(w.expires_at)
     ORDER BY r.id
       FOR UPDATE OF r
), counted AS MATERIALIZED (
    SELECT
      FROM json_to_recordset($2::json) AS w (tenant_id text, resource text, scope text, shard integer, version bigint)
      JOIN quota_counters AS q USING (tenant_id, resource, scope, shard)
     WHERE q.version = w.version
     ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C", shard
       FOR UPDATE OF q
), new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset($5::json)
        AS n (id uuid, tenant_id text, resource text, scope text, epoch integer, request_id text, digest bytea,
              amount bigint, state text, created_at double precision, expires_at double precision, actual bigint,
              settled_at double precision, operation_id text, generation bigint, over bigint, also jsonb)
), guard AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM held) <> coalesce(json_array_length($1::json), 0) THEN false
                WHEN (SELECT count(*) FROM counted) <> coalesce(json_array_length($2::json), 0) THEN false
                WHEN EXISTS (SELECT  -- refused, but perhaps known: a repeat is answered as the first was
                               FROM json_to_recordset($10::json) AS w (tenant_id text, request_id text)
                               JOIN reservations USING (tenant_id, request_id)) THEN false
                ELSE NOT EXISTS (SELECT FROM new JOIN reservations USING (tenant_id, request_id))
           END AS holds
), counters AS (
    UPDATE quota_counters AS q
       SET version = q.version + 1, shards = n.shards, epoch = n.epoch, slice = n.slice, available = n.available, reserved = n.reserved,
           used = n.used, retired = n.retired, overdraft_issued = n.overdraft_issued,
           overdraft_repaid = n.overdraft_repaid, overage = n.overage, leaked_at = n.leaked_at,
           guaranteed = n.guaranteed, lien = n.lien
      FROM json_to_recordset($3::json)
        AS n (tenant_id text, resource text, scope text, shard integer, shards integer, epoch integer, slice bigint,
              available bigint, reserved bigint, used bigint, retired bigint, overdraft_issued bigint,
              overdraft_repaid bigint, overage bigint, leaked_at bigint, guaranteed bigint, lien bigint)
     WHERE q.tenant_id = n.tenant_id AND q.resource = n.resource AND q.scope = n.scope AND q.shard = n.shard
       AND (SELECT holds FROM guard)
), closed AS (
    INSERT INTO closed_counters
           (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
            overdraft_repaid, overage)
    SELECT *
      FROM json_to_recordset($4::json)
        AS n (tenant_id text, resource text, scope text, epoch integer, slice bigint, available bigint,
              reserved bigint, used bigint, retired bigint, overdraft_issued bigint, overdraft_repaid bigint,
              overage bigint)
     WHERE (SELECT holds FROM guard)
        ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
       SET slice = EXCLUDED.slice, available = EXCLUDED.available, reserved = EXCLUDED.reserved,
           used = EXCLUDED.used, retired = EXCLUDED.retired, overdraft_issued = EXCLUDED.overdraft_issued,
           overdraft_repaid = EXCLUDED.overdraft_repaid, overage = EXCLUDED.overage
), created AS (
    INSERT INTO reservations
           (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
            settled_at, operation_id, generation, over, also)
    SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, to_timestamp(created_at),
           to_timestamp(expires_at), actual, to_timestamp(settled_at), operation_id, generation, over, also
      FROM new
     WHERE (SELECT holds FROM guard)
     ORDER BY tenant_id COLLATE "C", request_id COLLATE "C"
), changed AS (
    UPDATE reservations AS r
       SET state = n.state, expires_at = to_timestamp(n.expires_at), actual = n.actual,
           settled_at = to_timestamp(n.settled_at), operation_id = n.operation_id, also = n.also
      FROM json_to_recordset($6::json)
        AS n (id uuid, state text, expires_at double precision, actual bigint, settled_at double precision,
              operation_id text, also jsonb)
     WHERE r.id = n.id
       AND (SELECT holds FROM guard)
), adjusted AS (
    INSERT INTO adjustments
           (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
    SELECT tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, to_timestamp(at)
      FROM json_to_recordset($7::json)
        AS n (tenant_id text, request_id text, resource text, scope text, epoch integer, digest bytea, delta bigint,
              reason text, used bigint, available bigint, at double precision)
     WHERE (SELECT holds FROM guard)
     ORDER BY tenant_id COLLATE "C", request_id COLLATE "C"
), metered AS (
    INSERT INTO meter_readings
           (tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, at)
    SELECT tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, to_timestamp(at)
      FROM json_to_recordset($8::json)
        AS n (tenant_id text, resource text, scope text, source text, incarnation text, sequence bigint,
              total bigint, epoch integer, added bigint, at double precision)
     WHERE (SELECT holds FROM guard)
        ON CONFLICT (tenant_id, resource, scope, source, incarnation) DO UPDATE
       SET sequence = EXCLUDED.sequence, total = EXCLUDED.total, epoch = EXCLUDED.epoch, added = EXCLUDED.added,
           at = EXCLUDED.at
), explained AS (
    INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
    SELECT to_timestamp(at), tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason
      FROM json_to_recordset($9::json)
        AS n (at double precision, tenant_id text, resource text, scope text, epoch integer, kind text,
              delta bigint, reservation_id uuid, request_id text, reason text)
     WHERE (SELECT holds FROM guard)
)
SELECT holds FROM guard;

-- expire --
-- Holds whose time ran out, oldest first. Rows that another sweeper or a commit is working on are passed over; what
-- they leave is seen next time. Started work is not ended, its outcome is not known.
WITH due AS MATERIALIZED (
    SELECT id, state, expires_at
      FROM reservations
     WHERE state IN ('PENDING', 'STARTED') AND expires_at <= $1
     ORDER BY expires_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE reservations AS r
       SET state = CASE due.state WHEN 'PENDING' THEN 'EXPIRED' ELSE 'UNKNOWN' END,
           settled_at = CASE due.state WHEN 'PENDING' THEN $1 END
      FROM due
     WHERE r.id = due.id
 RETURNING r.tenant_id, r.resource, r.scope, r.epoch, r.amount, r.state, r.also, r.expires_at
), lines AS (
    SELECT tenant_id, resource, scope, epoch, amount, expires_at, state, 1 AS holds
      FROM ended
     UNION ALL
    SELECT l.tenant, l.resource, l.scope, l.epoch, l.amount, e.expires_at, e.state, 0
      FROM ended AS e
     CROSS JOIN jsonb_to_recordset(e.also) AS l (tenant text, resource text, scope text, epoch integer, amount bigint)
     WHERE e.also IS NOT NULL
), sums AS (
    SELECT tenant_id, resource, scope, epoch, state, sum(amount)::bigint AS amount, sum(holds) AS holds,
           min(expires_at) AS oldest
      FROM lines
     GROUP BY tenant_id, resource, scope, epoch, state
), locked AS MATERIALIZED (
    -- All of them, in key order: whoever works on several of them must not wait for us while we wait for them.
    -- Plain is where nothing is owed or kept, time does nothing, and there is one shard: what was held becomes
    -- available. The core sees to all others.
    SELECT s.tenant_id, s.resource, s.scope, s.epoch, s.amount,
           q.shards = 1 AND q.epoch = s.epoch AND q.kind = 'allocated' AND q.overdraft_issued = q.overdraft_repaid AND q.overage = 0
             AND q.lien = 0 AND strpos(q.policy, '"guarantee"') = 0 AS is_plain
      FROM sums AS s
      JOIN quota_counters AS q ON q.tenant_id = s.tenant_id AND q.resource = s.resource AND q.scope = s.scope
     WHERE s.state = 'EXPIRED' AND q.shard < q.shards
     ORDER BY s.tenant_id COLLATE "C", s.resource COLLATE "C", s.scope COLLATE "C", q.shard
       FOR UPDATE OF q
), plain AS MATERIALIZED (
    SELECT tenant_id, resource, scope, epoch, amount
      FROM locked
     WHERE is_plain
), freed AS (
    UPDATE quota_counters AS q
       SET available = q.available + p.amount, reserved = q.reserved - p.amount, version = q.version + 1
      FROM plain AS p
     WHERE q.tenant_id = p.tenant_id AND q.resource = p.resource AND q.scope = p.scope AND q.shard = 0
)
SELECT *, (tenant_id, resource, scope, epoch) IN (SELECT tenant_id, resource, scope, epoch FROM plain) AS is_freed
  FROM sums;
