"""Timed steps out of a benchmark's file (docs/benchmarks, as `evaluation.benchmarks.engine_gpu` writes them)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import Struct

from evaluation.planner.util_grid import Measurement

_CASE = re.compile(r"^(?P<model>\S+) (?P<kind>decode|prefill|long|mixed) (?P<batch>\d+) × (?P<inputs>\d+)")
_OUTPUTS = re.compile(r"T\((\d+)\)")
STEP_TOKENS = 16_384
"""Budget of a step in `engine_gpu`'s runs (engine_cases.BATCHED)."""


class Rows(Struct, frozen=True):
    """device: name as the driver gives it; measurements by the case's name; rates: requests/s of mixed loads."""

    device: str
    commit: str
    versions: dict[str, str]
    measurements: dict[str, Measurement]
    rates: dict[str, float]


def read(path: Path, model: str, step_tokens: int = STEP_TOKENS) -> Rows:
    """Of one model's rows. Raises ValueError, which names the file, where it has none."""
    body = json.loads(path.read_text(encoding="utf-8"))
    measurements: dict[str, Measurement] = {}
    rates: dict[str, float] = {}
    for row in body.get("rows", ()):
        case = _CASE.match(row["case"])
        if case is None or case["model"] != model:
            continue
        batch, inputs = int(case["batch"]), int(case["inputs"])
        source = f"{path.name}: {row['case']}"
        if row["unit"] == "req/s":
            rates[row["case"]] = row["value"]
        elif row["unit"] == "ms" and case["kind"] == "prefill":
            measurements[row["case"]] = Measurement(
                kind="prefill", tokens=inputs, prompts=batch, seconds=row["value"] / 1e3, step_tokens=step_tokens,
                source=source,
            )  # fmt: skip
        elif row["unit"] == "ms" and (outputs := _OUTPUTS.search(row["metric"])):
            context = inputs + int(outputs[1]) / 2
            measurements[row["case"]] = Measurement(
                kind="decode", rows=batch, context=context, seconds=row["value"] / 1e3, source=source
            )
    if not measurements:
        raise ValueError(f"{path}: no decode or prefill rows of {model!r}; give the name that its cases begin with")
    return Rows(body.get("device", ""), body.get("commit", ""), body.get("versions", {}), measurements, rates)
