"""What every command shares: finding the configuration, printing for people or programs, errors as exit codes."""

import asyncio
import inspect
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from regionquota.cli.tables import laid_out
from regionquota.config import FILE_VARIABLE, Config, load
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey
from regionquota.dev import DEPLOYMENT_FILE, default_data_dir
from regionquota.errors import ConfigError, InvalidRequest, RegionQuotaError
from regionquota.exit_status import INTERRUPTED
from regionquota.http.decoding import check_identifier

P = ParamSpec("P")

# Names are the callers', and may read like markup or like :smile:.
out = Console(markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration (TOML). Default: $REGIONQUOTA_CONFIG, else what `regionquota dev` left here.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
# So that -5 is a wrong number and not an unknown option.
NEGATIVE_NUMBERS: Final = {"ignore_unknown_options": True}
ScopeOption = Annotated[str, typer.Option("--scope", help="Scope of the quota.")]


def configuration(path: Path | None) -> Config:
    """Raises `ConfigError`."""
    if path is None and not os.environ.get(FILE_VARIABLE):
        path = _left_by_dev()
        if path is None:
            err.print(
                "no configuration found (no --config, no $REGIONQUOTA_CONFIG, nothing that regionquota dev left in "
                "this directory): going by the defaults",
                style="dim",
            )
    return load(path, os.environ)


def _left_by_dev() -> Path | None:
    file = default_data_dir() / DEPLOYMENT_FILE
    try:
        return file if file.exists() else None
    except OSError as error:
        raise ConfigError(f"cannot look for {file}: {error.strerror}; name a configuration with --config") from error


def quota_key(tenant: str, resource: str, scope: str) -> QuotaKey:
    """Raises `InvalidRequest`."""
    named = (("tenant", tenant), ("resource", resource), ("scope", scope))
    return QuotaKey(*(check_identifier(field, value) for field, value in named))


def named(key: QuotaKey) -> str:
    """As arguments of a command."""
    return shlex.join((key.tenant, key.resource)) + _scope_option(key)


def _scope_option(key: QuotaKey) -> str:
    return "" if key.scope == GLOBAL_SCOPE else f" --scope {shlex.quote(key.scope)}"


def unknown_quota(key: QuotaKey) -> RegionQuotaError:
    return RegionQuotaError(
        f"unknown quota {key}: regionquota quota list shows what there is; "
        f"set one with regionquota quota set {shlex.join((key.tenant, key.resource))} LIMIT{_scope_option(key)}"
    )


def command(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A coroutine as a command. What is expected to go wrong is one line on standard error, and an exit status.

    2 is wrong input or configuration: another command line is needed, and the error says what it takes, or names all
    that there is to choose from. 1 is all else: among it a quota, reservation or case that was named well and is not
    there.
    """

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        # Their tracebacks of connections that break are no business of a person at a prompt; daemons set their own.
        for name in ("asyncio", "asyncpg", "grpc"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        status = 0
        # Raised below: what is raised in one of several clauses comes out as a group, and as a traceback.
        try:
            uvloop.run(work(*args, **kwargs))
        except* (ConfigError, InvalidRequest) as group:
            _say(group)
            status = 2
        except* RegionQuotaError as group:
            _say(group)
            status = 1
        except* BrokenPipeError:
            # The reader of our output (head, less) has had enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except* KeyboardInterrupt:
            status = INTERRUPTED
        if status:
            raise typer.Exit(status)

    run.__doc__ = escape(_unwrapped(work.__doc__ or ""))  # [agent] is a section, and no style
    return run


def _unwrapped(text: str) -> str:
    """Each paragraph and each item of a list in one line: a terminal is seldom as wide as our source."""
    return re.sub(r"(?<!\n)\n(?!\n|- ) *", " ", inspect.cleandoc(text))


def interrupt_at_sigterm() -> None:
    """So that what is under way is ended in order by either signal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)


def interrupt_at_once() -> None:
    """For work that never awaits, which hears of a cancellation at its end only."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(group: BaseExceptionGroup[BaseException]) -> None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _say(error)
        elif isinstance(error, ConfigError | InvalidRequest):
            say("error:", "bold red", _in_one_line(str(error)))
        else:
            say("error:", "bold red", str(error))


def _in_one_line(text: str) -> str:
    """With what was given as it would be written in a program: it may hold whatever a terminal obeys."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def warn(text: str) -> None:
    say("warning:", "bold yellow", text)


def say(what: str, style: str, text: str) -> None:
    """A line on standard error, `what` of it in a style."""
    err.print(Text.assemble((what, style), " ", text), highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, *, prose: Collection[str] = ()
) -> None:
    """Numbers to the right, thousands separated. Only what `prose` names is folded, and only on a terminal."""
    room = out.width if out.file.isatty() else None
    out.print(laid_out(columns, [list(row) for row in rows], title, prose, room), soft_wrap=True, highlight=False)
