"""What programs read: the last line is all that was found."""

import json
from pathlib import Path

import pytest
from tests.cli import in_memory as deployment
from typer.testing import CliRunner

from regionquota.cli import app

in_memory = deployment.in_memory


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("region list", dict),
        ("quota list", list),
        ("quota set-many {limits}", list),
        ("tenant list", list),
        ("ledger list acme", list),
        ("transfers", list),
        ("reservation list", list),
        ("reconcile list", list),
        ("reconcile run --source inventory", list),
        ("explore --ablate decrease-first", dict),  # a line for each safeguard
    ],
)
@pytest.mark.usefixtures("in_memory")
def test_the_last_line_is_all_that_was_found(tmp_path: Path, command: str, form: type) -> None:
    config, limits = tmp_path / "deployment.toml", tmp_path / "limits.toml"
    config.write_text('[deployment]\nregions = { eu = { url = "http://127.0.0.1:1" } }\n')
    limits.write_text('[[limits]]\ntenant_id = "acme"\nresource = "vcpu"\nlimit = 5\n')
    arguments = [*command.format(limits=limits).split(), "--json"]
    result = CliRunner().invoke(app, arguments, env={"REGIONQUOTA_CONFIG": str(config)})
    assert 0 == result.exit_code, result.output
    assert isinstance(json.loads(result.stdout.splitlines()[-1]), form)
