-- standing --
SELECT history, evictions, evictions_before FROM region_identity;

-- recall --
SELECT history, evictions, evictions_before, etcd_cluster,
       greatest(etcd_revision, coalesce((SELECT max(revision) FROM quota_counters), 0)) AS etcd_revision
  FROM region_identity;

-- require --
-- Shared: whoever adopts another standing waits until what was decided under this one is written.
SELECT history, evictions FROM region_identity FOR SHARE;

-- adopt --
UPDATE region_identity
   SET history = $3, evictions = $4,
       evictions_before = CASE WHEN history IS NULL AND NOT EXISTS (SELECT FROM quota_counters) THEN $4
                               ELSE evictions_before END,
       etcd_cluster  = CASE WHEN history IS DISTINCT FROM $3 THEN NULL ELSE etcd_cluster END,
       etcd_revision = CASE WHEN history IS DISTINCT FROM $3 THEN 0 ELSE etcd_revision END,
       trusted       = CASE WHEN evictions <> $4 OR $5 THEN NULL ELSE trusted END
 WHERE history IS NOT DISTINCT FROM $1 AND evictions = $2
RETURNING true;

-- forget_revisions --
-- Those who remember a counter see by its version that it is not what it was.
UPDATE quota_counters SET revision = -abs(revision), version = version + 1;

-- remember --
UPDATE region_identity SET etcd_cluster = $2, etcd_revision = greatest(etcd_revision, $3)
 WHERE history = $1 AND (etcd_cluster IS DISTINCT FROM $2 OR etcd_revision < $3);
