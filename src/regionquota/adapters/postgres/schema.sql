-- All migrations applied, as pg_dump sees it; a test keeps it so.

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END
$$;

CREATE TABLE public.adjustments (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    request_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    digest bytea NOT NULL,
    delta bigint NOT NULL,
    reason text NOT NULL,
    used bigint NOT NULL,
    available bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT adjustments_delta_check CHECK ((delta <> 0))
);

CREATE TABLE public.closed_counters (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    slice bigint NOT NULL,
    available bigint NOT NULL,
    reserved bigint NOT NULL,
    used bigint NOT NULL,
    retired bigint NOT NULL,
    overdraft_issued bigint NOT NULL,
    overdraft_repaid bigint NOT NULL,
    overage bigint DEFAULT 0 NOT NULL,
    CONSTRAINT closed_counters_available_check CHECK ((available >= 0)),
    CONSTRAINT closed_counters_check CHECK (((overdraft_repaid >= 0) AND (overdraft_repaid <= overdraft_issued))),
    CONSTRAINT closed_counters_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT closed_counters_overage_check CHECK ((overage >= 0)),
    CONSTRAINT closed_counters_overdraft_issued_check CHECK ((overdraft_issued >= 0)),
    CONSTRAINT closed_counters_reserved_check CHECK ((reserved >= 0)),
    CONSTRAINT closed_counters_retired_check CHECK ((retired >= 0)),
    CONSTRAINT closed_counters_slice_check CHECK ((slice >= 0)),
    CONSTRAINT closed_counters_used_check CHECK ((used >= 0)),
    CONSTRAINT counter_is_conserved CHECK (((((slice - available) - reserved) + overage) = (((used + retired) - overdraft_issued) + overdraft_repaid))),
    CONSTRAINT debt_is_repaid_first CHECK (((available = 0) OR ((overdraft_issued = overdraft_repaid) AND (overage = 0))))
);

COMMENT ON TABLE public.closed_counters IS 'Accounting epochs that have ended, for the holds that began in them.';

CREATE TABLE public.hourly_demand (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    hour timestamp with time zone NOT NULL,
    granted numeric NOT NULL,
    freed numeric NOT NULL,
    denied numeric NOT NULL,
    peak numeric NOT NULL
)
WITH (fillfactor='70');

COMMENT ON TABLE public.hourly_demand IS 'Advisory: nothing is admitted or refused by it, and it may lack a minute. Kept for 15 days.';

COMMENT ON COLUMN public.hourly_demand.hour IS 'When the hour began.';

COMMENT ON COLUMN public.hourly_demand.freed IS 'Units given back: released, expired, adjusted downwards.';

COMMENT ON COLUMN public.hourly_demand.denied IS 'Units that did not fit; what was asked for again counts again.';

COMMENT ON COLUMN public.hourly_demand.peak IS 'Units asked for in the busiest minute of each server, added up.';

CREATE TABLE public.meter_readings (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    incarnation text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    total bigint NOT NULL,
    epoch integer NOT NULL,
    added bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT meter_readings_added_check CHECK ((added >= 0)),
    CONSTRAINT meter_readings_total_check CHECK ((total >= 0))
);

COMMENT ON TABLE public.meter_readings IS 'How far each source of metered usage has been counted.';

CREATE TABLE public.quota_counters (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    limit_total bigint NOT NULL,
    revision bigint NOT NULL,
    epoch integer NOT NULL,
    slice bigint NOT NULL,
    available bigint NOT NULL,
    reserved bigint NOT NULL,
    used bigint NOT NULL,
    retired bigint NOT NULL,
    overdraft_issued bigint NOT NULL,
    overdraft_repaid bigint NOT NULL,
    overage bigint DEFAULT 0 NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    leaked_at bigint DEFAULT 0 NOT NULL,
    guaranteed bigint DEFAULT 0 NOT NULL,
    lien bigint DEFAULT 0 NOT NULL,
    unlimited boolean DEFAULT false NOT NULL,
    policy text DEFAULT '{}'::text NOT NULL,
    shard integer DEFAULT 0 NOT NULL,
    shards integer DEFAULT 1 NOT NULL,
    CONSTRAINT counter_is_conserved CHECK (((((slice - available) - reserved) + overage) = (((used + retired) - overdraft_issued) + overdraft_repaid))),
    CONSTRAINT debt_is_repaid_first CHECK (((available = 0) OR ((overdraft_issued = overdraft_repaid) AND (overage = 0)))),
    CONSTRAINT only_what_owes_nothing_is_spread CHECK (((shards = 1) OR ((overdraft_issued = overdraft_repaid) AND (overage = 0) AND (guaranteed = 0) AND (lien = 0)))),
    CONSTRAINT quota_counters_available_check CHECK ((available >= 0)),
    CONSTRAINT quota_counters_check CHECK (((overdraft_repaid >= 0) AND (overdraft_repaid <= overdraft_issued))),
    CONSTRAINT quota_counters_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT quota_counters_guaranteed_check CHECK ((guaranteed >= 0)),
    CONSTRAINT quota_counters_kind_check CHECK ((kind = ANY (ARRAY['allocated'::text, 'consumable'::text, 'rate'::text]))),
    CONSTRAINT quota_counters_leaked_at_check CHECK ((leaked_at >= 0)),
    CONSTRAINT quota_counters_lien_check CHECK ((lien >= 0)),
    CONSTRAINT quota_counters_limit_total_check CHECK ((limit_total >= 0)),
    CONSTRAINT quota_counters_overage_check CHECK ((overage >= 0)),
    CONSTRAINT quota_counters_overdraft_issued_check CHECK ((overdraft_issued >= 0)),
    CONSTRAINT quota_counters_reserved_check CHECK ((reserved >= 0)),
    CONSTRAINT quota_counters_retired_check CHECK ((retired >= 0)),
    CONSTRAINT quota_counters_shard_check CHECK ((shard >= 0)),
    CONSTRAINT quota_counters_shards_check CHECK (((shards >= 1) AND (shards <= 16))),
    CONSTRAINT quota_counters_slice_check CHECK ((slice >= 0)),
    CONSTRAINT quota_counters_used_check CHECK ((used >= 0)),
    CONSTRAINT unused_shard_is_empty CHECK (((shard < shards) OR ((slice = 0) AND (available = 0) AND (reserved = 0) AND (used = 0) AND (overdraft_issued = 0))))
)
WITH (fillfactor='50');

COMMENT ON TABLE public.quota_counters IS 'Each quota used in this region, in its current accounting epoch. Half of every page stays free for in-page updates.';

COMMENT ON COLUMN public.quota_counters.revision IS 'Of the newest allocation document that was applied; below zero: in a former history of etcd.';

COMMENT ON COLUMN public.quota_counters.overage IS 'Units beyond the slice that a soft, shadow or unlimited policy let in.';

COMMENT ON COLUMN public.quota_counters.version IS 'Rises with every change: what was decided upon an older one is decided anew.';

COMMENT ON COLUMN public.quota_counters.leaked_at IS 'Rate quotas: microseconds since 1970 up to which usage has leaked away.';

COMMENT ON COLUMN public.quota_counters.guaranteed IS 'Kept for sub-scopes that have not used their guarantee: the sum of their liens.';

COMMENT ON COLUMN public.quota_counters.policy IS 'JSON; what is left out is the default.';

COMMENT ON COLUMN public.quota_counters.shards IS 'How many rows the quota is spread over, the same in each. A row with shard >= shards is not in use.';

CREATE TABLE public.reconciled_periods (
    source text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    compared_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE public.reconciled_periods IS 'Periods of consumable quotas that were compared after they had ended.';

CREATE TABLE public.reconciliation_cases (
    id uuid NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    period_start timestamp with time zone,
    source text NOT NULL COLLATE pg_catalog."C",
    snapshot_at timestamp with time zone NOT NULL,
    truth bigint NOT NULL,
    counted bigint NOT NULL,
    difference bigint NOT NULL,
    why text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    decided_at timestamp with time zone,
    decided_by text,
    reason text,
    delta bigint,
    applied_at timestamp with time zone,
    CONSTRAINT approval_says_how_much CHECK (((state = 'approved'::text) = (delta IS NOT NULL))),
    CONSTRAINT decided_by_somebody CHECK (((state <> ALL (ARRAY['approved'::text, 'rejected'::text])) OR ((decided_by IS NOT NULL) AND (reason IS NOT NULL)))),
    CONSTRAINT decided_when_it_is_not_open CHECK (((state = 'open'::text) = (decided_at IS NULL))),
    CONSTRAINT only_approvals_are_applied CHECK (((applied_at IS NULL) OR (state = 'approved'::text))),
    CONSTRAINT reconciliation_cases_state_check CHECK ((state = ANY (ARRAY['open'::text, 'approved'::text, 'rejected'::text, 'superseded'::text]))),
    CONSTRAINT reconciliation_cases_truth_check CHECK ((truth >= 0))
);

COMMENT ON TABLE public.reconciliation_cases IS 'Differences that a person decides on; one at a time for a quota and period.';

CREATE TABLE public.reconciliation_sources (
    source text NOT NULL COLLATE pg_catalog."C",
    holder text,
    leased_to timestamp with time zone,
    compared_at timestamp with time zone,
    CONSTRAINT lease_has_a_holder CHECK (((holder IS NULL) = (leased_to IS NULL)))
);

COMMENT ON TABLE public.reconciliation_sources IS 'Which server compares a source now, and when it was last compared to the end.';

CREATE TABLE public.region_identity (
    only_row boolean DEFAULT true NOT NULL,
    region text NOT NULL,
    claimed_at timestamp with time zone DEFAULT now() NOT NULL,
    trusted text,
    history text,
    evictions integer DEFAULT 0 NOT NULL,
    evictions_before integer DEFAULT 0 NOT NULL,
    etcd_cluster text,
    etcd_revision bigint DEFAULT 0 NOT NULL,
    CONSTRAINT region_identity_only_row_check CHECK (only_row)
);

COMMENT ON TABLE public.region_identity IS 'Whose slices these are. A server of another region refuses to start on this database.';

COMMENT ON COLUMN public.region_identity.trusted IS 'Incarnation (system identifier/timeline/start) whose slices were compared with etcd. In any other nothing is admitted.';

COMMENT ON COLUMN public.region_identity.history IS 'Name of the history of etcd that slices were last changed in; NULL: none was met yet. What was read in another changes nothing.';

COMMENT ON COLUMN public.region_identity.evictions IS 'How many evictions of this region it has obeyed.';

COMMENT ON COLUMN public.region_identity.evictions_before IS 'How many evictions there had been when this database was new: it does not know what was spent before.';

COMMENT ON COLUMN public.region_identity.etcd_revision IS 'The highest revision of etcd that any server of the region has seen. One that is behind it went backwards.';

CREATE TABLE public.reservations (
    id uuid CONSTRAINT reservations_id_not_null1 NOT NULL,
    tenant_id text CONSTRAINT reservations_tenant_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    resource text CONSTRAINT reservations_resource_not_null1 NOT NULL COLLATE pg_catalog."C",
    scope text CONSTRAINT reservations_scope_not_null1 NOT NULL COLLATE pg_catalog."C",
    epoch integer CONSTRAINT reservations_epoch_not_null1 NOT NULL,
    request_id text CONSTRAINT reservations_request_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    digest bytea CONSTRAINT reservations_digest_not_null1 NOT NULL,
    amount bigint CONSTRAINT reservations_amount_not_null1 NOT NULL,
    state text CONSTRAINT reservations_state_not_null1 NOT NULL,
    created_at timestamp with time zone CONSTRAINT reservations_created_at_not_null1 NOT NULL,
    expires_at timestamp with time zone CONSTRAINT reservations_expires_at_not_null1 NOT NULL,
    actual bigint,
    settled_at timestamp with time zone,
    operation_id text COLLATE pg_catalog."C",
    generation bigint DEFAULT 1 NOT NULL,
    over bigint DEFAULT 0 NOT NULL,
    also jsonb,
    CONSTRAINT commit_says_how_much CHECK (((state = 'COMMITTED'::text) = (actual IS NOT NULL))),
    CONSTRAINT reservations_actual_check1 CHECK ((actual > 0)),
    CONSTRAINT reservations_amount_check1 CHECK ((amount > 0)),
    CONSTRAINT reservations_check CHECK (((over >= 0) AND (over <= amount))),
    CONSTRAINT reservations_state_check1 CHECK ((state = ANY (ARRAY['PENDING'::text, 'STARTED'::text, 'UNKNOWN'::text, 'COMMITTED'::text, 'RELEASED'::text, 'EXPIRED'::text]))),
    CONSTRAINT settled_when_it_ended CHECK (((state = ANY (ARRAY['PENDING'::text, 'STARTED'::text, 'UNKNOWN'::text])) = (settled_at IS NULL))),
    CONSTRAINT started_by_somebody CHECK (((state <> ALL (ARRAY['STARTED'::text, 'UNKNOWN'::text])) OR (operation_id IS NOT NULL)))
)
PARTITION BY RANGE (id);

COMMENT ON COLUMN public.reservations.also IS 'Further lines: [{tenant, resource, scope, epoch, amount, over, actual, via}, …].';

CREATE TABLE public.reservations_rest (
    id uuid CONSTRAINT reservations_id_not_null1 NOT NULL,
    tenant_id text CONSTRAINT reservations_tenant_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    resource text CONSTRAINT reservations_resource_not_null1 NOT NULL COLLATE pg_catalog."C",
    scope text CONSTRAINT reservations_scope_not_null1 NOT NULL COLLATE pg_catalog."C",
    epoch integer CONSTRAINT reservations_epoch_not_null1 NOT NULL,
    request_id text CONSTRAINT reservations_request_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    digest bytea CONSTRAINT reservations_digest_not_null1 NOT NULL,
    amount bigint CONSTRAINT reservations_amount_not_null1 NOT NULL,
    state text CONSTRAINT reservations_state_not_null1 NOT NULL,
    created_at timestamp with time zone CONSTRAINT reservations_created_at_not_null1 NOT NULL,
    expires_at timestamp with time zone CONSTRAINT reservations_expires_at_not_null1 NOT NULL,
    actual bigint,
    settled_at timestamp with time zone,
    operation_id text COLLATE pg_catalog."C",
    generation bigint DEFAULT 1 CONSTRAINT reservations_generation_not_null NOT NULL,
    over bigint DEFAULT 0 CONSTRAINT reservations_over_not_null NOT NULL,
    also jsonb,
    CONSTRAINT commit_says_how_much CHECK (((state = 'COMMITTED'::text) = (actual IS NOT NULL))),
    CONSTRAINT reservations_actual_check1 CHECK ((actual > 0)),
    CONSTRAINT reservations_amount_check1 CHECK ((amount > 0)),
    CONSTRAINT reservations_check CHECK (((over >= 0) AND (over <= amount))),
    CONSTRAINT reservations_state_check1 CHECK ((state = ANY (ARRAY['PENDING'::text, 'STARTED'::text, 'UNKNOWN'::text, 'COMMITTED'::text, 'RELEASED'::text, 'EXPIRED'::text]))),
    CONSTRAINT settled_when_it_ended CHECK (((state = ANY (ARRAY['PENDING'::text, 'STARTED'::text, 'UNKNOWN'::text])) = (settled_at IS NULL))),
    CONSTRAINT started_by_somebody CHECK (((state <> ALL (ARRAY['STARTED'::text, 'UNKNOWN'::text])) OR (operation_id IS NOT NULL)))
)
WITH (fillfactor='80');

CREATE TABLE public.schema_migrations (
    version integer NOT NULL,
    phase text NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schema_migrations_phase_check CHECK ((phase = ANY (ARRAY['before'::text, 'after'::text])))
);

CREATE TABLE public.slice_ledger (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    revision bigint NOT NULL,
    epoch integer NOT NULL,
    before bigint NOT NULL,
    after bigint NOT NULL,
    moves jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT slice_ledger_check CHECK ((after <> before))
);

COMMENT ON TABLE public.slice_ledger IS 'Append-only. Each change of a slice, with the etcd revision that it answers.';

ALTER TABLE public.slice_ledger ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.slice_ledger_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.suspended_tenants (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    since timestamp with time zone NOT NULL,
    why text NOT NULL
);

COMMENT ON TABLE public.suspended_tenants IS 'As last heard from etcd, for the time that it does not answer.';

CREATE SEQUENCE public.usage_ledger_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 100;

CREATE TABLE public.usage_ledger (
    id bigint DEFAULT nextval('public.usage_ledger_id_seq'::regclass) CONSTRAINT usage_ledger_id_not_null1 NOT NULL,
    written_by xid8 DEFAULT pg_current_xact_id() NOT NULL,
    at timestamp with time zone CONSTRAINT usage_ledger_at_not_null1 NOT NULL,
    tenant_id text CONSTRAINT usage_ledger_tenant_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    resource text CONSTRAINT usage_ledger_resource_not_null1 NOT NULL COLLATE pg_catalog."C",
    scope text CONSTRAINT usage_ledger_scope_not_null1 NOT NULL COLLATE pg_catalog."C",
    epoch integer CONSTRAINT usage_ledger_epoch_not_null1 NOT NULL,
    kind text CONSTRAINT usage_ledger_kind_not_null1 NOT NULL,
    delta bigint CONSTRAINT usage_ledger_delta_not_null1 NOT NULL,
    reservation_id uuid,
    request_id text,
    reason text DEFAULT ''::text CONSTRAINT usage_ledger_reason_not_null1 NOT NULL,
    CONSTRAINT usage_ledger_delta_check1 CHECK ((delta <> 0)),
    CONSTRAINT usage_ledger_kind_check1 CHECK ((kind = ANY (ARRAY['commit'::text, 'late_commit'::text, 'adjust'::text, 'reconcile'::text, 'meter'::text, 'carry'::text, 'refill'::text, 'overdraft'::text, 'repay'::text])))
)
PARTITION BY RANGE (at);

COMMENT ON TABLE public.usage_ledger IS 'Append-only. overdraft sums to overdraft_issued, repay to overdraft_repaid, all other kinds to used.';

COMMENT ON COLUMN public.usage_ledger.written_by IS 'Readers page by it: no transaction that is still running can add below those that have ended.';

CREATE TABLE public.usage_ledger_rest (
    id bigint DEFAULT nextval('public.usage_ledger_id_seq'::regclass) CONSTRAINT usage_ledger_id_not_null1 NOT NULL,
    written_by xid8 DEFAULT pg_current_xact_id() CONSTRAINT usage_ledger_written_by_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT usage_ledger_at_not_null1 NOT NULL,
    tenant_id text CONSTRAINT usage_ledger_tenant_id_not_null1 NOT NULL COLLATE pg_catalog."C",
    resource text CONSTRAINT usage_ledger_resource_not_null1 NOT NULL COLLATE pg_catalog."C",
    scope text CONSTRAINT usage_ledger_scope_not_null1 NOT NULL COLLATE pg_catalog."C",
    epoch integer CONSTRAINT usage_ledger_epoch_not_null1 NOT NULL,
    kind text CONSTRAINT usage_ledger_kind_not_null1 NOT NULL,
    delta bigint CONSTRAINT usage_ledger_delta_not_null1 NOT NULL,
    reservation_id uuid,
    request_id text,
    reason text DEFAULT ''::text CONSTRAINT usage_ledger_reason_not_null1 NOT NULL,
    CONSTRAINT usage_ledger_delta_check1 CHECK ((delta <> 0)),
    CONSTRAINT usage_ledger_kind_check1 CHECK ((kind = ANY (ARRAY['commit'::text, 'late_commit'::text, 'adjust'::text, 'reconcile'::text, 'meter'::text, 'carry'::text, 'refill'::text, 'overdraft'::text, 'repay'::text])))
);

CREATE TABLE public.usage_openings (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    used numeric NOT NULL,
    overdraft_issued numeric NOT NULL,
    overdraft_repaid numeric NOT NULL
);

COMMENT ON TABLE public.usage_openings IS 'What the partitions of the usage ledger that were dropped added up to.';

ALTER TABLE ONLY public.reservations ATTACH PARTITION public.reservations_rest DEFAULT;

ALTER TABLE ONLY public.usage_ledger ATTACH PARTITION public.usage_ledger_rest DEFAULT;

ALTER TABLE ONLY public.adjustments
    ADD CONSTRAINT adjustments_pkey PRIMARY KEY (tenant_id, request_id);

ALTER TABLE ONLY public.closed_counters
    ADD CONSTRAINT closed_counters_pkey PRIMARY KEY (tenant_id, resource, scope, epoch);

ALTER TABLE ONLY public.hourly_demand
    ADD CONSTRAINT hourly_demand_pkey PRIMARY KEY (tenant_id, resource, scope, hour);

ALTER TABLE ONLY public.meter_readings
    ADD CONSTRAINT meter_readings_pkey PRIMARY KEY (tenant_id, resource, scope, source, incarnation);

ALTER TABLE ONLY public.quota_counters
    ADD CONSTRAINT quota_counters_pkey PRIMARY KEY (tenant_id, resource, scope, shard);

ALTER TABLE public.quota_counters
    ADD CONSTRAINT quota_counters_revision_check CHECK ((revision <> 0)) NOT VALID;

ALTER TABLE ONLY public.reconciled_periods
    ADD CONSTRAINT reconciled_periods_pkey PRIMARY KEY (source, tenant_id, resource, scope, epoch);

ALTER TABLE ONLY public.reconciliation_cases
    ADD CONSTRAINT reconciliation_cases_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.reconciliation_sources
    ADD CONSTRAINT reconciliation_sources_pkey PRIMARY KEY (source);

ALTER TABLE ONLY public.region_identity
    ADD CONSTRAINT region_identity_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.reservations_rest
    ADD CONSTRAINT reservations_rest_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version, phase);

ALTER TABLE ONLY public.slice_ledger
    ADD CONSTRAINT slice_ledger_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.suspended_tenants
    ADD CONSTRAINT suspended_tenants_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.usage_openings
    ADD CONSTRAINT usage_openings_pkey PRIMARY KEY (tenant_id, resource, scope, epoch);

CREATE INDEX adjustments_by_age ON public.adjustments USING btree (at);

CREATE INDEX hourly_demand_by_age ON public.hourly_demand USING btree (hour);

CREATE UNIQUE INDEX one_hold_per_request ON public.reservations_rest USING btree (tenant_id, request_id);

CREATE UNIQUE INDEX one_undecided_case ON public.reconciliation_cases USING btree (tenant_id, resource, scope, epoch) WHERE ((state = 'open'::text) OR ((state = 'approved'::text) AND (applied_at IS NULL)));

CREATE INDEX reconciliation_cases_by_age ON public.reconciliation_cases USING btree (state, opened_at DESC);

CREATE INDEX reconciliation_cases_of_quota ON public.reconciliation_cases USING btree (tenant_id, resource, scope, epoch);

CREATE INDEX reservations_to_expire ON ONLY public.reservations USING btree (expires_at) WHERE (state = ANY (ARRAY['PENDING'::text, 'STARTED'::text]));

CREATE INDEX reservations_rest_expires_at_idx ON public.reservations_rest USING btree (expires_at) WHERE (state = ANY (ARRAY['PENDING'::text, 'STARTED'::text]));

CREATE INDEX reservations_unknown ON ONLY public.reservations USING btree (expires_at) WHERE (state = 'UNKNOWN'::text);

CREATE INDEX reservations_rest_expires_at_idx1 ON public.reservations_rest USING btree (expires_at) WHERE (state = 'UNKNOWN'::text);

CREATE INDEX slice_ledger_of_quota ON public.slice_ledger USING btree (tenant_id, resource, scope, id);

CREATE INDEX usage_ledger_by_time ON ONLY public.usage_ledger USING brin (at);

CREATE INDEX usage_ledger_of_tenant ON ONLY public.usage_ledger USING btree (tenant_id, written_by, id);

CREATE INDEX usage_ledger_rest_at_idx ON public.usage_ledger_rest USING brin (at);

CREATE INDEX usage_ledger_rest_tenant_id_written_by_id_idx ON public.usage_ledger_rest USING btree (tenant_id, written_by, id);

ALTER INDEX public.reservations_to_expire ATTACH PARTITION public.reservations_rest_expires_at_idx;

ALTER INDEX public.reservations_unknown ATTACH PARTITION public.reservations_rest_expires_at_idx1;

ALTER INDEX public.reservations_pkey ATTACH PARTITION public.reservations_rest_pkey;

ALTER INDEX public.usage_ledger_by_time ATTACH PARTITION public.usage_ledger_rest_at_idx;

ALTER INDEX public.usage_ledger_of_tenant ATTACH PARTITION public.usage_ledger_rest_tenant_id_written_by_id_idx;

CREATE TRIGGER slice_ledger_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.slice_ledger FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER usage_ledger_is_append_only BEFORE DELETE OR UPDATE ON public.usage_ledger FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER usage_ledger_is_not_emptied BEFORE TRUNCATE ON public.usage_ledger FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER usage_ledger_is_not_emptied BEFORE TRUNCATE ON public.usage_ledger_rest FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
