"""Running a suite in a test, and a business set of sums with a model that adds up to ten."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from evaluation.quality.results import TaskResult
from evaluation.quality.run import QualityRun
from evaluation.quality.suite import read_suite
from evaluation.schema import ResultDoc, read_result

TEXT = "The quick brown fox jumps over the lazy dog, and comes back to see what the dog has done about it. " * 6


def quiet(share: float, text: str) -> None:
    assert 0 <= share <= 1, text


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path.name


def run(spec: dict[str, Any], folder: Path, out: str = "out") -> ResultDoc:
    found = asyncio.run(QualityRun(read_suite(spec), folder, folder / out, quiet).run())
    assert read_result((folder / out / "result.json").read_bytes()) == found
    return found


def task(doc: ResultDoc, name: str) -> TaskResult:
    assert doc.quality is not None
    return next(each for each in doc.quality.tasks if each.name == name)


def sums(messages: list[dict[str, Any]], body: dict[str, Any]) -> str:
    """Adds rightly, but for what is above 10."""
    one, other = map(int, messages[-1]["content"].split("+"))
    return f"That makes {min(one + other, 10)}."


def sum_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"{n}+{n}", "rule": "numeric", "expected": 2 * n} for n in range(count)]
