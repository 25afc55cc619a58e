"""Files and ports of a development deployment, the same at each start on the same data directory."""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from regionquota.config import (
    Config,
    CoordinatorConfig,
    DeployedRegion,
    DeploymentConfig,
    EtcdConfig,
    RegionConfig,
    check_region_name,
    render,
)
from regionquota.core.quota import Region
from regionquota.embedded import free_port
from regionquota.embedded.install import closed_to, make_directory, server_user
from regionquota.errors import ConfigError, RegionQuotaError

LOOPBACK: Final = "127.0.0.1"
DEPLOYMENT_FILE: Final = "deployment.toml"
DEFAULT_REGIONS: Final = "eu,us,ap"
MAX_REGIONS: Final = 20
MAX_RTT_MS: Final = 1000
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True, slots=True)
class Options:
    """`postgres` names databases to use instead of embedded ones, `etcd` endpoints instead of an embedded etcd."""

    data_dir: Path
    regions: Sequence[Region]
    base: Config = field(default_factory=Config)
    postgres: Mapping[Region, DeployedRegion] = field(default_factory=dict)
    etcd: Sequence[str] = ()
    servers: int = 1
    """Region servers in each region."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the embedded Postgres, beside its own."""
    etcd_rtt_ms: int = 0
    """Added to each call of a region or the coordinator to etcd, as if it were far away; for one etcd only."""

    def __post_init__(self) -> None:
        check_regions(self.regions)
        if not 0 <= self.etcd_rtt_ms <= MAX_RTT_MS:
            raise ConfigError(f"--etcd-rtt-ms takes an integer from 0 to {MAX_RTT_MS}, got {self.etcd_rtt_ms}")
        if self.etcd_rtt_ms and len(self.etcd) > 1:
            raise ConfigError("--etcd-rtt-ms delays one etcd: name one endpoint, or leave it out")
        if self.etcd_rtt_ms and COORDINATOR in self.regions:
            raise ConfigError(f"--regions: with --etcd-rtt-ms, {COORDINATOR} is a proxy's name already")


def check_regions(names: Sequence[str]) -> None:
    """Raises `ConfigError`."""
    if not 1 <= len(set(names)) == len(names) <= MAX_REGIONS:
        raise ConfigError(f"--regions takes 1 to {MAX_REGIONS} different names, got {', '.join(names)}")
    for name in names:
        check_region_name("--regions", name)


def default_data_dir() -> Path:
    """`.regionquota` here, or a temporary directory where Postgres' user may not enter here (see embedded.install)."""
    here = Path.cwd() / ".regionquota"
    if closed_to(server_user(), here) is None:
        return here
    name = hashlib.blake2s(str(here).encode(), digest_size=4).hexdigest()
    return Path(tempfile.gettempdir()) / f"regionquota-{os.geteuid()}-{name}"


class Layout:
    """Paths below `data_dir`, and ports by name; a port once given is kept in `ports.json`."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        make_directory(self.data_dir)
        self._file = self.data_dir / "ports.json"
        self._ports: dict[str, int] = json.loads(self._file.read_text()) if self._file.exists() else {}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raises `RegionQuotaError` if another `dev` runs on this directory. Its end, however it comes, frees it."""
        with (self.data_dir / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RegionQuotaError(
                    f"another regionquota dev runs on {self.data_dir}: end it, or choose another --data-dir"
                ) from None
            yield

    def port(self, name: str) -> int:
        while name not in self._ports:
            port = free_port()
            if port not in self._ports.values():
                self._ports[name] = port
                self._file.write_text(json.dumps(self._ports, indent=1))
        return self._ports[name]

    def directory(self, name: str) -> Path:
        return self.data_dir / name

    def log(self, name: str) -> Path:
        make_directory(self.data_dir / "logs")
        return self.data_dir / "logs" / f"{name}.log"

    def write(self, file: str, config: Config, sections: Sequence[str]) -> Path:
        path = self.data_dir / file
        path.write_text(render(config, sections))
        path.chmod(0o600)
        return path


def region_config(options: Options, region: Region, *, dsn: str, etcd: str, port: int) -> Config:
    base = options.base
    return replace(
        base,
        region=RegionConfig(name=region, host=LOOPBACK, port=port),
        postgres=replace(base.postgres, dsn=dsn, password_file=_password_file(options, region)),
        etcd=_etcd(base, [etcd]),
    )


def coordinator_config(options: Options, *, etcd: Sequence[str], port: int) -> Config:
    base = options.base
    coordinator: CoordinatorConfig = replace(base.coordinator, host=LOOPBACK, port=port)
    return replace(base, coordinator=coordinator, etcd=_etcd(base, etcd))


def deployment_config(
    options: Options, *, urls: Mapping[Region, str], dsns: Mapping[Region, str], etcd: Sequence[str], control: str
) -> Config:
    regions = {
        name: DeployedRegion(url=urls[name], dsn=dsns[name], password_file=_password_file(options, name))
        for name in options.regions
    }
    return replace(
        options.base,
        etcd=_etcd(options.base, etcd),
        deployment=DeploymentConfig(regions=regions, proxies_url=control),
    )


def _etcd(base: Config, endpoints: Sequence[str]) -> EtcdConfig:
    return replace(base.etcd, endpoints=tuple(endpoints))


def _password_file(options: Options, region: Region) -> Path | None:
    named = options.postgres.get(region)
    return None if named is None else named.password_file
