-- holding --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch,
       slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid
  FROM quota_counters
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3;

-- holdings --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch,
       slice, available, reserved, used, retired, overdraft_issued, overdraft_repaid
  FROM quota_counters
 WHERE $1::text IS NULL OR tenant_id = $1
 ORDER BY tenant_id, resource, scope;

-- reservation --
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual, settled_at
  FROM reservations
 WHERE id = $1;

-- reservation_of_request --
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual, settled_at
  FROM reservations
 WHERE tenant_id = $1 AND request_id = $2;

-- expired --
-- Rows that another sweeper or a commit is working on are passed over; what they leave is seen next time.
SELECT id, expires_at
  FROM reservations
 WHERE state = 'PENDING' AND expires_at <= $1
 ORDER BY expires_at
 LIMIT $2
   FOR UPDATE SKIP LOCKED;

-- slice_history --
SELECT id, at, tenant_id, resource, scope, revision, before, after, moves::text AS moves
  FROM slice_ledger
 WHERE id > $1 AND ($2::text IS NULL OR (tenant_id, resource, scope) = ($2, $3, $4))
 ORDER BY id
 LIMIT $5;

-- check_balances --
-- One statement, one snapshot: each counter beside what the append-only ledgers and the open holds add up to.
WITH counters AS (
    SELECT tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
           overdraft_repaid
      FROM quota_counters
     UNION ALL
    SELECT tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
           overdraft_repaid
      FROM closed_counters
), usage AS (
    SELECT tenant_id, resource, scope, epoch,
           sum(delta) FILTER (WHERE kind IN ('commit', 'late_commit', 'adjust', 'carry')) AS used,
           sum(delta) FILTER (WHERE kind = 'overdraft') AS overdraft_issued,
           sum(delta) FILTER (WHERE kind = 'repay') AS overdraft_repaid
      FROM usage_ledger
     GROUP BY tenant_id, resource, scope, epoch
), holds AS (
    SELECT tenant_id, resource, scope, epoch, sum(amount) AS reserved
      FROM reservations
     WHERE state = 'PENDING'
     GROUP BY tenant_id, resource, scope, epoch
)
SELECT tenant_id, resource, scope, epoch,
       c.slice, c.available, c.reserved, c.used, c.retired, c.overdraft_issued, c.overdraft_repaid,
       coalesce(u.used, 0)::bigint AS replayed_used,
       coalesce(u.overdraft_issued, 0)::bigint AS replayed_overdraft_issued,
       coalesce(u.overdraft_repaid, 0)::bigint AS replayed_overdraft_repaid,
       coalesce(h.reserved, 0)::bigint AS replayed_reserved,
       coalesce((SELECT s.after
                   FROM slice_ledger AS s
                  WHERE s.tenant_id = c.tenant_id AND s.resource = c.resource AND s.scope = c.scope
                    AND s.epoch <= c.epoch
                  ORDER BY s.id DESC
                  LIMIT 1), 0) AS replayed_slice
  FROM counters AS c
  LEFT JOIN usage AS u USING (tenant_id, resource, scope, epoch)
  LEFT JOIN holds AS h USING (tenant_id, resource, scope, epoch)
 ORDER BY tenant_id, resource, scope, epoch;
