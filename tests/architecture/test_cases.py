"""Each case of docs/cases.md is there once, and the tests that it names exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CASES: Final = (
    "R1 R2 R4 R5 R6 R7 R9 R10 R11 R13 R14 R15 R16 R18 R20 R21 R23 R24",
    "C25 C26 C28 C29 C30 C32 C33 C35 C36 C37 C38 C39 C40 C42",
    "L44 L46 L47 L50 L52 L53 L54 L56 L57 L59 L60 L62 L63 L64",
    "T65 T67 T68 T70 T82",
    "K72 K73 K74 K76 K78 K79 K80 K84 K85 K86 K88 K91 K92",
    "D94 D95 D96 D97",
)
_ROW: Final = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def document() -> str:
    return (ROOT / "docs" / "cases.md").read_text()


def rows() -> list[tuple[str, str]]:
    """Number and tests of each."""
    return [(number, tests) for number, _, _, tests in _ROW.findall(document())]


@cache
def defined_in(path: str) -> frozenset[str]:
    """Functions of the module itself; none where there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions))


def test_every_case_is_listed_once_in_order() -> None:
    assert " ".join(CASES).split() == [number for number, _ in rows()]


@pytest.mark.parametrize(("number", "tests"), rows(), ids=[number for number, _ in rows()])
def test_a_case_names_tests_that_exist(number: str, tests: str) -> None:
    named = _TEST.findall(tests)
    assert tests == "<br>".join(f"`{path}::{name}`" for path, name in named), "something else than tests is named"
    assert [] == [(path, name) for path, name in named if name not in defined_in(path)]
