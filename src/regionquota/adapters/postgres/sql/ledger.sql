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
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
  JOIN quota_counters USING (tenant_id, resource, scope)
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C"
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
-- Locks are taken as the loads take them; no row is touched by two of the parts.
WITH held AS MATERIALIZED (
    SELECT
      FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS w (id, state, expires_at)
      JOIN reservations AS r ON r.id = w.id
     WHERE r.state = w.state AND r.expires_at = w.expires_at
     ORDER BY r.id
       FOR UPDATE OF r
), counted AS MATERIALIZED (
    SELECT
      FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[]) AS w (tenant_id, resource, scope, version)
      JOIN quota_counters AS q USING (tenant_id, resource, scope)
     WHERE q.version = w.version
     ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C"
       FOR UPDATE OF q
), guard AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM held) <> cardinality($1::uuid[]) THEN false
                WHEN (SELECT count(*) FROM counted) <> cardinality($4::text[]) THEN false
                ELSE NOT EXISTS (SELECT
                                   FROM unnest($36::text[], $40::text[]) AS w (tenant_id, request_id)
                                   JOIN reservations USING (tenant_id, request_id))
           END AS holds
), counters AS (
    UPDATE quota_counters AS q
       SET version = q.version + 1, epoch = n.epoch, slice = n.slice, available = n.available, reserved = n.reserved,
           used = n.used, retired = n.retired, overdraft_issued = n.overdraft_issued,
           overdraft_repaid = n.overdraft_repaid, overage = n.overage, leaked_at = n.leaked_at,
           guaranteed = n.guaranteed, lien = n.lien
      FROM unnest($8::text[], $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::bigint[],
                  $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[],
                  $20::bigint[], $21::bigint[], $22::bigint[])
        AS n (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
              overdraft_repaid, overage, leaked_at, guaranteed, lien)
     WHERE q.tenant_id = n.tenant_id AND q.resource = n.resource AND q.scope = n.scope
       AND (SELECT holds FROM guard)
), closed AS (
    INSERT INTO closed_counters
           (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
            overdraft_repaid, overage)
    SELECT *
      FROM unnest($23::text[], $24::text[], $25::text[], $26::integer[], $27::bigint[], $28::bigint[],
                  $29::bigint[], $30::bigint[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bigint[])
     WHERE (SELECT holds FROM guard)
        ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
       SET slice = EXCLUDED.slice, available = EXCLUDED.available, reserved = EXCLUDED.reserved,
           used = EXCLUDED.used, retired = EXCLUDED.retired, overdraft_issued = EXCLUDED.overdraft_issued,
           overdraft_repaid = EXCLUDED.overdraft_repaid, overage = EXCLUDED.overage
), created AS (
    INSERT INTO reservations
           (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
            settled_at, operation_id, generation, over, also)
    SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
           settled_at, operation_id, generation, over, also::jsonb
      FROM unnest($35::uuid[], $36::text[], $37::text[], $38::text[], $39::integer[], $40::text[],
                  $41::bytea[], $42::bigint[], $43::text[], $44::timestamptz[], $45::timestamptz[],
                  $46::bigint[], $47::timestamptz[], $48::text[], $49::bigint[], $50::bigint[], $51::text[])
        AS n (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at,
              actual, settled_at, operation_id, generation, over, also)
     WHERE (SELECT holds FROM guard)
     ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C"
), changed AS (
    UPDATE reservations AS r
       SET state = n.state, expires_at = n.expires_at, actual = n.actual, settled_at = n.settled_at,
           operation_id = n.operation_id, also = n.also::jsonb
      FROM unnest($52::uuid[], $53::text[], $54::timestamptz[], $55::bigint[], $56::timestamptz[], $57::text[],
                  $58::text[])
        AS n (id, state, expires_at, actual, settled_at, operation_id, also)
     WHERE r.id = n.id
       AND (SELECT holds FROM guard)
), adjusted AS (
    INSERT INTO adjustments
           (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
    SELECT *
      FROM unnest($59::text[], $60::text[], $61::text[], $62::text[], $63::integer[], $64::bytea[],
                  $65::bigint[], $66::text[], $67::bigint[], $68::bigint[], $69::timestamptz[])
        AS n (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
     WHERE (SELECT holds FROM guard)
     ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C"
), metered AS (
    INSERT INTO meter_readings
           (tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, at)
    SELECT *
      FROM unnest($70::text[], $71::text[], $72::text[], $73::text[], $74::text[], $75::bigint[],
                  $76::bigint[], $77::integer[], $78::bigint[], $79::timestamptz[])
     WHERE (SELECT holds FROM guard)
        ON CONFLICT (tenant_id, resource, scope, source, incarnation) DO UPDATE
       SET sequence = EXCLUDED.sequence, total = EXCLUDED.total, epoch = EXCLUDED.epoch, added = EXCLUDED.added,
           at = EXCLUDED.at
), explained AS (
    INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
    SELECT *
      FROM unnest($80::timestamptz[], $81::text[], $82::text[], $83::text[], $84::integer[], $85::text[],
                  $86::bigint[], $87::uuid[], $88::text[], $89::text[])
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
)
SELECT tenant_id, resource, scope, epoch, state, sum(amount)::bigint AS amount, sum(holds) AS holds,
       min(expires_at) AS oldest
  FROM lines
 GROUP BY tenant_id, resource, scope, epoch, state;
