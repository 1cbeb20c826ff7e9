"""`tursiops-eval run SPEC`: a load test, a search or a quality suite, into a folder."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evaluation.client.pool import SenderDied
from evaluation.client.target import EndpointError
from evaluation.commands import ERROR, FAIL, INCOMPLETE, PASS, UNDETERMINED
from evaluation.progress import Lines, Reporter, reporter
from evaluation.quality.run import QualityRun
from evaluation.quality.sets import SetError
from evaluation.quality.suite import Suite, read_suite
from evaluation.report import files
from evaluation.runner.run import Run, RunError
from evaluation.schema import ResultDoc, RunSpec
from evaluation.spec_errors import SpecError, read_spec
from evaluation.workload.dedupe import DuplicatePrompts
from evaluation.workload.errors import DatasetError

if TYPE_CHECKING:
    from evaluation.commands import Commands

REFUSALS = (SpecError, SetError, DatasetError, DuplicatePrompts, EndpointError, SenderDied, RunError, files.ReportError)


def register(commands: Commands) -> None:
    parser = commands.add_parser("run", help="run a spec: load test, search or quality suite")
    parser.add_argument("spec", nargs="?", help="JSON file; - reads standard input")
    parser.add_argument("--resume", metavar="FOLDER", type=Path, help="go on with the run of this folder")
    add_output(parser)
    parser.set_defaults(action=run)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="default: runs/<time>")
    parser.add_argument(
        "--progress",
        choices=["auto", "text", "json"],
        default="auto",
        help="json: the job-child protocol of docs/contracts.md; auto: text on a terminal, else json",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit code. Whatever ends the run, the folder keeps what was measured."""
    report = reporter(arguments.progress)
    try:
        if (arguments.spec is None) == (arguments.resume is None):
            raise RunError(
                "no_spec", "give a spec, or --resume with the folder of a run", "tursiops-eval run spec.json"
            )
        folder = arguments.resume or arguments.out or default_folder()
        spec = _read(folder / "spec.json" if arguments.resume else arguments.spec)
        base = Path.cwd() if arguments.resume or arguments.spec == "-" else Path(arguments.spec).resolve().parent
        return carry_out(spec, folder, report, base=base, resumed=arguments.resume is not None)
    except REFUSALS as error:
        return refuse(error, report)


def carry_out(
    spec: RunSpec | Suite, folder: Path, report: Reporter, *, base: Path | None = None, resumed: bool = False
) -> int:
    """base: of the relative paths in a quality suite. Raises what `REFUSALS` lists."""
    folder = folder.resolve()
    if not resumed:
        check_unused(folder)
    if isinstance(spec, Suite):
        suite = QualityRun(spec, base or Path.cwd(), folder, report.progress)
        result = asyncio.run(until_signal(suite.run(), None)) or suite.doc
        files.write(folder, result)
    else:
        load = Run(spec, folder, report, files.read(folder) if resumed else None)
        result = asyncio.run(until_signal(load.go(), load.interrupt)) or load.result
    report.report(_summary(result, folder), "failed" if result.verdict == "fail" else "ok")
    if result.state != "complete":
        return INCOMPLETE
    if isinstance(report, Lines):
        return PASS  # the report has the verdict; a parent takes another code for a crash
    return {"pass": PASS, "fail": FAIL}.get(result.verdict, UNDETERMINED)


def check_unused(folder: Path) -> None:
    """Raises RunError where a run has written before."""
    if (folder / files.RESULT).exists():
        raise RunError("folder_used", f"{folder} holds a result", "Give another folder, or go on with it by --resume.")


def refuse(error: Exception, report: Reporter) -> int:
    hint = str(getattr(error, "hint", "") or getattr(error, "fix", ""))
    report.error(str(getattr(error, "code", "error")), str(error), hint)
    return ERROR


def default_folder() -> Path:
    return Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")


def _read(source: Path | str) -> RunSpec | Suite:
    """A quality suite is what has `tasks`. Raises SpecError."""
    try:
        data = sys.stdin.read() if source == "-" else Path(source).read_text()
    except OSError as error:
        raise SpecError("$", f"{source} can't be read: {error.strerror}", "Give the path of a JSON file") from error
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise SpecError("$", f"this is not JSON: {error}", "Write the run as one JSON object") from error
    if isinstance(raw, dict):
        raw.pop("v", None)  # of the job-child protocol
        if "tasks" in raw:
            return read_suite(raw)
    return read_spec(raw)


async def until_signal(work: Coroutine[Any, Any, ResultDoc], interrupt: Callable[[], None] | None) -> ResultDoc | None:
    """SIGINT and SIGTERM end the work in an orderly way; None: it was cancelled, and has saved what it had."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt or task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def _summary(result: ResultDoc, folder: Path) -> dict[str, Any]:
    """The report's data: the verdict and where the whole stands."""
    capacity = result.capacity
    lines = [f"verdict: {result.verdict} ({result.state}); {folder}/report.html"]
    if capacity is not None:
        low, high = (f"{value:.4g}" if value is not None else "?" for value in (capacity.low, capacity.high))
        lines.insert(0, f"capacity: between {low} and {high} requests/s, {capacity.decision}")
    found = [*result.findings, *(finding for level in result.levels for finding in level.findings)]
    lines += [f"{finding.severity}: {finding.code}: {finding.cause} {finding.remedy}" for finding in result.findings]
    return {
        "id": result.id,
        "kind": result.kind,
        "state": result.state,
        "verdict": result.verdict,
        "capacity": msgspec.to_builtins(capacity),
        "findings": sorted({finding.code for finding in found}),
        "folder": str(folder),
        "lines": lines,
    }
