-- held --
-- The parts of one statement that stores a batch: those that have no rows are left out, for each costs Postgres time.
-- Rows come as one JSON array for each part, in place of :rows: to a client in Python an array per column costs three
-- times as much. Times are seconds since 1970. Locks are taken as the loads take them; no row is touched by two parts.
SELECT
  FROM json_to_recordset(:rows) AS w (id uuid, state text, expires_at double precision)
  JOIN reservations AS r ON r.id = w.id
 WHERE r.state = w.state AND r.expires_at = to_timestamp(w.expires_at)
 ORDER BY r.id
   FOR UPDATE OF r;

-- counted --
SELECT
  FROM json_to_recordset(:rows) AS w (tenant_id text, resource text, scope text, shard integer, version bigint)
  JOIN quota_counters AS q USING (tenant_id, resource, scope, shard)
 WHERE q.version = w.version
 ORDER BY tenant_id COLLATE "C", resource COLLATE "C", scope COLLATE "C", shard
   FOR UPDATE OF q;

-- refused --
-- Reserves that are refused, but perhaps known: a repeat is answered as the first was.
SELECT
  FROM json_to_recordset(:rows) AS w (tenant_id text, request_id text)
  JOIN reservations USING (tenant_id, request_id);

-- new --
SELECT *
  FROM json_to_recordset(:rows)
    AS n (id uuid, tenant_id text, resource text, scope text, epoch integer, request_id text, digest bytea,
          amount bigint, state text, created_at double precision, expires_at double precision, actual bigint,
          settled_at double precision, operation_id text, generation bigint, over bigint, also jsonb);

-- counters --
UPDATE quota_counters AS q
   SET version = q.version + 1, shards = n.shards, epoch = n.epoch, slice = n.slice, available = n.available,
       reserved = n.reserved, used = n.used, retired = n.retired, overdraft_issued = n.overdraft_issued,
       overdraft_repaid = n.overdraft_repaid, overage = n.overage, leaked_at = n.leaked_at,
       guaranteed = n.guaranteed, lien = n.lien
  FROM json_to_recordset(:rows)
    AS n (tenant_id text, resource text, scope text, shard integer, shards integer, epoch integer, slice bigint,
          available bigint, reserved bigint, used bigint, retired bigint, overdraft_issued bigint,
          overdraft_repaid bigint, overage bigint, leaked_at bigint, guaranteed bigint, lien bigint)
 WHERE q.tenant_id = n.tenant_id AND q.resource = n.resource AND q.scope = n.scope AND q.shard = n.shard
   AND (SELECT holds FROM guard);

-- closed --
INSERT INTO closed_counters
       (tenant_id, resource, scope, epoch, slice, available, reserved, used, retired, overdraft_issued,
        overdraft_repaid, overage)
SELECT *
  FROM json_to_recordset(:rows)
    AS n (tenant_id text, resource text, scope text, epoch integer, slice bigint, available bigint,
          reserved bigint, used bigint, retired bigint, overdraft_issued bigint, overdraft_repaid bigint,
          overage bigint)
 WHERE (SELECT holds FROM guard)
    ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
   SET slice = EXCLUDED.slice, available = EXCLUDED.available, reserved = EXCLUDED.reserved,
       used = EXCLUDED.used, retired = EXCLUDED.retired, overdraft_issued = EXCLUDED.overdraft_issued,
       overdraft_repaid = EXCLUDED.overdraft_repaid, overage = EXCLUDED.overage;

-- created --
INSERT INTO reservations
       (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
        settled_at, operation_id, generation, over, also)
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, to_timestamp(created_at),
       to_timestamp(expires_at), actual, to_timestamp(settled_at), operation_id, generation, over, also
  FROM new
 WHERE (SELECT holds FROM guard)
 ORDER BY tenant_id COLLATE "C", request_id COLLATE "C";

-- changed --
UPDATE reservations AS r
   SET state = n.state, expires_at = to_timestamp(n.expires_at), actual = n.actual,
       settled_at = to_timestamp(n.settled_at), operation_id = n.operation_id, also = n.also
  FROM json_to_recordset(:rows)
    AS n (id uuid, state text, expires_at double precision, actual bigint, settled_at double precision,
          operation_id text, also jsonb)
 WHERE r.id = n.id
   AND (SELECT holds FROM guard);

-- adjusted --
INSERT INTO adjustments
       (tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, at)
SELECT tenant_id, request_id, resource, scope, epoch, digest, delta, reason, used, available, to_timestamp(at)
  FROM json_to_recordset(:rows)
    AS n (tenant_id text, request_id text, resource text, scope text, epoch integer, digest bytea, delta bigint,
          reason text, used bigint, available bigint, at double precision)
 WHERE (SELECT holds FROM guard)
 ORDER BY tenant_id COLLATE "C", request_id COLLATE "C";

-- metered --
INSERT INTO meter_readings
       (tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, at)
SELECT tenant_id, resource, scope, source, incarnation, sequence, total, epoch, added, to_timestamp(at)
  FROM json_to_recordset(:rows)
    AS n (tenant_id text, resource text, scope text, source text, incarnation text, sequence bigint,
          total bigint, epoch integer, added bigint, at double precision)
 WHERE (SELECT holds FROM guard)
    ON CONFLICT (tenant_id, resource, scope, source, incarnation) DO UPDATE
   SET sequence = EXCLUDED.sequence, total = EXCLUDED.total, epoch = EXCLUDED.epoch, added = EXCLUDED.added,
       at = EXCLUDED.at;

-- explained --
INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
SELECT to_timestamp(at), tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason
  FROM json_to_recordset(:rows)
    AS n (at double precision, tenant_id text, resource text, scope text, epoch integer, kind text,
          delta bigint, reservation_id uuid, request_id text, reason text)
 WHERE (SELECT holds FROM guard);
