-- What the region was asked for, by the hour: what it foresees by. Servers that do not know of it go on as before.
CREATE TABLE hourly_demand (
    tenant_id text        NOT NULL COLLATE "C",
    resource  text        NOT NULL COLLATE "C",
    scope     text        NOT NULL COLLATE "C",
    hour      timestamptz NOT NULL,
    granted   numeric     NOT NULL,
    freed     numeric     NOT NULL,
    denied    numeric     NOT NULL,
    peak      numeric     NOT NULL,
    PRIMARY KEY (tenant_id, resource, scope, hour)
) WITH (fillfactor = 70);
CREATE INDEX hourly_demand_by_age ON hourly_demand (hour);
COMMENT ON TABLE hourly_demand IS 'Advisory: nothing is admitted or refused by it, and it may lack a minute. Kept for 15 days.';
COMMENT ON COLUMN hourly_demand.hour IS 'When the hour began.';
COMMENT ON COLUMN hourly_demand.freed IS 'Units given back: released, expired, adjusted downwards.';
COMMENT ON COLUMN hourly_demand.denied IS 'Units that did not fit; what was asked for again counts again.';
COMMENT ON COLUMN hourly_demand.peak IS 'Units asked for in the busiest minute of each server, added up.';
