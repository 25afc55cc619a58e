-- sightings --
-- One statement, one snapshot of this database: balances, and what the ledger shows from $2 on. $3 is the instant of
-- the count, $4 the end of the time that is too close to it. Reconciliations changed what is written, not what is.
WITH lines AS MATERIALIZED (
    SELECT l.tenant_id, l.resource, l.scope, l.at, l.delta, coalesce(r.created_at <= $4, false) AS was_held
      FROM usage_ledger AS l
      LEFT JOIN reservations AS r ON r.id = l.reservation_id
     WHERE l.at > $2 AND l.resource = ANY ($1::text[])
       AND l.kind NOT IN ('overdraft', 'repay', 'reconcile')
       AND ($5::text IS NULL OR (l.tenant_id, l.resource, l.scope) = ($5, $6::text, $7::text))
), moved AS (
    SELECT tenant_id, resource, scope, bool_or(at <= $4) AS near,
           sum(delta) FILTER (WHERE at > $3::timestamptz) AS since,
           sum(delta) FILTER (WHERE at > $4 AND was_held AND delta > 0) AS settled
      FROM lines
     GROUP BY tenant_id, resource, scope
), open AS (
    SELECT tenant_id, resource, scope, amount, created_at, also
      FROM reservations
     WHERE state IN ('PENDING', 'STARTED') AND ($5::text IS NULL OR tenant_id = $5 OR also IS NOT NULL)
     UNION ALL
    SELECT tenant_id, resource, scope, amount, created_at, also
      FROM reservations
     WHERE state = 'UNKNOWN' AND ($5::text IS NULL OR tenant_id = $5 OR also IS NOT NULL)
), held AS (
    SELECT tenant_id, resource, scope, amount
      FROM open
     WHERE created_at <= $4
     UNION ALL
    SELECT l.tenant COLLATE "C", l.resource COLLATE "C", l.scope COLLATE "C", l.amount
      FROM open
     CROSS JOIN jsonb_to_recordset(open.also) AS l (tenant text, resource text, scope text, amount bigint)
     WHERE open.created_at <= $4 AND open.also IS NOT NULL
), holds AS (
    SELECT tenant_id, resource, scope, sum(amount) AS units
      FROM held
     GROUP BY tenant_id, resource, scope
)
SELECT tenant_id, resource, scope, q.used, coalesce(m.since, 0)::bigint AS since, coalesce(m.near, false) AS near,
       coalesce(h.units, 0)::bigint AS held, coalesce(m.settled, 0)::bigint AS settled
  FROM (SELECT tenant_id, resource, scope, kind, sum(used)::bigint AS used
          FROM quota_counters
         WHERE kind = 'allocated' AND resource = ANY ($1::text[]) AND shard < shards
           AND ($5::text IS NULL OR (tenant_id, resource, scope) = ($5, $6::text, $7::text))
         GROUP BY tenant_id, resource, scope, kind) AS q
  LEFT JOIN moved AS m USING (tenant_id, resource, scope)
  LEFT JOIN holds AS h USING (tenant_id, resource, scope);

-- uncompared --
SELECT tenant_id, resource, scope, epoch
  FROM unnest($2::text[], $3::text[], $4::text[], $5::integer[]) AS w (tenant_id, resource, scope, epoch)
 WHERE NOT EXISTS (SELECT
                     FROM reconciled_periods AS r
                    WHERE r.source = $1 AND r.tenant_id = w.tenant_id AND r.resource = w.resource
                      AND r.scope = w.scope AND r.epoch = w.epoch);

-- period_usage --
-- Debt that was carried on was used up here; what came by a carry, or by a reconciliation, was used up elsewhere.
WITH wanted AS (
    SELECT *
      FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[]) AS w (tenant_id, resource, scope, epoch)
), counters AS (
    SELECT tenant_id, resource, scope, epoch, sum(q.used)::bigint AS used
      FROM wanted
      JOIN quota_counters AS q USING (tenant_id, resource, scope, epoch)
     WHERE q.shard < q.shards
     GROUP BY tenant_id, resource, scope, epoch
     UNION ALL
    SELECT tenant_id, resource, scope, epoch, c.used
      FROM wanted
      JOIN closed_counters AS c USING (tenant_id, resource, scope, epoch)
)
SELECT c.tenant_id, c.resource, c.scope, c.epoch, (c.used - coalesce(sum(l.delta), 0))::bigint AS used
  FROM counters AS c
  LEFT JOIN usage_ledger AS l
    ON l.tenant_id = c.tenant_id AND l.resource = c.resource AND l.scope = c.scope AND l.epoch = c.epoch
   AND l.kind IN ('carry', 'reconcile')
 GROUP BY c.tenant_id, c.resource, c.scope, c.epoch, c.used;

-- close_period --
INSERT INTO reconciled_periods (source, tenant_id, resource, scope, epoch, compared_at)
VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING;

-- lease --
INSERT INTO reconciliation_sources AS s (source, holder, leased_to)
VALUES ($1, $2, $4)
    ON CONFLICT (source) DO UPDATE
   SET holder = EXCLUDED.holder, leased_to = EXCLUDED.leased_to
 WHERE s.holder IS NULL OR s.holder = EXCLUDED.holder OR s.leased_to <= $3
RETURNING true;

-- end_lease --
UPDATE reconciliation_sources
   SET holder = NULL, leased_to = NULL
 WHERE source = $1 AND holder = $2;

-- note_success --
INSERT INTO reconciliation_sources (source, compared_at)
VALUES ($1, $2)
    ON CONFLICT (source) DO UPDATE SET compared_at = EXCLUDED.compared_at;

-- successes --
SELECT source, compared_at
  FROM reconciliation_sources
 WHERE compared_at IS NOT NULL;

-- open_case --
INSERT INTO reconciliation_cases AS c
       (id, tenant_id, resource, scope, epoch, period_start, source, snapshot_at, truth, counted, difference, why,
        opened_at)
SELECT $1, $2::text, $3::text, $4::text, $5::integer, $6, $7::text, $8, $9, $10, $11::bigint, $12, $13
 WHERE NOT EXISTS (SELECT
                     FROM reconciliation_cases AS r
                    WHERE r.tenant_id = $2 AND r.resource = $3 AND r.scope = $4 AND r.epoch = $5 AND r.source = $7
                      AND r.state = 'rejected' AND r.difference = $11 AND r.decided_at > $14)
    ON CONFLICT (tenant_id, resource, scope, epoch)
             WHERE state = 'open' OR (state = 'approved' AND applied_at IS NULL) DO UPDATE
   SET source = EXCLUDED.source, snapshot_at = EXCLUDED.snapshot_at, truth = EXCLUDED.truth,
       counted = EXCLUDED.counted, difference = EXCLUDED.difference, why = EXCLUDED.why
 WHERE c.state = 'open' AND c.snapshot_at <= EXCLUDED.snapshot_at
RETURNING *;

-- supersede --
-- Returns what stands in the way afterwards.
WITH ended AS (
    UPDATE reconciliation_cases
       SET state = 'superseded', decided_at = $6
     WHERE tenant_id = $1 AND resource = $2 AND scope = $3 AND epoch = $4
       AND state = 'open' AND snapshot_at <= $5
 RETURNING id
)
SELECT EXISTS (SELECT
                 FROM reconciliation_cases
                WHERE tenant_id = $1 AND resource = $2 AND scope = $3 AND epoch = $4
                  AND (state = 'open' OR (state = 'approved' AND applied_at IS NULL))
                  AND id NOT IN (SELECT id FROM ended)) AS stands;

-- decide_case --
UPDATE reconciliation_cases
   SET state = $3, decided_by = $4, reason = $5, delta = $6, decided_at = $7
 WHERE id = $1 AND state = 'open' AND snapshot_at = $2
RETURNING *;

-- note_applied --
UPDATE reconciliation_cases
   SET applied_at = coalesce(applied_at, $2)
 WHERE id = $1 AND state = 'approved'
RETURNING *;

-- case --
SELECT *
  FROM reconciliation_cases
 WHERE id = $1;

-- cases --
SELECT *
  FROM reconciliation_cases
 WHERE $1::text IS NULL OR state = $1
 ORDER BY opened_at DESC, id
 LIMIT $2;

-- unapplied --
SELECT *
  FROM reconciliation_cases
 WHERE state = 'approved' AND applied_at IS NULL
 ORDER BY decided_at
 LIMIT $1;

-- open_count --
SELECT count(*)
  FROM reconciliation_cases
 WHERE state = 'open';
