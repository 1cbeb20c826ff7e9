"""Files that people write: a fault names file, line, field and the fix. What comes with the package is unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.quality import sets
from evaluation.quality.bundle import write
from evaluation.quality.sets import DATA, ChoiceRow, PairRow, RuleRow, SetError, read_rows, source

SHARED = Path(__file__).parents[4] / "shared" / "data"


def put(folder: Path, name: str, text: str | bytes) -> str:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def test_jsonl_and_csv_say_the_same(tmp_path: Path) -> None:
    csv = (
        "\ufeffid,prompt,rule,expected,tolerance,ignore_case\r\n"
        '1,"Two, and two?\nAs a number.",numeric,4,0.5,\r\n'
        '2,Say hi,exact,"[""hi"", ""hello""]",,true\r\n'
        '3,As JSON,json_schema,"{""type"": ""object""}",,\r\n'
        "4,Which order?,regex,^ORD-\\d+$,,\r\n"
    )
    jsonl = [
        {"id": "1", "prompt": "Two, and two?\nAs a number.", "rule": "numeric", "expected": "4", "tolerance": 0.5},
        {"id": "2", "prompt": "Say hi", "rule": "exact", "expected": ["hi", "hello"], "ignore_case": True},
        {"id": "3", "prompt": "As JSON", "rule": "json_schema", "expected": {"type": "object"}},
        {"id": "4", "prompt": "Which order?", "rule": "regex", "expected": r"^ORD-\d+$"},
    ]
    put(tmp_path, "a.csv", csv)
    put(tmp_path, "a.jsonl", "\n".join(map(json.dumps, jsonl)))
    ours, theirs = (read_rows(source(name, tmp_path), RuleRow) for name in ("a.csv", "a.jsonl"))
    assert [row for _, row in ours] == [row for _, row in theirs]
    assert [line for line, _ in ours] == [2, 4, 5, 6]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '{"prompt": "x", "expected": "y"}\n{"prompt": 5, "expected": "y"}', "a.jsonl:2: prompt: expected"),
        ("a.jsonl", '{"promt": "x", "expected": "y"}', "a.jsonl:1: promt: unknown field. Did you mean `prompt`?"),
        ("a.jsonl", '{"prompt": "x", "expected": 1, "rule": "equal"}', "a.jsonl:1: rule: invalid enum value"),
        ("a.jsonl", '{"prompt": "x"}', "a.jsonl:1: expected: is missing"),
        ("a.jsonl", '{"prompt": "x"', "a.jsonl:1: no JSON"),
        ("a.jsonl", '\n["x"]', "a.jsonl:2: no JSON object"),
        ("a.jsonl", "\n \n", "a.jsonl: it has no rows"),
        ("a.csv", "prompt,expected\nx,y,z\n", "a.csv:2: 3 cells under 2 columns"),
        ("a.csv", "prompt,expectd\nx,y\n", "a.csv:2: expectd: unknown field. Did you mean `expected`?"),
        ("a.csv", 'prompt,expected\n"x"y,z\n', "a.csv:2: no CSV"),
        ("a.csv", "prompt,expected\nok,1\nja \xe9,2\n".encode("latin-1"), "a.csv:3: it is not UTF-8"),
    ],
)
def test_what_is_wrong_has_a_place_and_a_fix(tmp_path: Path, name: str, text: str | bytes, told: str) -> None:
    put(tmp_path, name, text)
    with pytest.raises(SetError) as error:
        read_rows(source(name, tmp_path), RuleRow)
    assert told in str(error.value)


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(SetError, match=r"no such file. Paths start from"):
        source("none.jsonl", tmp_path)
    with pytest.raises(SetError, match=r"There are: bbh, business_example, gsm8k"):
        source("bundled:gsm9k", tmp_path)


@pytest.mark.parametrize("name", sorted(sets.manifest()))
def test_what_comes_with_the_package_is_what_the_manifest_says(name: str) -> None:
    facts = sets.manifest()[name]
    found = source(f"bundled:{name}", DATA)
    assert found.facts["licence"] in ("MIT", "Apache-2.0", "CC BY-SA 3.0 and GFDL")
    kinds = {"gsm8k": RuleRow, "business_example": RuleRow, "bbh": ChoiceRow, "mt_bench": PairRow}
    if name in kinds:
        assert len(read_rows(found, kinds[name])) == facts["rows"]


def test_the_bundled_sets_are_made_of_the_public_ones(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("no shared/data beside the clone")
    put(tmp_path, "business_example.jsonl", (DATA / "business_example.jsonl").read_bytes())
    assert write(SHARED, tmp_path) == sets.manifest()
