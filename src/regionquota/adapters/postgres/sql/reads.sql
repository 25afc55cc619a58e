-- holding --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM quota_counters
 WHERE tenant_id = $1 AND resource = $2 AND scope = $3 AND shard < shards;

-- holdings --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM quota_counters
 WHERE ($1::text IS NULL OR tenant_id = $1) AND shard < shards
 ORDER BY tenant_id, resource, scope;

-- holdings_after --
WITH page AS MATERIALIZED (
    SELECT tenant_id, resource, scope
      FROM quota_counters
     WHERE (tenant_id, resource, scope) > ($1, $2, $3) AND shard = 0
     ORDER BY tenant_id, resource, scope
     LIMIT $4
)
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM page
  JOIN quota_counters USING (tenant_id, resource, scope)
 WHERE shard < shards
 ORDER BY tenant_id, resource, scope, shard;

-- holdings_of --
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
  JOIN quota_counters USING (tenant_id, resource, scope)
 WHERE shard < shards;

-- own_shards --
-- Of each quota the row that a process of this slot works on.
SELECT tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
       overdraft_issued, overdraft_repaid, overage, version, leaked_at, guaranteed, lien, unlimited, policy,
       shard, shards
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
  JOIN quota_counters USING (tenant_id, resource, scope)
 WHERE shard = $4::integer % shards;

-- reservation --
-- A commit that waited for a synchronous standby and was given up is seen by everybody, though the standby may lack it.
-- So where there is one, the answer is a commit of its own and waits for it: what is told of is never lost.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also,
       CASE WHEN current_setting('synchronous_standby_names') <> ''
            THEN pg_logical_emit_message(true, 'regionquota', 'read'::text) END AS waits
  FROM reservations
 WHERE id = $1;

-- reservations --
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also
  FROM reservations
 WHERE id = ANY ($1::uuid[]);

-- reservation_of_request --
-- Waits as the one above.
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also,
       CASE WHEN current_setting('synchronous_standby_names') <> ''
            THEN pg_logical_emit_message(true, 'regionquota', 'read'::text) END AS waits
  FROM reservations
 WHERE tenant_id = $1 AND request_id = $2;

-- overdue --
-- The hold that is longest overdue, if any is.
SELECT min(expires_at) AS expires_at
  FROM reservations
 WHERE state IN ('PENDING', 'STARTED') AND expires_at <= $1;

-- unknown --
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at, operation_id, generation, over, also
  FROM reservations
 WHERE state = 'UNKNOWN' AND ($2::text IS NULL OR tenant_id = $2)
   AND ($3::timestamptz IS NULL OR (expires_at, id) > ($3, $4))
 ORDER BY expires_at, id
 LIMIT $1;

-- unknown_backlog --
SELECT count(*) AS count, min(expires_at) AS oldest
  FROM reservations
 WHERE state = 'UNKNOWN';

-- slice_history --
SELECT id, at, tenant_id, resource, scope, revision, before, after, moves::text AS moves
  FROM slice_ledger
 WHERE id > $1 AND ($2::text IS NULL OR (tenant_id, resource, scope) = ($2, $3, $4))
 ORDER BY id
 LIMIT $5;

-- check_balances --
-- One statement, one snapshot: each counter beside what the append-only ledgers and the open holds add up to.
WITH counters AS (
    SELECT tenant_id, resource, scope, epoch, sum(slice)::bigint AS slice, sum(available)::bigint AS available,
           sum(reserved)::bigint AS reserved, sum(used)::bigint AS used, sum(retired)::bigint AS retired,
           sum(overdraft_issued)::bigint AS overdraft_issued, sum(overdraft_repaid)::bigint AS overdraft_repaid,
           sum(overage)::bigint AS overage, sum(guaranteed)::bigint AS guaranteed
      FROM quota_counters
     WHERE shard < shards
     GROUP BY tenant_id, resource, scope, epoch
     UNION ALL
    SELECT tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
           overdraft_repaid, overage, NULL
      FROM closed_counters
), lines AS (
    SELECT tenant_id, resource, scope, epoch,
           delta * (kind NOT IN ('overdraft', 'repay'))::integer AS used,
           delta * (kind = 'overdraft')::integer AS overdraft_issued,
           delta * (kind = 'repay')::integer AS overdraft_repaid
      FROM usage_ledger
     UNION ALL
    SELECT tenant_id, resource, scope, epoch, used, overdraft_issued, overdraft_repaid
      FROM usage_openings
), usage AS (
    SELECT tenant_id, resource, scope, epoch, sum(used) AS used, sum(overdraft_issued) AS overdraft_issued,
           sum(overdraft_repaid) AS overdraft_repaid
      FROM lines
     GROUP BY tenant_id, resource, scope, epoch
), held AS (
    SELECT tenant_id, resource, scope, epoch, amount
      FROM reservations
     WHERE state IN ('PENDING', 'STARTED', 'UNKNOWN')
     UNION ALL
    SELECT l.tenant COLLATE "C", l.resource COLLATE "C", l.scope COLLATE "C", l.epoch, l.amount
      FROM reservations AS r
     CROSS JOIN jsonb_to_recordset(r.also) AS l (tenant text, resource text, scope text, epoch integer, amount bigint)
     WHERE r.state IN ('PENDING', 'STARTED', 'UNKNOWN') AND r.also IS NOT NULL
), holds AS (
    SELECT tenant_id, resource, scope, epoch, sum(amount) AS reserved
      FROM held
     GROUP BY tenant_id, resource, scope, epoch
), liens AS (
    SELECT tenant_id, resource, coalesce(policy::jsonb ->> 'parent', 'global') COLLATE "C" AS scope, sum(lien) AS guaranteed
      FROM quota_counters
     WHERE lien > 0
     GROUP BY 1, 2, 3
)
SELECT tenant_id, resource, scope, epoch,
       c.slice, c.available, c.reserved, c.used, c.retired, c.overdraft_issued, c.overdraft_repaid, c.overage,
       coalesce(c.guaranteed, 0) AS guaranteed,
       coalesce(u.used, 0)::bigint AS replayed_used,
       coalesce(u.overdraft_issued, 0)::bigint AS replayed_overdraft_issued,
       coalesce(u.overdraft_repaid, 0)::bigint AS replayed_overdraft_repaid,
       coalesce(h.reserved, 0)::bigint AS replayed_reserved,
       CASE WHEN c.guaranteed IS NULL THEN 0 ELSE coalesce(l.guaranteed, 0)::bigint END AS replayed_guaranteed,
       coalesce((SELECT s.after
                   FROM slice_ledger AS s
                  WHERE s.tenant_id = c.tenant_id AND s.resource = c.resource AND s.scope = c.scope
                    AND s.epoch <= c.epoch
                  ORDER BY s.id DESC
                  LIMIT 1), 0) AS replayed_slice
  FROM counters AS c
  LEFT JOIN usage AS u USING (tenant_id, resource, scope, epoch)
  LEFT JOIN holds AS h USING (tenant_id, resource, scope, epoch)
  LEFT JOIN liens AS l USING (tenant_id, resource, scope)
 ORDER BY tenant_id, resource, scope, epoch;
