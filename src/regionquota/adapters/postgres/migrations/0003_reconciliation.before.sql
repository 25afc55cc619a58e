-- Counts from outside, and what people decide on them.
-- The ledger is looked into by time, and grows at its end only: a brin index costs next to nothing.
CREATE INDEX usage_ledger_by_time ON usage_ledger USING brin (at);

CREATE TABLE reconciliation_sources (
    source      text COLLATE "C" PRIMARY KEY,
    holder      text,
    leased_to   timestamptz,
    compared_at timestamptz,
    CONSTRAINT lease_has_a_holder CHECK ((holder IS NULL) = (leased_to IS NULL))
);
COMMENT ON TABLE reconciliation_sources IS 'Which server compares a source now, and when it was last compared to the end.';

CREATE TABLE reconciled_periods (
    source      text COLLATE "C" NOT NULL,
    tenant_id   text COLLATE "C" NOT NULL,
    resource    text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL,
    epoch       integer          NOT NULL,
    compared_at timestamptz      NOT NULL,
    PRIMARY KEY (source, tenant_id, resource, scope, epoch)
);
COMMENT ON TABLE reconciled_periods IS 'Periods of consumable quotas that were compared after they had ended.';

CREATE TABLE reconciliation_cases (
    id           uuid             PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    resource     text COLLATE "C" NOT NULL,
    scope        text COLLATE "C" NOT NULL,
    epoch        integer          NOT NULL,
    period_start timestamptz,
    source       text COLLATE "C" NOT NULL,
    snapshot_at  timestamptz      NOT NULL,
    truth        bigint           NOT NULL CHECK (truth >= 0),
    counted      bigint           NOT NULL,
    difference   bigint           NOT NULL,
    why          text             NOT NULL,
    opened_at    timestamptz      NOT NULL,
    state        text             NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'approved', 'rejected', 'superseded')),
    decided_at   timestamptz,
    decided_by   text,
    reason       text,
    delta        bigint,
    applied_at   timestamptz,
    CONSTRAINT decided_when_it_is_not_open CHECK ((state = 'open') = (decided_at IS NULL)),
    CONSTRAINT decided_by_somebody
        CHECK (state NOT IN ('approved', 'rejected') OR (decided_by IS NOT NULL AND reason IS NOT NULL)),
    CONSTRAINT approval_says_how_much CHECK ((state = 'approved') = (delta IS NOT NULL)),
    CONSTRAINT only_approvals_are_applied CHECK (applied_at IS NULL OR state = 'approved')
);
COMMENT ON TABLE reconciliation_cases IS 'Differences that a person decides on; one at a time for a quota and period.';
CREATE UNIQUE INDEX one_undecided_case ON reconciliation_cases (tenant_id, resource, scope, epoch)
 WHERE state = 'open' OR (state = 'approved' AND applied_at IS NULL);
CREATE INDEX reconciliation_cases_of_quota ON reconciliation_cases (tenant_id, resource, scope, epoch);
CREATE INDEX reconciliation_cases_by_age ON reconciliation_cases (state, opened_at DESC);
