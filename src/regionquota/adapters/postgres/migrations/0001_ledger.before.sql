-- One region's ledger. Identifiers are compared byte by byte (COLLATE "C"), so that the lock order is the same everywhere.

CREATE TABLE region_identity (
    only_row   boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    region     text        NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE region_identity IS 'Whose slices these are. A server of another region refuses to start on this database.';

CREATE TABLE quota_counters (
    tenant_id        text COLLATE "C" NOT NULL,
    resource         text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    kind             text             NOT NULL CHECK (kind IN ('allocated', 'consumable')),
    limit_total      bigint           NOT NULL CHECK (limit_total >= 0),
    revision         bigint           NOT NULL CHECK (revision > 0),
    epoch            integer          NOT NULL CHECK (epoch >= 0),
    slice            bigint           NOT NULL CHECK (slice >= 0),
    available        bigint           NOT NULL CHECK (available >= 0),
    reserved         bigint           NOT NULL CHECK (reserved >= 0),
    used             bigint           NOT NULL CHECK (used >= 0),
    retired          bigint           NOT NULL CHECK (retired >= 0),
    overdraft_issued bigint           NOT NULL CHECK (overdraft_issued >= 0),
    overdraft_repaid bigint           NOT NULL CHECK (overdraft_repaid BETWEEN 0 AND overdraft_issued),
    PRIMARY KEY (tenant_id, resource, scope),
    CONSTRAINT counter_is_conserved
        CHECK (slice - available - reserved = used + retired - overdraft_issued + overdraft_repaid),
    CONSTRAINT debt_is_repaid_first
        CHECK (available = 0 OR overdraft_issued = overdraft_repaid)
) WITH (fillfactor = 50);
COMMENT ON TABLE quota_counters IS 'Each quota used in this region, in its current accounting epoch. Half of every page stays free for in-page updates.';

CREATE TABLE closed_counters (
    tenant_id        text COLLATE "C" NOT NULL,
    resource         text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    epoch            integer          NOT NULL CHECK (epoch >= 0),
    slice            bigint           NOT NULL CHECK (slice >= 0),
    available        bigint           NOT NULL CHECK (available >= 0),
    reserved         bigint           NOT NULL CHECK (reserved >= 0),
    used             bigint           NOT NULL CHECK (used >= 0),
    retired          bigint           NOT NULL CHECK (retired >= 0),
    overdraft_issued bigint           NOT NULL CHECK (overdraft_issued >= 0),
    overdraft_repaid bigint           NOT NULL CHECK (overdraft_repaid BETWEEN 0 AND overdraft_issued),
    PRIMARY KEY (tenant_id, resource, scope, epoch),
    CONSTRAINT counter_is_conserved
        CHECK (slice - available - reserved = used + retired - overdraft_issued + overdraft_repaid),
    CONSTRAINT debt_is_repaid_first
        CHECK (available = 0 OR overdraft_issued = overdraft_repaid)
);
COMMENT ON TABLE closed_counters IS 'Accounting epochs that have ended, for the holds that began in them.';

CREATE TABLE reservations (
    id         uuid             PRIMARY KEY,
    tenant_id  text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    epoch      integer          NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    digest     bytea            NOT NULL,
    amount     bigint           NOT NULL CHECK (amount > 0),
    state      text             NOT NULL CHECK (state IN ('PENDING', 'COMMITTED', 'RELEASED', 'EXPIRED')),
    created_at timestamptz      NOT NULL,
    expires_at timestamptz      NOT NULL,
    actual     bigint           CHECK (actual > 0),
    settled_at timestamptz,
    CONSTRAINT one_hold_per_request UNIQUE (tenant_id, request_id),
    CONSTRAINT commit_says_how_much CHECK ((state = 'COMMITTED') = (actual IS NOT NULL)),
    CONSTRAINT pending_is_not_settled CHECK ((state = 'PENDING') = (settled_at IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX reservations_to_expire ON reservations (expires_at) WHERE state = 'PENDING';

CREATE TABLE adjustments (
    tenant_id  text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    epoch      integer          NOT NULL,
    digest     bytea            NOT NULL,
    delta      bigint           NOT NULL CHECK (delta <> 0),
    reason     text             NOT NULL,
    used       bigint           NOT NULL,
    available  bigint           NOT NULL,
    at         timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, request_id)
);

CREATE TABLE usage_ledger (
    id             bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz      NOT NULL,
    tenant_id      text COLLATE "C" NOT NULL,
    resource       text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    epoch          integer          NOT NULL,
    kind           text             NOT NULL
        CHECK (kind IN ('commit', 'late_commit', 'adjust', 'carry', 'overdraft', 'repay')),
    delta          bigint           NOT NULL CHECK (delta <> 0),
    reservation_id uuid,
    request_id     text,
    reason         text             NOT NULL DEFAULT ''
);
COMMENT ON TABLE usage_ledger IS 'Append-only. commit, late_commit, adjust and carry sum to used; overdraft to overdraft_issued, repay to overdraft_repaid.';

CREATE TABLE slice_ledger (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz      NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    resource  text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    revision  bigint           NOT NULL,
    epoch     integer          NOT NULL,
    before    bigint           NOT NULL,
    after     bigint           NOT NULL CHECK (after <> before),
    moves     jsonb            NOT NULL DEFAULT '[]'
);
CREATE INDEX slice_ledger_of_quota ON slice_ledger (tenant_id, resource, scope, id);
COMMENT ON TABLE slice_ledger IS 'Append-only. Each change of a slice, with the etcd revision that it answers.';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END
$$;
CREATE TRIGGER usage_ledger_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER slice_ledger_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON slice_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
