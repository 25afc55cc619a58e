"""What the commands of `regionquota quota` say of a quota that there is not."""

import shlex

import pytest
from tests.cli import in_memory as deployment
from typer.testing import CliRunner

from regionquota.cli import app

in_memory = deployment.in_memory


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("command", ["get", "remove", "suspend"])
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("acme vcpu", "regionquota quota set acme vcpu LIMIT"),
        ("'a b' 'gpu hours' --scope \"it's\"", "regionquota quota set 'a b' 'gpu hours' LIMIT --scope 'it'\"'\"'s'"),
    ],
)
def test_who_names_no_quota_is_told_the_command_that_makes_one(command: str, key: str, hint: str) -> None:
    result = CliRunner().invoke(app, ["quota", command, *shlex.split(key)])
    assert result.exit_code
    assert "unknown quota" in result.output
    assert f"set one with {hint}\n" in result.output
