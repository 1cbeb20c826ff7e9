"""`tursiops-eval confirm FOLDER`: two fresh runs test a search's answer: below it must pass, above it must fail."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evaluation.commands import FAIL, INCOMPLETE, PASS
from evaluation.commands.run import REFUSALS, check_unused, refuse, until_signal
from evaluation.progress import Reporter, reporter
from evaluation.report import files
from evaluation.runner.run import Run, RunError
from evaluation.schema import Rate, ResultDoc, RunSpec, Search

if TYPE_CHECKING:
    from evaluation.commands import Commands

BELOW, ABOVE = 0.9, 1.15  # x the certified interval's ends


def register(commands: Commands) -> None:
    parser = commands.add_parser("confirm", help="test a search's answer by two fresh runs, below and above it")
    parser.add_argument("folder", type=Path, help="of a search with a certified interval")
    parser.add_argument("--progress", choices=["auto", "text", "json"], default="auto")
    parser.set_defaults(action=confirm)


def confirm(arguments: argparse.Namespace) -> int:
    report = reporter(arguments.progress)
    try:
        return carry_out(arguments.folder, report)
    except REFUSALS as error:
        return refuse(error, report)


def rates(result: ResultDoc) -> dict[str, float]:
    """requests/s by the decision that is expected there. Raises RunError."""
    answer = result.capacity
    if result.spec is None or answer is None or answer.low is None or answer.high is None:
        raise RunError("no_interval", "the folder's result has no certified interval", "Give the folder of a search.")
    return {"pass": BELOW * answer.low, "fail": ABOVE * answer.high}


def carry_out(folder: Path, report: Reporter) -> int:
    """The runs lie in the folder, as `confirm-pass` and `confirm-fail`."""
    searched = files.read(folder)
    outcome, lines = {}, []
    for expected, rate in rates(searched).items():
        assert searched.spec is not None
        out = folder / f"confirm-{expected}"
        check_unused(out)
        run = Run(at(searched.spec, rate), out, report)
        result = asyncio.run(until_signal(run.go(), run.interrupt)) or run.result
        if result.state != "complete":
            report.report({"state": "incomplete", "lines": ["interrupted"]}, "ok")
            return INCOMPLETE
        decision = result.levels[-1].decision
        outcome[expected] = {"rate": rate, "decision": decision, "verdict": result.levels[-1].verdict}
        lines.append(f"{rate:.4g} requests/s: {decision}, expected {expected}")
    confirmed = all(found["decision"] == expected for expected, found in outcome.items())
    lines.append("confirmed" if confirmed else "not confirmed")
    report.report({"confirmed": confirmed, "runs": outcome, "lines": lines}, "ok" if confirmed else "failed")
    return PASS if confirmed else FAIL


def at(spec: RunSpec, rate: float) -> RunSpec:
    """The search's spec at one rate, with a seed of its own."""
    assert isinstance(spec.load, Search)
    load = Rate(rate=rate, arrivals=spec.load.arrivals, burstiness=spec.load.burstiness, states=spec.load.states)
    return msgspec.structs.replace(spec, load=load, seed=None)
