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
    SELECT s.tenant_id, s.resource, s.scope, s.epoch, s.amount, q.version, q.shards,
           q.shards = 1 AND q.epoch = s.epoch AND q.kind = 'allocated' AND q.overdraft_issued = q.overdraft_repaid AND q.overage = 0
             AND q.lien = 0 AND strpos(q.policy, '"guarantee"') = 0 AS is_plain
      FROM sums AS s
      JOIN quota_counters AS q ON q.tenant_id = s.tenant_id AND q.resource = s.resource AND q.scope = s.scope
     WHERE s.state = 'EXPIRED' AND q.shard < q.shards
     ORDER BY s.tenant_id COLLATE "C", s.resource COLLATE "C", s.scope COLLATE "C", q.shard
       FOR UPDATE OF q
), torn AS (
    -- Spread while it was waited for: its other rows are not locked, and would be so in the wrong order.
    SELECT
      FROM locked
     GROUP BY tenant_id, resource, scope, epoch
    HAVING count(*) < max(shards)
), freed AS (
    -- Counters that have changed since this statement began are the core's, too: Postgres would check the constraints
    -- on what they were then.
    UPDATE quota_counters AS q
       SET available = q.available + p.amount, reserved = q.reserved - p.amount, version = q.version + 1
      FROM locked AS p
     WHERE q.tenant_id = p.tenant_id AND q.resource = p.resource AND q.scope = p.scope AND q.shard = 0
       AND p.is_plain AND q.version = p.version
 RETURNING q.tenant_id, q.resource, q.scope, q.epoch
)
SELECT *, (tenant_id, resource, scope, epoch) IN (SELECT tenant_id, resource, scope, epoch FROM freed) AS is_freed,
       EXISTS (SELECT FROM torn) AS is_torn
  FROM sums;
