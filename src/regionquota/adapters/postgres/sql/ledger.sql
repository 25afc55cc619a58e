-- load_reservations --
-- Reservations are locked before counters, and each in key order: two batches cannot deadlock.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual, settled_at
  FROM reservations
 WHERE id = ANY ($1::uuid[])
 ORDER BY id
   FOR UPDATE;

-- load_counters --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch,
       slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
  JOIN quota_counters USING (tenant_id, resource, scope)
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C"
   FOR UPDATE OF quota_counters;

-- load_closed --
SELECT tenant_id, resource, scope, epoch,
       slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid
  FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[]) AS wanted (tenant_id, resource, scope, epoch)
  JOIN closed_counters USING (tenant_id, resource, scope, epoch)
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C", epoch
   FOR UPDATE OF closed_counters;

-- load_requests --
-- After the counters are locked: whoever reserved with the same id on the same quota has committed by now.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual, settled_at
  FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, request_id)
  JOIN reservations USING (tenant_id, request_id);

-- load_adjustments --
SELECT tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at
  FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, request_id)
  JOIN adjustments USING (tenant_id, request_id);

-- store --
-- Everything that a batch changed, in one round trip. All rows that are updated were locked by the loads above.
-- New request ids are inserted in one order, so that two batches with the same ones wait for each other instead of
-- deadlocking. No row is touched by two of the parts.
WITH counters AS (
    UPDATE quota_counters AS q
       SET limit_total = n.limit_total, revision = n.revision, epoch = n.epoch, slice = n.slice,
           available = n.available, reserved = n.reserved, used = n.used, retired = n.retired,
           overdraft_issued = n.overdraft_issued, overdraft_repaid = n.overdraft_repaid
      FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::bigint[],
                  $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
        AS n (tenant_id, resource, scope, limit_total, revision, epoch, slice, available, reserved, used, retired,
              overdraft_issued, overdraft_repaid)
     WHERE q.tenant_id = n.tenant_id AND q.resource = n.resource AND q.scope = n.scope
), closed AS (
    INSERT INTO closed_counters
           (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
            overdraft_repaid)
    SELECT *
      FROM unnest($14::text[], $15::text[], $16::text[], $17::integer[], $18::bigint[], $19::bigint[],
                  $20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[])
        ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
       SET slice = EXCLUDED.slice, available = EXCLUDED.available, reserved = EXCLUDED.reserved,
           used = EXCLUDED.used, retired = EXCLUDED.retired, overdraft_issued = EXCLUDED.overdraft_issued,
           overdraft_repaid = EXCLUDED.overdraft_repaid
), created AS (
    INSERT INTO reservations
           (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
            settled_at)
    SELECT *
      FROM unnest($25::uuid[], $26::text[], $27::text[], $28::text[], $29::integer[], $30::text[], $31::bytea[],
                  $32::bigint[], $33::text[], $34::timestamptz[], $35::timestamptz[], $36::bigint[],
                  $37::timestamptz[])
        AS n (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at,
              actual, settled_at)
     ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C"
), changed AS (
    UPDATE reservations AS r
       SET state = n.state, expires_at = n.expires_at, actual = n.actual, settled_at = n.settled_at
      FROM unnest($38::uuid[], $39::text[], $40::timestamptz[], $41::bigint[], $42::timestamptz[])
        AS n (id, state, expires_at, actual, settled_at)
     WHERE r.id = n.id
), adjusted AS (
    INSERT INTO adjustments
           (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
    SELECT *
      FROM unnest($43::text[], $44::text[], $45::text[], $46::text[], $47::integer[], $48::bytea[], $49::bigint[],
                  $50::text[], $51::bigint[], $52::bigint[], $53::timestamptz[])
        AS n (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
     ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C"
)
INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
SELECT *
  FROM unnest($54::timestamptz[], $55::text[], $56::text[], $57::text[], $58::integer[], $59::text[], $60::bigint[],
              $61::uuid[], $62::text[], $63::text[]);
