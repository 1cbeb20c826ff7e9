"""The rules of business sets, each with answers that are right and wrong, and rules that would hang or fetch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from evaluation.quality.checks import Checker, CheckError

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with Checker(limit_s=1.0) as checker:
        yield checker


@pytest.mark.parametrize(
    ("rule", "expected", "answer", "options", "fault"),
    [
        ("exact", "Paris", " Paris\n", {}, ""),
        ("exact", "Paris", "paris", {}, "is not 'Paris'"),
        ("exact", "Paris", "paris", {"ignore_case": True}, ""),
        ("exact", ["yes", "是"], "是", {}, ""),
        ("exact", 7, "7", {}, ""),
        ("contains", ["refund", "7 days"], "A refund takes 7 days.", {}, ""),
        ("contains", ["refund", "7 days"], "A refund takes long.", {}, "lacks '7 days'"),
        ("contains", "STRASSE", "die Straße", {"ignore_case": True}, ""),
        ("regex", r"^ORD-\d{4}$", "ORD-1234", {}, ""),
        ("regex", r"^ORD-\d{4}$", "ORD-12", {}, "does not match"),
        ("regex", "yes", "YES", {"ignore_case": True}, ""),
        ("json_schema", PERSON, '{"age": 7}', {}, ""),
        ("json_schema", PERSON, '```json\n{"age": 7}\n```', {}, ""),
        ("json_schema", PERSON, 'Sure! {"age": 7}', {}, "is no JSON"),
        ("json_schema", PERSON, '{"age": "7"}', {}, "$.age"),
        ("json_schema", PERSON, "{}", {}, "'age' is a required property"),
        ("numeric", 18, "16 - 3 = 13, 13 + 5 = 18.", {}, ""),
        ("numeric", 1234.5, "about 1,234.5 in all", {}, ""),
        ("numeric", -3, "it is −3", {}, ""),
        ("numeric", 3.14, "3.15", {"tolerance": 0.02}, ""),
        ("numeric", 100, "104", {"relative_tolerance": 0.05}, ""),
        ("numeric", 100, "106", {"relative_tolerance": 0.05}, "its last number is 106, not 100 ± 5"),
        ("numeric", 100, "none", {}, "has no number"),
    ],
)
def test_each_rule(
    checker: Checker, rule: str, expected: Any, answer: str, options: dict[str, Any], fault: str
) -> None:
    found = checker.fault(rule, expected, answer, options)
    assert found == "" if not fault else fault in found


@pytest.mark.parametrize(
    ("rule", "expected", "told"),
    [
        ("regex", "(", "pattern"),
        ("json_schema", {"type": "integr"}, "JSON Schema"),
        ("json_schema", "x", "JSON Schema"),
        ("regex", 5, "pattern"),
    ],
)
def test_a_rule_that_is_none_is_told_before_anything_is_asked(
    checker: Checker, rule: str, expected: Any, told: str
) -> None:
    with pytest.raises(CheckError, match=told):
        checker.check_rule(rule, expected)


@pytest.mark.parametrize(
    ("rule", "expected", "answer"),
    [
        ("regex", r"^(a+)+$", "a" * 40 + "!"),
        ("regex", r"(?:x+x+)+y", "x" * 60),
        ("json_schema", {"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 40 + '!"'),
    ],
)
def test_a_rule_that_explodes_is_ended_and_the_next_one_works(rule: str, expected: Any, answer: str) -> None:
    with Checker(limit_s=0.3) as checker:
        began = time.monotonic()
        with pytest.raises(CheckError, match=r"longer than 0\.3 s"):
            checker.fault(rule, expected, answer, {})
        assert time.monotonic() - began < 60  # it would be years
        assert checker.fault("regex", "a", "a", {}) == ""


def test_a_schema_fetches_nothing(checker: Checker) -> None:
    with pytest.raises(CheckError, match="JSON Schema"):
        checker.fault("json_schema", {"$ref": "http://127.0.0.1:9/schema.json"}, "1", {})
