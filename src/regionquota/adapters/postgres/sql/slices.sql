-- lock_counter --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch,
       slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid
  FROM quota_counters
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3
   FOR UPDATE;

-- create_counter --
-- Somebody else may have created it since it was looked for; the caller then starts over.
INSERT INTO quota_counters
       (tenant_id, resource, scope, kind, limit_total, revision, epoch,
        slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT DO NOTHING
RETURNING true;

-- append_slice --
INSERT INTO slice_ledger (at, tenant_id, resource, scope, revision, epoch, before, after, moves)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb);
