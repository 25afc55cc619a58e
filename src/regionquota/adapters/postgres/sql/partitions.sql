-- take_charge --
-- Until the transaction ends. False: another server of the region is at it.
SELECT pg_try_advisory_xact_lock($1);

-- set_patience --
-- For this transaction, in milliseconds: how long it waits for a lock, how long it may think between two statements.
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true);

-- partitions --
SELECT c.relname AS name
  FROM pg_inherits AS i
  JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = $1::text::regclass
   AND c.relname ~ ('^' || $1::text || '_[0-9]+$') AND length(c.relname) = length($1::text || '_YYYYMMDD')
 ORDER BY c.relname;

-- usage_rest_holds --
SELECT EXISTS (SELECT FROM usage_ledger_rest WHERE at >= $1 AND at < $2);

-- reservations_rest_holds --
SELECT EXISTS (SELECT FROM reservations_rest WHERE id >= $1 AND id < $2);

-- usage_partition --
-- Answers with the statements that make it, for names and bounds cannot be parameters.
-- Attaching locks nobody out but of the default partition, and of that for a moment; PARTITION OF would lock the table.
SELECT unnest(ARRAY[
           format('CREATE TABLE %I (LIKE usage_ledger INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', $1::text),
           format('CREATE TRIGGER usage_ledger_is_not_emptied BEFORE TRUNCATE ON %I '
                  'FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', $1::text),
           format('ALTER TABLE usage_ledger ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                  $1::text, $2::timestamptz, $3::timestamptz)
       ]) AS statement;

-- reservations_partition --
SELECT unnest(ARRAY[
           format('CREATE TABLE %I (LIKE reservations INCLUDING DEFAULTS INCLUDING CONSTRAINTS) '
                  'WITH (fillfactor = 80)', $1::text),
           format('CREATE UNIQUE INDEX %I ON %I (tenant_id, request_id)', 'one_hold_per_request_in_' || $1::text, $1::text),
           format('ALTER TABLE reservations ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                  $1::text, $2::uuid, $3::uuid)
       ]) AS statement;

-- lock_partition --
-- Answers with the statement. Against writers, that nothing is added to what has been added up.
SELECT format('LOCK TABLE %I IN SHARE MODE', $1::text);

-- drop_partition --
-- Answers with the statement. Not DETACH CONCURRENTLY: Postgres has none for a table with a default partition.
SELECT format('DROP TABLE %I', $1::text);

-- usage_rest --
-- Rows that have no partition of their own, counted up to $1.
SELECT count(*) FROM (SELECT FROM usage_ledger_rest LIMIT $1) AS counted;

-- reservations_rest --
SELECT count(*) FROM (SELECT FROM reservations_rest LIMIT $1) AS counted;

-- keep_sums --
-- What a day of the ledger added up to outlives it. Returns how many rows that were.
WITH day AS (
    SELECT tenant_id, resource, scope, epoch, count(*) AS rows,
           coalesce(sum(delta) FILTER (WHERE kind NOT IN ('overdraft', 'repay')), 0) AS used,
           coalesce(sum(delta) FILTER (WHERE kind = 'overdraft'), 0) AS overdraft_issued,
           coalesce(sum(delta) FILTER (WHERE kind = 'repay'), 0) AS overdraft_repaid
      FROM usage_ledger
     WHERE at >= $1 AND at < $2
     GROUP BY tenant_id, resource, scope, epoch
), kept AS (
    INSERT INTO usage_openings AS o (tenant_id, resource, scope, epoch, used, overdraft_issued, overdraft_repaid)
    SELECT tenant_id, resource, scope, epoch, used, overdraft_issued, overdraft_repaid
      FROM day
        ON CONFLICT (tenant_id, resource, scope, epoch) DO UPDATE
       SET used = o.used + EXCLUDED.used, overdraft_issued = o.overdraft_issued + EXCLUDED.overdraft_issued,
           overdraft_repaid = o.overdraft_repaid + EXCLUDED.overdraft_repaid
)
SELECT coalesce(sum(rows), 0)::bigint FROM day;

-- reservations_wait --
-- Whether anything in a range of ids is not settled yet, or was settled so lately that its answer may be asked for.
SELECT EXISTS (SELECT FROM reservations WHERE id >= $1 AND id < $2 AND state IN ('PENDING', 'STARTED'))
    OR EXISTS (SELECT FROM reservations WHERE id >= $1 AND id < $2 AND state = 'UNKNOWN')
    OR EXISTS (SELECT FROM reservations WHERE id >= $1 AND id < $2 AND settled_at >= $3);

-- forget_reservations --
-- Of those that have no partition, which would go as a whole.
WITH old AS (
    SELECT id
      FROM reservations_rest
     WHERE id < $1 AND settled_at < $2
     ORDER BY id
     LIMIT $3
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM reservations_rest AS r
     USING old
     WHERE r.id = old.id
 RETURNING r.id
)
SELECT count(*) FROM gone;

-- forget_adjustments --
WITH old AS (
    SELECT tenant_id, request_id
      FROM adjustments
     WHERE at < $1
     ORDER BY at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM adjustments AS a
     USING old
     WHERE a.tenant_id = old.tenant_id AND a.request_id = old.request_id
 RETURNING a.request_id
)
SELECT count(*) FROM gone;

-- forget_readings --
WITH old AS (
    SELECT tenant_id, resource, scope, source, incarnation
      FROM meter_readings
     WHERE at < $1
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM meter_readings AS m
     USING old
     WHERE m.tenant_id = old.tenant_id AND m.resource = old.resource AND m.scope = old.scope
       AND m.source = old.source AND m.incarnation = old.incarnation
 RETURNING m.source
)
SELECT count(*) FROM gone;
