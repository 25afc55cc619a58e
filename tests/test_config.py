import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regionquota.config import (
    Config,
    DeployedRegion,
    DeploymentConfig,
    EtcdConfig,
    PostgresConfig,
    RegionConfig,
    load,
    render,
    require_deployment,
    require_region,
)
from regionquota.config.sections import KINDS, takes
from regionquota.errors import ConfigError

EXAMPLES = Path(__file__).parent.parent / "config"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "region.toml"


def refusal(path: Path | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    return str(caught.value)


# -- where values come from --


def test_without_file_and_environment_all_defaults_hold() -> None:
    assert Config() == load(None, {})


def test_the_environment_wins_over_the_file(file: Path) -> None:
    file.write_text("[postgres]\npool_size = 3\nlock_timeout_s = 1\n")
    config = load(file, {"REGIONQUOTA_POSTGRES__POOL_SIZE": "5"})
    assert (5, 1.0) == (config.postgres.pool_size, config.postgres.lock_timeout_s)


def test_a_variable_names_the_file(file: Path) -> None:
    file.write_text('[region]\nname = "eu"\n')
    assert "eu" == load(None, {"REGIONQUOTA_CONFIG": str(file)}).region.name


def test_lists_and_tables_come_from_variables_too() -> None:
    config = load(
        None,
        {
            "REGIONQUOTA_ETCD__ENDPOINTS": "a:1, b:2",
            "REGIONQUOTA_DEPLOYMENT__REGIONS": '{ eu = { url = "http://eu" } }',
        },
    )
    assert ("a:1", "b:2") == config.etcd.endpoints
    assert {"eu": DeployedRegion(url="http://eu")} == config.deployment.regions


def test_an_empty_variable_counts_as_unset() -> None:
    assert Config() == load(None, {"REGIONQUOTA_ETCD__CA_FILE": ""})


def test_our_own_variable_wins_over_the_one_of_opentelemetry() -> None:
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://standard:4318"}
    assert "http://standard:4318" == load(None, standard).telemetry.otlp_endpoint
    own = standard | {"REGIONQUOTA_TELEMETRY__OTLP_ENDPOINT": "http://own:4318"}
    assert "http://own:4318" == load(None, own).telemetry.otlp_endpoint


def test_variables_that_kubernetes_makes_for_a_service_are_not_for_us() -> None:
    links = {
        "REGIONQUOTA_SERVICE_HOST": "10.0.0.1",
        "REGIONQUOTA_SERVICE_PORT_HTTP": "8080",
        "REGIONQUOTA_PORT": "tcp://10.0.0.1:8080",
        "REGIONQUOTA_EU_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    assert Config() == load(None, links)


# -- what is refused, and how --


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[coordinator]\nintervall_s = 1",
            'unknown key "intervall_s" in [coordinator]: did you mean "interval_s"?',
        ),
        ("[sweeper]\nqqq = 1", 'unknown key "qqq" in [sweeper]: known are "interval_s", "batch"'),
        ("[cordinator]", "unknown section [cordinator]: did you mean [coordinator]?"),
        ("region = 1", "region takes a section [region], got 1"),
        ("[postgres]\npool_size = 101", "[postgres] pool_size takes an integer from 1 to 100, got 101"),
        ("[postgres]\npool_size = true", "[postgres] pool_size takes an integer from 1 to 100, got true"),
        ('[postgres]\npool_size = "8"', '[postgres] pool_size takes an integer from 1 to 100, got "8"'),
        ("[planner]\nvariance = nan", "[planner] variance takes a number from 0 to 1000, got NaN"),
        ('[region]\nname = "EU"', '[region] name takes 1 to 63 characters of a-z, 0-9 and -, got "EU"'),
        ("[etcd]\nendpoints = []", "[etcd] endpoints takes a list of host:port, at least one, got []"),
        ('[etcd]\nprefix = "rq"', '[etcd] prefix takes a path that starts and ends with /, got "rq"'),
        ('[etcd]\nca_file = ""', '[etcd] ca_file takes a path, got ""'),
        (
            '[telemetry]\nlog_format = "xml"',
            '[telemetry] log_format takes one of "auto", "console", "json", got "xml"',
        ),
        (
            "[deployment]\nregions = { eu = {} }",
            "[deployment] regions.eu takes a table with url at least",
        ),
        (
            '[deployment]\nregions = { eu = { url = "http://x", dns = "" } }',
            'unknown key "dns" in {file}: [deployment] regions.eu: did you mean "dsn"?',
        ),
        (
            '[deployment]\nregions = { eu = { url = "eu:80" } }',
            '[deployment] regions.eu.url takes a URL, http:// or https://, got "eu:80"',
        ),
        ("[region", "is not TOML: "),
    ],
)
def test_a_refusal_names_file_key_range_and_value(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    refused = refusal(file)
    assert str(file) in refused
    assert message.replace("{file}", str(file)) in refused


def test_a_missing_file_is_named(file: Path) -> None:
    assert f"cannot read {file}: No such file or directory" == refusal(file)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "REGIONQUOTA_POSTGRES__DSNN",
            "x",
            "unknown variable REGIONQUOTA_POSTGRES__DSNN: did you mean REGIONQUOTA_POSTGRES__DSN?",
        ),
        (
            "REGIONQUOTA_REGION_PORT",
            "80",
            "unknown variable REGIONQUOTA_REGION_PORT: did you mean REGIONQUOTA_REGION__PORT?",
        ),
        ("REGIONQUOTA_REGION__PORT", "1e9", 'REGIONQUOTA_REGION__PORT takes an integer from 0 to 65535, got "1e9"'),
        ("REGIONQUOTA_DEPLOYMENT__REGIONS", "eu", "REGIONQUOTA_DEPLOYMENT__REGIONS takes an inline TOML table"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, message: str) -> None:
    assert refusal(None, {variable: text}).startswith(message)


def test_keys_that_contradict_each_other_are_refused(file: Path) -> None:
    file.write_text("[service]\ndefault_ttl_s = 61\nmax_ttl_s = 60\n")
    assert "service.default_ttl_s must not exceed service.max_ttl_s, got 61 > 60" == refusal(file)
    file.write_text('[etcd]\nkey_file = "k"\n')
    assert "etcd.cert_file and etcd.key_file go together: set both, or neither" == refusal(file)
    file.write_text("[planner]\nsmallest_pool_share = 0.3\n")
    assert "planner.smallest_pool_share must not exceed planner.largest_pool_share, got 0.3 > 0.1" == refusal(file)


def test_a_region_needs_a_name_and_operators_need_regions() -> None:
    with pytest.raises(ConfigError, match=r"region\.name is missing: .* REGIONQUOTA_REGION__NAME"):
        require_region(Config())
    with pytest.raises(ConfigError, match="no regions known"):
        require_deployment(Config())
    require_region(Config(region=RegionConfig(name="eu")))


# -- secrets --


@pytest.mark.parametrize(
    "text",
    [
        '[postgres]\npassword = "hush"',
        '[postgres]\ndsn = "postgresql://me:hush@db/quota"',
        '[postgres]\ndsn = "postgresql://me@db/quota?password=hush"',
        '[deployment]\nregions = { eu = { url = "http://x", dsn = "postgresql://me:hush@db/quota" } }',
    ],
)
def test_a_password_in_the_file_is_refused_with_the_remedy_and_not_shown(file: Path, text: str) -> None:
    file.write_text(text)
    refused = refusal(file)
    assert "name a file in password_file, or set REGIONQUOTA_POSTGRES__PASSWORD" in refused
    assert "hush" not in refused


def test_a_password_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    environ = {"REGIONQUOTA_POSTGRES__PASSWORD_FILE": str(tmp_path / "secret")}
    assert "from file" == load(None, environ).postgres.secret()
    environ["REGIONQUOTA_POSTGRES__PASSWORD"] = "from variable"
    assert "from variable" == load(None, environ).postgres.secret()
    assert load(None, {}).postgres.secret() is None


def test_a_password_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the password file .*gone"):
        PostgresConfig(password_file=tmp_path / "gone").secret()


def test_neither_repr_nor_refusal_shows_a_secret() -> None:
    environ = {
        "REGIONQUOTA_POSTGRES__PASSWORD": "hush",
        "REGIONQUOTA_POSTGRES__DSN": "postgresql://me:hush@db/quota",
    }
    assert "hush" not in repr(load(None, environ))
    assert "hush" not in refusal(None, {"REGIONQUOTA_POSTGRES__DSN": "mysql://me:hush@db/quota"})


# -- rendering --


def test_what_is_rendered_reads_back(file: Path) -> None:
    config = Config(
        region=RegionConfig(name="eu", host='\\ "é\x7f\n😀', port=0),
        etcd=EtcdConfig(endpoints=("a:1", "b:2"), ca_file=Path("/ca.pem"), timeout_s=0.25),
        deployment=DeploymentConfig(
            regions={
                "eu": DeployedRegion(url="http://eu", dsn="postgresql://db/eu"),
                "us-1": DeployedRegion(url="http://us"),
            }
        ),
    )
    file.write_text(render(config, ["region", "etcd", "deployment", "agent"]), encoding="utf-8")
    assert config == load(file, {})


def test_only_named_sections_and_changed_keys_are_rendered() -> None:
    config = Config(region=RegionConfig(name="eu"), postgres=PostgresConfig(pool_size=2))
    assert '[region]\nname = "eu"\n' == render(config, ["region"])


def test_secrets_are_not_rendered() -> None:
    config = Config(postgres=PostgresConfig(password="hush"))
    assert "[postgres]\n" == render(config, ["postgres"])
    with pytest.raises(ConfigError, match="dsn holds a password"):
        render(replace(config, postgres=PostgresConfig(dsn="postgresql://me:hush@db/quota")), ["postgres"])


# -- the examples --


def example_keys() -> dict[tuple[str, str], list[tuple[Any, str]]]:
    """Each key shown in config/*.toml, commented out or not: its values, each with the comment above it."""
    found: dict[tuple[str, str], list[tuple[Any, str]]] = {}
    for path in sorted(EXAMPLES.glob("*.toml")):
        section, comment = "", ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if header := re.fullmatch(r"\[(\w+)\]", line):
                section = header[1]
            elif shown := re.fullmatch(r"(?:# )?(\w+) = (.*)", line):
                value = tomllib.loads(f"value = {shown[2]}")["value"]
                found.setdefault((section, shown[1]), []).append((value, comment))
            comment = f"{comment} {line.removeprefix('# ')}" if line.startswith("#") else ""
    return found


def test_the_examples_show_every_key_once_with_its_default_and_its_range() -> None:
    shown = example_keys()
    from_environment_only = {("postgres", "password")}
    assert {(section, key) for section in KINDS for key in KINDS[section]} - from_environment_only == shown.keys()
    for (section, key), occurrences in shown.items():
        assert 1 == len(occurrences), f"[{section}] {key} is shown {len(occurrences)} times"
        ((value, comment),) = occurrences
        default = getattr(getattr(Config(), section), key)
        if default is None or (section, key) == ("region", "name"):
            assert "No default" in comment, f"[{section}] {key}"
        else:
            expected = list(default) if isinstance(default, tuple) else default
            assert (type(expected), expected) == (type(value), value), f"[{section}] {key}"
        assert f"akes {takes(KINDS[section][key])}." in comment, f"[{section}] {key}: {takes(KINDS[section][key])}"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_load_as_they_stand_and_with_every_key_switched_on(path: Path, file: Path) -> None:
    load(path, {})
    file.write_text(re.sub(r"(?m)^# (?=\w+ = )", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    load(file, {})
