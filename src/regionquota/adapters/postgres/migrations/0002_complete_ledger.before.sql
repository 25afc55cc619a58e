-- Policies, all kinds and states, several lines per reservation, metered usage; partitions for what grows with time.
-- Stop the region's servers first: older ones do not know of overage.

ALTER TABLE quota_counters
    DROP CONSTRAINT quota_counters_kind_check,
    DROP CONSTRAINT counter_is_conserved,
    DROP CONSTRAINT debt_is_repaid_first,
    ADD COLUMN overage    bigint  NOT NULL DEFAULT 0 CHECK (overage >= 0),
    ADD COLUMN version    bigint  NOT NULL DEFAULT 0,
    ADD COLUMN leaked_at  bigint  NOT NULL DEFAULT 0 CHECK (leaked_at >= 0),
    ADD COLUMN guaranteed bigint  NOT NULL DEFAULT 0 CHECK (guaranteed >= 0),
    ADD COLUMN lien       bigint  NOT NULL DEFAULT 0 CHECK (lien >= 0),
    ADD COLUMN unlimited  boolean NOT NULL DEFAULT false,
    ADD COLUMN policy     text    NOT NULL DEFAULT '{}',
    ADD CONSTRAINT quota_counters_kind_check CHECK (kind IN ('allocated', 'consumable', 'rate')),
    ADD CONSTRAINT counter_is_conserved
        CHECK (slice - available - reserved + overage = used + retired - overdraft_issued + overdraft_repaid),
    ADD CONSTRAINT debt_is_repaid_first
        CHECK (available = 0 OR (overdraft_issued = overdraft_repaid AND overage = 0));
COMMENT ON COLUMN quota_counters.version IS 'Rises with every change: what was decided upon an older one is decided anew.';
COMMENT ON COLUMN quota_counters.overage IS 'Units beyond the slice that a soft, shadow or unlimited policy let in.';
COMMENT ON COLUMN quota_counters.leaked_at IS 'Rate quotas: microseconds since 1970 up to which usage has leaked away.';
COMMENT ON COLUMN quota_counters.guaranteed IS 'Kept for sub-scopes that have not used their guarantee: the sum of their liens.';
COMMENT ON COLUMN quota_counters.policy IS 'JSON; what is left out is the default.';

ALTER TABLE closed_counters
    DROP CONSTRAINT counter_is_conserved,
    DROP CONSTRAINT debt_is_repaid_first,
    ADD COLUMN overage bigint NOT NULL DEFAULT 0 CHECK (overage >= 0),
    ADD CONSTRAINT counter_is_conserved
        CHECK (slice - available - reserved + overage = used + retired - overdraft_issued + overdraft_repaid),
    ADD CONSTRAINT debt_is_repaid_first
        CHECK (available = 0 OR (overdraft_issued = overdraft_repaid AND overage = 0));

-- Ids begin with the time of their making (UUIDv7), so a partition holds what was reserved in one week.
ALTER TABLE reservations RENAME TO reservations_before;
ALTER INDEX reservations_pkey RENAME TO reservations_before_pkey;
DROP INDEX reservations_to_expire;
ALTER TABLE reservations_before DROP CONSTRAINT one_hold_per_request;
CREATE TABLE reservations (
    id           uuid             NOT NULL,
    tenant_id    text COLLATE "C" NOT NULL,
    resource     text COLLATE "C" NOT NULL,
    scope        text COLLATE "C" NOT NULL,
    epoch        integer          NOT NULL,
    request_id   text COLLATE "C" NOT NULL,
    digest       bytea            NOT NULL,
    amount       bigint           NOT NULL CHECK (amount > 0),
    state        text             NOT NULL
        CHECK (state IN ('PENDING', 'STARTED', 'UNKNOWN', 'COMMITTED', 'RELEASED', 'EXPIRED')),
    created_at   timestamptz      NOT NULL,
    expires_at   timestamptz      NOT NULL,
    actual       bigint           CHECK (actual > 0),
    settled_at   timestamptz,
    operation_id text COLLATE "C",
    generation   bigint           NOT NULL DEFAULT 1,
    over         bigint           NOT NULL DEFAULT 0 CHECK (over BETWEEN 0 AND amount),
    also         jsonb,
    PRIMARY KEY (id),
    CONSTRAINT commit_says_how_much CHECK ((state = 'COMMITTED') = (actual IS NOT NULL)),
    CONSTRAINT settled_when_it_ended
        CHECK ((state IN ('PENDING', 'STARTED', 'UNKNOWN')) = (settled_at IS NULL)),
    CONSTRAINT started_by_somebody CHECK (state NOT IN ('STARTED', 'UNKNOWN') OR operation_id IS NOT NULL)
) PARTITION BY RANGE (id);
COMMENT ON COLUMN reservations.also IS 'Further lines: [{tenant, resource, scope, epoch, amount, over, actual, via}, …].';
CREATE INDEX reservations_to_expire ON reservations (expires_at) WHERE state IN ('PENDING', 'STARTED');
CREATE INDEX reservations_unknown ON reservations (expires_at) WHERE state = 'UNKNOWN';
CREATE TABLE reservations_rest PARTITION OF reservations DEFAULT WITH (fillfactor = 80);
CREATE UNIQUE INDEX one_hold_per_request ON reservations_rest (tenant_id, request_id);
INSERT INTO reservations
       (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
        settled_at)
SELECT id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual,
       settled_at
  FROM reservations_before;
DROP TABLE reservations_before;

ALTER TABLE usage_ledger RENAME TO usage_ledger_before;
ALTER TABLE usage_ledger_before ALTER COLUMN id DROP IDENTITY;
ALTER INDEX usage_ledger_pkey RENAME TO usage_ledger_before_pkey;
CREATE SEQUENCE usage_ledger_id_seq AS bigint CACHE 100;
CREATE TABLE usage_ledger (
    id             bigint           NOT NULL DEFAULT nextval('usage_ledger_id_seq'),
    written_by     xid8             NOT NULL DEFAULT pg_current_xact_id(),
    at             timestamptz      NOT NULL,
    tenant_id      text COLLATE "C" NOT NULL,
    resource       text COLLATE "C" NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    epoch          integer          NOT NULL,
    kind           text             NOT NULL
        CHECK (kind IN ('commit', 'late_commit', 'adjust', 'reconcile', 'meter', 'carry', 'refill', 'overdraft', 'repay')),
    delta          bigint           NOT NULL CHECK (delta <> 0),
    reservation_id uuid,
    request_id     text,
    reason         text             NOT NULL DEFAULT ''
) PARTITION BY RANGE (at);
COMMENT ON TABLE usage_ledger IS 'Append-only. overdraft sums to overdraft_issued, repay to overdraft_repaid, all other kinds to used.';
COMMENT ON COLUMN usage_ledger.written_by IS 'Readers page by it: no transaction that is still running can add below those that have ended.';
CREATE INDEX usage_ledger_of_tenant ON usage_ledger (tenant_id, written_by, id);
CREATE TABLE usage_ledger_rest PARTITION OF usage_ledger DEFAULT;
INSERT INTO usage_ledger (id, at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason)
SELECT id, at, tenant_id, resource, scope, epoch, kind, delta, reservation_id, request_id, reason
  FROM usage_ledger_before
 ORDER BY id;
SELECT setval('usage_ledger_id_seq', coalesce((SELECT max(id) FROM usage_ledger), 0) + 1, false);
DROP TABLE usage_ledger_before;
CREATE TRIGGER usage_ledger_is_append_only BEFORE UPDATE OR DELETE ON usage_ledger
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_ledger_is_not_emptied BEFORE TRUNCATE ON usage_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_ledger_is_not_emptied BEFORE TRUNCATE ON usage_ledger_rest
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TABLE usage_openings (
    tenant_id        text COLLATE "C" NOT NULL,
    resource         text COLLATE "C" NOT NULL,
    scope            text COLLATE "C" NOT NULL,
    epoch            integer          NOT NULL,
    used             numeric          NOT NULL,
    overdraft_issued numeric          NOT NULL,
    overdraft_repaid numeric          NOT NULL,
    PRIMARY KEY (tenant_id, resource, scope, epoch)
);
COMMENT ON TABLE usage_openings IS 'What the partitions of the usage ledger that were dropped added up to.';

CREATE INDEX adjustments_by_age ON adjustments (at);

CREATE TABLE meter_readings (
    tenant_id   text COLLATE "C" NOT NULL,
    resource    text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    sequence    bigint           NOT NULL,
    total       bigint           NOT NULL CHECK (total >= 0),
    epoch       integer          NOT NULL,
    added       bigint           NOT NULL CHECK (added >= 0),
    at          timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, resource, scope, source, incarnation)
);
COMMENT ON TABLE meter_readings IS 'How far each source of metered usage has been counted.';

CREATE TABLE suspended_tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    since     timestamptz NOT NULL,
    why       text        NOT NULL
);
COMMENT ON TABLE suspended_tenants IS 'As last heard from etcd, for the time that it does not answer.';
