"""What programs read: whatever is listed, the last line is one object."""

import json
from pathlib import Path

import pytest
from tests.cli import in_memory as deployment
from typer.testing import CliRunner

from regionquota.cli import app

in_memory = deployment.in_memory


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("region list", {"coordinators", "regions"}),
        ("quota list", {"quotas"}),
        ("quota set-many {limits}", {"quotas"}),
        ("tenant list", {"tenants"}),
        ("ledger list acme", {"lines"}),
        ("transfers", {"transfers"}),
        ("reservation list", {"reservations"}),
        ("reconcile list", {"cases"}),
        ("reconcile run --source inventory", {"runs"}),
        ("explore --ablate decrease-first", {"missed", "unmissed"}),
    ],
)
@pytest.mark.usefixtures("in_memory")
def test_the_last_line_is_one_object(tmp_path: Path, command: str, names: set[str]) -> None:
    config, limits = tmp_path / "deployment.toml", tmp_path / "limits.toml"
    config.write_text('[deployment]\nregions = { eu = { url = "http://127.0.0.1:1" } }\n')
    limits.write_text('[[limits]]\ntenant_id = "acme"\nresource = "vcpu"\nlimit = 5\n')
    arguments = [*command.format(limits=limits).split(), "--json"]
    result = CliRunner().invoke(app, arguments, env={"REGIONQUOTA_CONFIG": str(config)})
    assert 0 == result.exit_code, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    assert names == told.keys()
