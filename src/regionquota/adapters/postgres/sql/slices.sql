-- lock_counter --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy
  FROM quota_counters
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3
   FOR UPDATE;

-- create_counter --
-- Somebody else may have created it since it was looked for; the caller then starts over. Its balances follow.
INSERT INTO quota_counters
       (tenant_id, resource, scope, kind, limit_total, revision, epoch,
        slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, 0, 0, 0)
    ON CONFLICT DO NOTHING
RETURNING true;

-- set_terms --
-- What an allocation says beside the slice.
UPDATE quota_counters
   SET limit_total = $4, revision = $5, unlimited = $6, policy = $7
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3;

-- append_slice --
INSERT INTO slice_ledger (at, tenant_id, resource, scope, revision, epoch, before, after, moves)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb);
