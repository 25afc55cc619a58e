-- Which history of etcd the slices belong to, and what was seen of it. Servers that do not know of it go on as before.
ALTER TABLE region_identity
    ADD COLUMN history       text,
    ADD COLUMN evictions     integer NOT NULL DEFAULT 0,
    ADD COLUMN evictions_before integer NOT NULL DEFAULT 0,
    ADD COLUMN etcd_cluster  text,
    ADD COLUMN etcd_revision bigint  NOT NULL DEFAULT 0;
COMMENT ON COLUMN region_identity.history IS 'Name of the history of etcd that slices were last changed in; NULL: none was met yet. What was read in another changes nothing.';
COMMENT ON COLUMN region_identity.evictions IS 'How many evictions of this region it has obeyed.';
COMMENT ON COLUMN region_identity.evictions_before IS 'How many evictions there had been when this database was new: it does not know what was spent before.';
COMMENT ON COLUMN region_identity.etcd_revision IS 'The highest revision of etcd that any server of the region has seen. One that is behind it went backwards.';

-- Below zero: heard of at that revision of a former history, so that any revision of the present one is newer.
ALTER TABLE quota_counters DROP CONSTRAINT quota_counters_revision_check;
ALTER TABLE quota_counters ADD CONSTRAINT quota_counters_revision_check CHECK (revision <> 0) NOT VALID;
COMMENT ON COLUMN quota_counters.revision IS 'Of the newest allocation document that was applied; below zero: in a former history of etcd.';
