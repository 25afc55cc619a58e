-- add --
-- In key order: servers of one region write the same rows.
INSERT INTO hourly_demand AS known (tenant_id, resource, scope, hour, granted, freed, denied, peak)
SELECT tenant_id, resource, scope, $1::timestamptz, granted, freed, denied, peak
  FROM unnest($2::text[], $3::text[], $4::text[], $5::numeric[], $6::numeric[], $7::numeric[], $8::numeric[])
       AS given (tenant_id, resource, scope, granted, freed, denied, peak)
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C"
    ON CONFLICT (tenant_id, resource, scope, hour) DO UPDATE
   SET granted = known.granted + excluded.granted, freed = known.freed + excluded.freed,
       denied = known.denied + excluded.denied, peak = known.peak + excluded.peak;

-- recall --
SELECT wanted.tenant_id, wanted.resource, wanted.scope, first.hour AS since,
       h.hour, h.granted, h.freed, h.denied, h.peak
  FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (tenant_id, resource, scope)
 CROSS JOIN LATERAL (
       SELECT hour
         FROM hourly_demand
        WHERE tenant_id = wanted.tenant_id AND resource = wanted.resource AND scope = wanted.scope
        ORDER BY hour
        LIMIT 1
       ) AS first
  LEFT JOIN hourly_demand AS h
    ON h.tenant_id = wanted.tenant_id AND h.resource = wanted.resource AND h.scope = wanted.scope
   AND h.hour = ANY ($4::timestamptz[])
 ORDER BY wanted.tenant_id COLLATE "C", wanted.resource COLLATE "C", wanted.scope COLLATE "C";

-- forget --
WITH old AS (
    SELECT tenant_id, resource, scope, hour
      FROM hourly_demand
     WHERE hour < $1
     ORDER BY hour
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hourly_demand AS h
     USING old
     WHERE h.tenant_id = old.tenant_id AND h.resource = old.resource AND h.scope = old.scope AND h.hour = old.hour
 RETURNING h.hour
)
SELECT count(*) FROM gone;
