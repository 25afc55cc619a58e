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
    CONSTRAINT closed_counters_available_check CHECK ((available >= 0)),
    CONSTRAINT closed_counters_check CHECK (((overdraft_repaid >= 0) AND (overdraft_repaid <= overdraft_issued))),
    CONSTRAINT closed_counters_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT closed_counters_overdraft_issued_check CHECK ((overdraft_issued >= 0)),
    CONSTRAINT closed_counters_reserved_check CHECK ((reserved >= 0)),
    CONSTRAINT closed_counters_retired_check CHECK ((retired >= 0)),
    CONSTRAINT closed_counters_slice_check CHECK ((slice >= 0)),
    CONSTRAINT closed_counters_used_check CHECK ((used >= 0)),
    CONSTRAINT counter_is_conserved CHECK ((((slice - available) - reserved) = (((used + retired) - overdraft_issued) + overdraft_repaid))),
    CONSTRAINT debt_is_repaid_first CHECK (((available = 0) OR (overdraft_issued = overdraft_repaid)))
);

COMMENT ON TABLE public.closed_counters IS 'Accounting epochs that have ended, for the holds that began in them.';

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
    CONSTRAINT counter_is_conserved CHECK ((((slice - available) - reserved) = (((used + retired) - overdraft_issued) + overdraft_repaid))),
    CONSTRAINT debt_is_repaid_first CHECK (((available = 0) OR (overdraft_issued = overdraft_repaid))),
    CONSTRAINT quota_counters_available_check CHECK ((available >= 0)),
    CONSTRAINT quota_counters_check CHECK (((overdraft_repaid >= 0) AND (overdraft_repaid <= overdraft_issued))),
    CONSTRAINT quota_counters_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT quota_counters_kind_check CHECK ((kind = ANY (ARRAY['allocated'::text, 'consumable'::text]))),
    CONSTRAINT quota_counters_limit_total_check CHECK ((limit_total >= 0)),
    CONSTRAINT quota_counters_overdraft_issued_check CHECK ((overdraft_issued >= 0)),
    CONSTRAINT quota_counters_reserved_check CHECK ((reserved >= 0)),
    CONSTRAINT quota_counters_retired_check CHECK ((retired >= 0)),
    CONSTRAINT quota_counters_revision_check CHECK ((revision > 0)),
    CONSTRAINT quota_counters_slice_check CHECK ((slice >= 0)),
    CONSTRAINT quota_counters_used_check CHECK ((used >= 0))
)
WITH (fillfactor='50');

COMMENT ON TABLE public.quota_counters IS 'Each quota used in this region, in its current accounting epoch. Half of every page stays free for in-page updates.';

CREATE TABLE public.region_identity (
    only_row boolean DEFAULT true NOT NULL,
    region text NOT NULL,
    claimed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT region_identity_only_row_check CHECK (only_row)
);

COMMENT ON TABLE public.region_identity IS 'Whose slices these are. A server of another region refuses to start on this database.';

CREATE TABLE public.reservations (
    id uuid NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    request_id text NOT NULL COLLATE pg_catalog."C",
    digest bytea NOT NULL,
    amount bigint NOT NULL,
    state text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    actual bigint,
    settled_at timestamp with time zone,
    CONSTRAINT commit_says_how_much CHECK (((state = 'COMMITTED'::text) = (actual IS NOT NULL))),
    CONSTRAINT pending_is_not_settled CHECK (((state = 'PENDING'::text) = (settled_at IS NULL))),
    CONSTRAINT reservations_actual_check CHECK ((actual > 0)),
    CONSTRAINT reservations_amount_check CHECK ((amount > 0)),
    CONSTRAINT reservations_state_check CHECK ((state = ANY (ARRAY['PENDING'::text, 'COMMITTED'::text, 'RELEASED'::text, 'EXPIRED'::text])))
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

CREATE TABLE public.usage_ledger (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    resource text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    kind text NOT NULL,
    delta bigint NOT NULL,
    reservation_id uuid,
    request_id text,
    reason text DEFAULT ''::text NOT NULL,
    CONSTRAINT usage_ledger_delta_check CHECK ((delta <> 0)),
    CONSTRAINT usage_ledger_kind_check CHECK ((kind = ANY (ARRAY['commit'::text, 'late_commit'::text, 'adjust'::text, 'carry'::text, 'overdraft'::text, 'repay'::text])))
);

COMMENT ON TABLE public.usage_ledger IS 'Append-only. commit, late_commit, adjust and carry sum to used; overdraft to overdraft_issued, repay to overdraft_repaid.';

ALTER TABLE public.usage_ledger ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.usage_ledger_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY public.adjustments
    ADD CONSTRAINT adjustments_pkey PRIMARY KEY (tenant_id, request_id);

ALTER TABLE ONLY public.closed_counters
    ADD CONSTRAINT closed_counters_pkey PRIMARY KEY (tenant_id, resource, scope, epoch);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT one_hold_per_request UNIQUE (tenant_id, request_id);

ALTER TABLE ONLY public.quota_counters
    ADD CONSTRAINT quota_counters_pkey PRIMARY KEY (tenant_id, resource, scope);

ALTER TABLE ONLY public.region_identity
    ADD CONSTRAINT region_identity_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version, phase);

ALTER TABLE ONLY public.slice_ledger
    ADD CONSTRAINT slice_ledger_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.usage_ledger
    ADD CONSTRAINT usage_ledger_pkey PRIMARY KEY (id);

CREATE INDEX reservations_to_expire ON public.reservations USING btree (expires_at) WHERE (state = 'PENDING'::text);

CREATE INDEX slice_ledger_of_quota ON public.slice_ledger USING btree (tenant_id, resource, scope, id);

CREATE TRIGGER slice_ledger_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.slice_ledger FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER usage_ledger_is_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.usage_ledger FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();
