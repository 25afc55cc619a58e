-- page --
-- Only what transactions wrote that had all ended: nothing that commits later can come to stand below these rows.
-- Looks at $6 rows at most, however few of them are wanted. One row at least if it looked at any: where it ended.
WITH looked_at AS MATERIALIZED (
    SELECT id, written_by, at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason
      FROM usage_ledger
     WHERE tenant_id = $1 AND (written_by, id) > ($2::text::xid8, $3::bigint)
       AND written_by < pg_snapshot_xmin(pg_current_snapshot())
     ORDER BY written_by, id
     LIMIT $6
), wanted AS (
    SELECT *
      FROM looked_at
     WHERE ($4::text IS NULL OR resource = $4) AND ($5::text IS NULL OR scope = $5)
     ORDER BY written_by, id
     LIMIT $7
), ended AS (
    SELECT written_by, id
      FROM looked_at
     ORDER BY written_by DESC, id DESC
     LIMIT 1
)
SELECT w.id, w.written_by::text AS written_by, w.at, w.tenant_id, w.resource, w.scope, w.epoch, w.kind, w.delta,
       w.reservation_id, w.request_id, w.reason, e.written_by::text AS ended_by, e.id AS ended_id,
       (SELECT count(*) FROM looked_at) AS looked_at
  FROM ended AS e
  LEFT JOIN wanted AS w ON true
 ORDER BY w.written_by, w.id;

-- last --
SELECT id, written_by::text AS written_by, at, tenant_id, resource, scope, epoch, kind, delta, reservation_id,
       request_id, reason
  FROM usage_ledger
 WHERE tenant_id = $1 AND ($2::text IS NULL OR resource = $2) AND ($3::text IS NULL OR scope = $3)
 ORDER BY usage_ledger.written_by DESC, id DESC
 LIMIT $4;

-- day --
-- In the order of the index, so that each part of a day is found at once and none is held open between two.
SELECT id, written_by::text AS written_by, at, tenant_id, resource, scope, epoch, kind, delta, reservation_id,
       request_id, reason
  FROM usage_ledger
 WHERE at >= $1 AND at < $2
   AND (tenant_id, usage_ledger.written_by, id) > ($3::text, $4::text::xid8, $5::bigint)
 ORDER BY tenant_id, usage_ledger.written_by, id
 LIMIT $6;

-- sums --
SELECT tenant_id, resource, scope, epoch, kind, count(*) AS rows, sum(delta) AS delta
  FROM usage_ledger
 WHERE at >= $1 AND at < $2 AND ($3::text IS NULL OR tenant_id = $3)
 GROUP BY tenant_id, resource, scope, epoch, kind
 ORDER BY tenant_id, resource, scope, epoch, kind;

-- dropped --
-- Whether anything is no longer in the ledger itself.
SELECT EXISTS (SELECT FROM usage_openings);
