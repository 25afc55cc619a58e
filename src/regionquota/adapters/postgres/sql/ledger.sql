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

-- store_counters --
UPDATE quota_counters AS q
   SET limit_total = n.limit_total, revision = n.revision, epoch = n.epoch, slice = n.slice,
       available = n.available, reserved = n.reserved, used = n.used, retired = n.retired,
       overdraft_issued = n.overdraft_issued, overdraft_repaid = n.overdraft_repaid
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::bigint[],
              $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
    AS n (tenant_id, resource, scope, limit_total, revision, epoch, slice, available, reserved, used, retired,
          overdraft_issued, overdraft_repaid)
 WHERE q.tenant_id = n.tenant_id AND q.resource = n.resource AND q.scope = n.scope;

-- create_reservations --
-- In one order, so that two batches with the same request ids wait for each other instead of deadlocking.
INSERT INTO reservations
       (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
        settled_at)
SELECT *
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bytea[], $8::bigint[],
              $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::timestamptz[])
    AS n (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
          settled_at)
 ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C";

-- change_reservations --
UPDATE reservations AS r
   SET state = n.state, expires_at = n.expires_at, actual = n.actual, settled_at = n.settled_at
  FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[], $5::timestamptz[])
    AS n (id, state, expires_at, actual, settled_at)
 WHERE r.id = n.id;

-- append_usage --
INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
SELECT *
  FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::bigint[],
              $8::uuid[], $9::text[], $10::text[]);

-- create_adjustments --
INSERT INTO adjustments
       (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
SELECT *
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::bytea[], $7::bigint[], $8::text[],
              $9::bigint[], $10::bigint[], $11::timestamptz[])
    AS n (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
 ORDER BY n.tenant_id COLLATE "C", n.request_id COLLATE "C";

-- store_closed --
INSERT INTO closed_counters
       (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
        overdraft_repaid)
SELECT *
  FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[],
              $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
    ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
   SET slice = EXCLUDED.slice, available = EXCLUDED.available, reserved = EXCLUDED.reserved, used = EXCLUDED.used,
       retired = EXCLUDED.retired, overdraft_issued = EXCLUDED.overdraft_issued,
       overdraft_repaid = EXCLUDED.overdraft_repaid;
