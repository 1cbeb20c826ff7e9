"""docs/cases.md has every case, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CASES = TESTS.parent.parent / "shared" / "cases" / "engine.md"
LETTERS = {
    "A": (1, 3), "B": (2, 3, 5), "C": (2, 4, 5), "D": (2, 4), "E": (3, 4, 5, 7, 9), "F": (1, 4, 5, 7, 9, 10),
    "G": (1, 2, 3, 6, 7, 9), "H": (2,), "I": (1, 3, 5, 6, 8), "J": (2, 3), "K": (2, 3),
}  # fmt: skip
IDS = [f"{letter}{number}" for letter, numbers in LETTERS.items() for number in numbers]


def rows() -> dict[str, str]:
    """Case → the cell that says what holds it."""
    text = (TESTS.parent / "docs" / "cases.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([A-K]\d+) \| .+ \| (.+) \|$", text, re.MULTILINE)
    assert len(found) == len(dict(found)), "a case stands there twice"
    return dict(found)


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_all_cases_are_there() -> None:
    assert list(rows()) == IDS
    if CASES.is_file():  # beside the repository, where it is developed
        assert re.findall(r"^- \[(\w+)\]", CASES.read_text(encoding="utf-8"), re.MULTILINE) == IDS


@pytest.mark.parametrize("case", IDS)
def test_the_tests_of_a_case_exist(case: str) -> None:
    cell = rows()[case]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", cell)
    assert named or cell.startswith("not yet: "), f"{case}: neither a test nor a reason"
    assert cell.count("::") == len(named), f"{case}: a name that cannot be read"
    for path, test in named:
        assert test.startswith("test_"), test
        assert test in functions(TESTS / path), f"{case}: {path} has no {test}"
