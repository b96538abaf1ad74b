"""docs/reliability.md against the tests: every case is there, and every test that it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PAGE = (ROOT.parent / "docs" / "reliability.md").read_text("utf-8")
CASES = 48


def test_every_test_that_is_named_exists() -> None:
    """By its file's name and its own."""
    defined = {
        f"{path.name}::{node.name}"
        for path in ROOT.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = set(re.findall(r"`(test_\w+\.py::\w+)`", PAGE))
    assert len(named) > CASES
    assert named <= defined, sorted(named - defined)


def test_every_case_has_a_test() -> None:
    """One row at least for each number, with what happens and the name of a test."""
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)
    assert {int(number) for number, _ in rows} == set(range(1, CASES + 1))
    assert all(re.fullmatch(r"`test_\w+\.py::\w+`(, `test_\w+\.py::\w+`)*", tests) for _, tests in rows)
