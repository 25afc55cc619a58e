"""Configuration: a TOML file, environment variables over it, a range for every value.

sections -- Config, one frozen dataclass per section; the defaults and ranges stand there and nowhere else
reading  -- file and environment to Config, or a ConfigError that names the key and the remedy
writing  -- Config back to TOML, for `regionquota dev`, which writes files for its children
secrets  -- passwords come from the environment or from files of their own
"""

from regionquota.config.reading import FILE_VARIABLE, load, nearest
from regionquota.config.sections import (
    AgentConfig,
    AlertsConfig,
    Config,
    CoordinatorConfig,
    DeployedRegion,
    DeploymentConfig,
    EtcdConfig,
    LedgerConfig,
    PlannerConfig,
    PostgresConfig,
    ReconcileConfig,
    RegionConfig,
    ResolverConfig,
    ServiceConfig,
    SweeperConfig,
    TelemetryConfig,
    TruthConfig,
    check_region_name,
    require_deployment,
    require_region,
    takes,
)
from regionquota.config.writing import render

__all__ = [
    "FILE_VARIABLE",
    "AgentConfig",
    "AlertsConfig",
    "Config",
    "CoordinatorConfig",
    "DeployedRegion",
    "DeploymentConfig",
    "EtcdConfig",
    "LedgerConfig",
    "PlannerConfig",
    "PostgresConfig",
    "ReconcileConfig",
    "RegionConfig",
    "ResolverConfig",
    "ServiceConfig",
    "SweeperConfig",
    "TelemetryConfig",
    "TruthConfig",
    "check_region_name",
    "load",
    "nearest",
    "render",
    "require_deployment",
    "require_region",
    "takes",
]
