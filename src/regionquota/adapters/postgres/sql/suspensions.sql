-- recall --
SELECT tenant_id, since, why
  FROM suspended_tenants;

-- remember --
-- In the order of the tenants: servers of one region write the same rows.
WITH given AS (
    SELECT tenant_id, since, why
      FROM unnest($1::text[], $2::timestamptz[], $3::text[]) AS g (tenant_id, since, why)
     ORDER BY tenant_id COLLATE "C"
), resumed AS (
    DELETE FROM suspended_tenants
     WHERE tenant_id <> ALL ($1)
)
INSERT INTO suspended_tenants AS known (tenant_id, since, why)
SELECT tenant_id, since, why
  FROM given
    ON CONFLICT (tenant_id) DO UPDATE
   SET since = excluded.since, why = excluded.why
 WHERE (known.since, known.why) IS DISTINCT FROM (excluded.since, excluded.why);
