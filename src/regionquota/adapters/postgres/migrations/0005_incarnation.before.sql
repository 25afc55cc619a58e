-- The life of the database server in which the slices may be spent; NULL: none yet. Servers that do not know of it go on as before.
ALTER TABLE region_identity ADD COLUMN trusted text;
COMMENT ON COLUMN region_identity.trusted IS 'Incarnation (system identifier/timeline/start) whose slices were compared with etcd. In any other nothing is admitted.';
