"""Every key, its default and its range."""

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from regionquota.config.secrets import read_secret
from regionquota.errors import ConfigError

RegionName = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,63}\Z", description="1 to 63 characters of a-z, 0-9 and -")]
Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0.01, le=3600)]
WholeSeconds = Annotated[int, Meta(ge=2, le=3600)]  # etcd leases know no fractions
Factor = Annotated[float, Meta(ge=0, le=1000)]
Address = Annotated[str, Meta(pattern=r"^\S+:\d{1,5}\Z")]
Addresses = Annotated[tuple[Address, ...], Meta(min_length=1, description="a list of host:port, at least one")]
Percents = Annotated[
    tuple[Annotated[int, Meta(ge=10, le=1000)], ...],
    Meta(max_length=10, description="a list of up to 10 integers from 10 to 1000"),
]
EtcdPrefix = Annotated[str, Meta(pattern=r"^/(\S*/)?\Z", description="a path that starts and ends with /")]
Url = Annotated[str, Meta(pattern=r"^https?://\S+\Z", description="a URL, http:// or https://")]
Dsn = Annotated[str, Meta(pattern=r"^postgres(ql)?://\S*\Z", description="a URL, postgresql://user@host:port/database")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConfig:
    name: RegionName = ""  # no default in truth: `require_region` asks for it where a region is to run
    host: Text = "127.0.0.1"
    port: Port = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    dsn: Dsn = field(default="postgresql://127.0.0.1:5432/regionquota", repr=False)
    password: Text | None = field(default=None, repr=False)  # from the environment only
    password_file: Path | None = None
    pool_size: Annotated[int, Meta(ge=1, le=100)] = 8
    connect_timeout_s: Seconds = 5.0
    statement_timeout_s: Seconds = 2.0
    lock_timeout_s: Seconds = 0.5
    idle_in_transaction_timeout_s: Seconds = 1.0
    trust_restarts: bool = False

    def secret(self) -> str | None:
        """The password, or None where the DSN or Postgres itself needs none.

        Reads the file at every call, so that a rotated password is found by the next connection.
        """
        return self.password or read_secret(self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    endpoints: Addresses = ("127.0.0.1:2379",)
    prefix: EtcdPrefix = "/regionquota/"
    timeout_s: Seconds = 2.0
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    liveness_ttl_s: WholeSeconds = 15
    report_interval_s: Seconds = 5.0
    settle_interval_s: Seconds = 0.5
    relist_interval_s: Seconds = 60.0
    claim_share: Share = 0.5
    low_water: Share = 0.25
    urgent_lead_s: Seconds = 1.0
    urgent_pause_s: Seconds = 0.3
    join_timeout_s: Seconds = 2.0
    learn_demand: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    lanes: Annotated[int, Meta(ge=1, le=100)] = 1
    max_batch: Annotated[int, Meta(ge=1, le=10_000)] = 500
    max_queue: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    max_body_bytes: Annotated[int, Meta(ge=1024, le=1_073_741_824)] = 1_048_576
    max_ttl_s: Annotated[int, Meta(ge=1, le=31_536_000)] = 2_592_000
    default_ttl_s: Annotated[int, Meta(ge=1, le=31_536_000)] = 60
    shutdown_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    max_requests_per_batch: Annotated[int, Meta(ge=1, le=10_000)] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperConfig:
    interval_s: Seconds = 1.0
    batch: Annotated[int, Meta(ge=1, le=100_000)] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverConfig:
    url: Url | None = None
    interval_s: Seconds = 10.0
    timeout_s: Seconds = 5.0
    batch: Annotated[int, Meta(ge=1, le=1000)] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    days_ahead: Annotated[int, Meta(ge=1, le=366)] = 14
    weeks_ahead: Annotated[int, Meta(ge=1, le=52)] = 3
    retention_days: Annotated[int, Meta(ge=2, le=36_500)] = 400
    archive_directory: Path | None = None
    idempotency_days: Annotated[int, Meta(ge=7, le=3650)] = 7
    meter_days: Annotated[int, Meta(ge=7, le=3650)] = 90
    interval_s: Annotated[float, Meta(ge=0.01, le=86_400)] = 600.0
    batch: Annotated[int, Meta(ge=1, le=100_000)] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthConfig:
    """One source of truth. `url` belongs to kind http; `dsn`, `password_file` and `query` to kind sql."""

    kind: Literal["http", "sql"]
    resources: Annotated[tuple[Text, ...], Meta(min_length=1, description="a list of resources or patterns")]
    url: Url | None = None
    dsn: Dsn | None = field(default=None, repr=False)
    password_file: Path | None = None
    query: Text | None = None
    counts: Literal["allocated", "consumable"] = "allocated"
    apply: bool = False
    floor: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 300.0

    def secret(self) -> str | None:
        return read_secret(self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileConfig:
    settle_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    after_close_s: Annotated[float, Meta(ge=1, le=604_800)] = 3600.0
    timeout_s: Seconds = 10.0
    sources: Mapping[RegionName, TruthConfig] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    host: Text = "127.0.0.1"
    port: Port = 8090
    interval_s: Annotated[float, Meta(ge=0.05, le=3600)] = 10.0
    leader_ttl_s: WholeSeconds = 10
    urgent_pause_s: Seconds = 0.3
    freeze_after_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    pool_share: Share | None = None
    smallest_pool_share: Share = 0.02
    largest_pool_share: Share = 0.1
    smallest_move_share: Share = 0.01
    idle_move_share: Share = 0.1
    growth_rounds: Factor = 1.5
    variance: Factor = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsConfig:
    thresholds: Percents = (80, 100)
    webhook_url: Url | None = field(default=None, repr=False)
    timeout_s: Seconds = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: Url | None = None
    service_name: Text = "regionquota"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedRegion:
    url: Url
    dsn: Dsn | None = field(default=None, repr=False)
    password_file: Path | None = None

    def secret(self) -> str | None:
        return read_secret(self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentConfig:
    regions: Mapping[RegionName, DeployedRegion] = field(default_factory=dict)
    proxies_url: Url | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    region: RegionConfig = RegionConfig()
    postgres: PostgresConfig = PostgresConfig()
    etcd: EtcdConfig = EtcdConfig()
    agent: AgentConfig = AgentConfig()
    service: ServiceConfig = ServiceConfig()
    sweeper: SweeperConfig = SweeperConfig()
    ledger: LedgerConfig = LedgerConfig()
    resolver: ResolverConfig = ResolverConfig()
    reconcile: ReconcileConfig = field(default_factory=ReconcileConfig)
    coordinator: CoordinatorConfig = CoordinatorConfig()
    planner: PlannerConfig = PlannerConfig()
    alerts: AlertsConfig = AlertsConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    deployment: DeploymentConfig = field(default_factory=DeploymentConfig)


KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    section: get_type_hints(cls, include_extras=True) for section, cls in get_type_hints(Config).items()
}


def takes(kind: Any) -> str:
    """What a key accepts, in words: `an integer from 1 to 100`."""
    if get_origin(kind) is Annotated:
        base, meta = get_args(kind)
        if meta.description is not None:
            return str(meta.description)
        return f"{'an integer' if base is int else 'a number'} from {meta.ge} to {meta.le}"
    if get_origin(kind) in (Union, types.UnionType):
        return takes(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(kind))
    return "true or false" if kind is bool else "a path" if kind is Path else "a table"


def check_region_name(what: str, name: str) -> None:
    """Raise `ConfigError`, which begins with `what`, unless `name` can be that of a region."""
    try:
        msgspec.convert(name, RegionName)
    except msgspec.ValidationError:
        raise ConfigError(f'{what} takes {takes(RegionName)}, got "{name}"') from None


def require_region(config: Config) -> None:
    """Raise `ConfigError` unless a region daemon can run on this."""
    if not config.region.name:
        raise ConfigError(
            f"region.name is missing: set name in [region] or REGIONQUOTA_REGION__NAME to {takes(RegionName)}"
        )


def require_deployment(config: Config) -> None:
    """Raise `ConfigError` unless the operators' commands know at least one region."""
    if not config.deployment.regions:
        raise ConfigError(
            'no regions known: name them in [deployment] of the file, regions = { eu = { url = "http://…" } }'
        )
