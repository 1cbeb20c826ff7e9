"""Schemas of functions, answered by the demo model at temperature 1: every answer is valid. The benchmark's own code,
on ten of them; `python -m evaluation.benchmarks.structured` takes 200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from evaluation.benchmarks.structured import valid_share
from tests.engines.weights import smollm2

TEXT, COUNT, SHARE = {"type": "string"}, {"type": "integer"}, {"type": "float"}
FUNCTIONS: list[tuple[str, dict[str, Any]]] = [
    ("Weather in Oslo in Celsius?", {"city": TEXT, "unit": {"type": "string", "enum": ["C", "F"]}}),
    ("Area of a triangle, base 10, height 5", {"base": COUNT, "height": COUNT, "unit": TEXT}),
    ("Book a table for four at seven", {"people": COUNT, "time": TEXT, "outside": {"type": "boolean"}}),
    ("Split 120 over three friends", {"total": SHARE, "names": {"type": "array", "items": TEXT}}),
    ("Play some jazz", {"genre": {"type": "string", "enum": ["jazz", "rock", "folk"]}, "volume": COUNT}),
    ("Route from Rome to Milan by train", {"stops": {"type": "array", "items": {"type": "dict", "properties":
        {"name": TEXT, "minutes": COUNT}, "required": ["name"]}}}),
    ("Translate bread to French", {"word": TEXT, "language": TEXT}),
    ("Roots of x^2 - 3x + 2", {"coefficients": {"type": "tuple", "items": SHARE}}),
    ("Remind me tomorrow", {"when": TEXT, "repeat": {"type": "null"}, "tags": {"type": "array", "items": COUNT}}),
    ("Order two pizzas", {"items": {"type": "array", "items": {"type": "dict", "properties":
        {"type": TEXT, "size": {"type": "string", "enum": ["S", "M", "L"]}, "count": COUNT}, "required": ["size"]}}}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.weights
def test_every_answer_of_the_demo_model_is_valid(tmp_path: Path) -> None:
    rows = [
        {
            "question": [[{"role": "user", "content": question}]],
            "function": [{"parameters": {"type": "dict", "properties": made, "required": list(made)}}],
        }
        for question, made in FUNCTIONS
    ]
    (tmp_path / "BFCL_v4_ten.json").write_text("\n".join(map(json.dumps, rows)))
    paths = {"model.gguf": str(smollm2())}
    tokenizer, facts = load_tokenizer(open_model("gguf", paths))
    engine = Offline(EngineConfig(format="gguf", paths=paths, max_model_len=512, max_num_seqs=10))
    report = valid_share(engine, tokenizer, list(facts.eos_ids), tmp_path, len(FUNCTIONS))
    assert {name: report[name] for name in ("schemas", "valid", "cut_by_max_tokens", "errors")} == {
        "schemas": 10, "valid": 10, "cut_by_max_tokens": 0, "errors": 0,
    }  # fmt: skip
