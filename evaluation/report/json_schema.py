"""docs/result.schema.json: the JSON Schema of result.json, of a line of requests.jsonl, and of spec.json.

`python -m evaluation.report.json_schema` writes it; a test holds it equal to evaluation/schema.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from evaluation.schema import DEFINITIONS, SCHEMA_VERSION, RequestRecord, ResultDoc, RunSpec

PATH = Path(__file__).resolve().parents[2] / "docs" / "result.schema.json"


def schema() -> dict[str, Any]:
    """Draft 2020-12. `$defs/RequestRecord` is a line of requests.jsonl, `$defs/RunSpec` is spec.json."""
    _, components = msgspec.json.schema_components([ResultDoc, RequestRecord, RunSpec], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Result of a Tursiops evaluation",
        "description": f"Schema version {SCHEMA_VERSION}, metric definitions version {DEFINITIONS}. Rates are requests "
        "per second; times of a request are nanoseconds of one monotonic clock; null was not measured.",
        "$ref": "#/$defs/ResultDoc",
        "$defs": components,
    }


def text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
