-- create_counter --
-- Somebody else may have created it since it was looked for; the caller then starts over. Its balances follow.
INSERT INTO quota_counters
       (tenant_id, resource, scope, kind, limit_total, revision, epoch,
        slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, 0, 0, 0)
    ON CONFLICT DO NOTHING
RETURNING true;

-- open_shards --
-- Rows for as many shards as the counter is to have; their balances follow. One that was in use before keeps its
-- version, so that nobody takes it for what it was then.
INSERT INTO quota_counters
       (tenant_id, resource, scope, shard, shards, kind, limit_total, revision, epoch, unlimited, policy,
        slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid)
SELECT tenant_id, resource, scope, number, $4, kind, limit_total, revision, epoch, unlimited, policy,
       0, 0, 0, 0, 0, 0, 0
  FROM quota_counters
 CROSS JOIN generate_series(1, $4::integer - 1) AS number
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3 AND shard = 0
 ORDER BY number
    ON CONFLICT (tenant_id, resource, scope, shard) DO NOTHING;

-- set_terms --
-- What an allocation says beside the slice, to every shard, in use or not.
UPDATE quota_counters
   SET limit_total = $4, revision = $5, unlimited = $6, policy = $7
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3;

-- append_slice --
INSERT INTO slice_ledger (at, tenant_id, resource, scope, revision, epoch, before, after, moves)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb);
