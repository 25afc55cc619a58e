-- A counter may be spread over several rows. Stop the region's servers first: older ones know of one row only.
ALTER TABLE quota_counters
    ADD COLUMN shard  integer NOT NULL DEFAULT 0 CHECK (shard >= 0),
    ADD COLUMN shards integer NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 16),
    DROP CONSTRAINT quota_counters_pkey,
    ADD PRIMARY KEY (tenant_id, resource, scope, shard),
    ADD CONSTRAINT unused_shard_is_empty
        CHECK (shard < shards OR (slice = 0 AND available = 0 AND reserved = 0 AND used = 0 AND overdraft_issued = 0)),
    ADD CONSTRAINT only_what_owes_nothing_is_spread
        CHECK (shards = 1 OR (overdraft_issued = overdraft_repaid AND overage = 0 AND guaranteed = 0 AND lien = 0));
COMMENT ON COLUMN quota_counters.shards IS 'How many rows the quota is spread over, the same in each. A row with shard >= shards is not in use.';
