"""A suite from its first question to its verdict, in a folder that holds at every moment what was measured.

spec.json, result.json (rewritten as items come in), samples/<task>.jsonl. Run again on the same folder, it asks only
what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from evaluation.quality import gates
from evaluation.quality.alarms import alarms
from evaluation.quality.choices import ChoicesMeasure
from evaluation.quality.consistency import ConsistencyMeasure
from evaluation.quality.endpoint import Connection, EndpointError
from evaluation.quality.judge import JudgeMeasure
from evaluation.quality.lm_eval_bridge import LmEvalMeasure
from evaluation.quality.measure import Context, Measure
from evaluation.quality.perplexity import PerplexityMeasure
from evaluation.quality.results import GateResult, QualityResult
from evaluation.quality.rules import RulesMeasure
from evaluation.quality.sets import BUNDLED
from evaluation.quality.suite import (
    AnyTask,
    Baseline,
    Choices,
    Consistency,
    Judge,
    LmEval,
    Perplexity,
    Rules,
    Suite,
    check_ready,
)
from evaluation.schema import Finding, ResultDoc, read_result

SAVE_S = 5.0
"""Between two writings of the result while items come in."""

KINDS: dict[type[AnyTask], Callable[[Any, Context], Measure[Any]]] = {
    Rules: RulesMeasure,
    Choices: ChoicesMeasure,
    Perplexity: PerplexityMeasure,
    Consistency: ConsistencyMeasure,
    Judge: JudgeMeasure,
    LmEval: LmEvalMeasure,
}
PATHS = ("data", "calibration", "include_path")
ENDS_ALL = ("endpoint_down", "no_key", "no_model")
"""Errors after which no other task is tried."""

Progress = Callable[[float, str], None]


class QualityRun:
    """progress: told the share done of the whole run, 0 … 1."""

    def __init__(self, suite: Suite, folder: Path, out: Path, progress: Progress) -> None:
        self.suite, self.folder, self.out = suite, folder, out
        self._progress = progress
        self._saved = 0.0
        self.doc = ResultDoc(
            id=uuid.uuid4().hex,
            kind="quality",
            request=msgspec.to_builtins(suite),
            seed=suite.seed,
            started_at=_now(),
            quality=QualityResult(suite=suite.name),
        )

    async def run(self) -> ResultDoc:
        """Raises SpecError or SetError before the first question. A cancelled run saves, and raises CancelledError."""
        check_ready(self.suite)
        self.out.mkdir(parents=True, exist_ok=True)
        self._same_run()
        connections: dict[str, Connection] = {}
        context = Context(self.suite, self.folder, self.out, connections)
        measures = [KINDS[type(task)](task, context) for task in self.suite.tasks]
        try:
            for measure in measures:
                measure.read()
            (self.out / "spec.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._placed())))
            await self._measure(measures, connections)
        except asyncio.CancelledError:
            self._finish(measures, cut=True)
            raise
        finally:
            for measure in measures:
                measure.close()
        self._finish(measures, cut=False)
        return self.doc

    def _placed(self) -> Suite:
        """The suite with whole paths: `--resume` reads it from another folder."""

        def whole(told: str) -> str:
            return (
                told if not told or told.startswith(BUNDLED) else str((self.folder / Path(told).expanduser()).resolve())
            )

        tasks = [
            msgspec.structs.replace(task, **{name: whole(getattr(task, name)) for name in PATHS if hasattr(task, name)})
            for task in self.suite.tasks
        ]
        gates = [
            msgspec.structs.replace(gate, baseline=whole(gate.baseline)) if isinstance(gate, Baseline) else gate
            for gate in self.suite.gates
        ]
        return msgspec.structs.replace(self.suite, tasks=tasks, gates=gates, baseline=whole(self.suite.baseline))

    def _same_run(self) -> None:
        """A folder's run goes on under its id."""
        path = self.out / "result.json"
        if path.is_file():
            with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
                old = read_result(path.read_bytes())
                if old.kind == "quality":
                    self.doc.id, self.doc.started_at = old.id, old.started_at

    async def _measure(self, measures: list[Measure[Any]], connections: dict[str, Connection]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            asked = {"endpoint": self.suite.endpoint, "reference": self.suite.reference, "judge": self.suite.judge}
            needed = {role for measure in measures for role in measure.roles}
            try:
                for role, endpoint in asked.items():
                    if endpoint is not None and role in needed:
                        connection = Connection(endpoint, self.suite.concurrency)
                        connections[role] = await stack.enter_async_context(connection)
            except EndpointError as error:
                self._failed("", error)
                return
            self.doc.environment = self._environment(connections)
            for place, measure in enumerate(measures):
                try:
                    await measure.run(self._part(measures, place))
                except EndpointError as error:
                    self._failed(measure.task.name, error)
                    if error.code in ENDS_ALL:
                        return
                self._save(measures)

    def _part(self, measures: list[Measure[Any]], place: int) -> Progress:
        def progress(share: float, text: str) -> None:
            self._progress((place + share) / len(measures), text)
            if time.monotonic() > self._saved + SAVE_S:
                self._save(measures)

        return progress

    def _environment(self, connections: dict[str, Connection]) -> dict[str, Any]:
        models = {role: {"url": each.url, "model": each.model} for role, each in connections.items()}
        return {"endpoints": models, "python": platform.python_version(), "platform": platform.platform()}

    def _failed(self, task: str, error: EndpointError) -> None:
        remedy = error.hint or "Read the engine's log; then run again with --resume."
        self.doc.findings.append(
            Finding(code=error.code, severity="error", cause=error.message, remedy=remedy, evidence={"task": task})
        )

    def _save(self, measures: list[Measure[Any]]) -> None:
        self.doc.quality = QualityResult(
            suite=self.suite.name,
            tasks=[part.result for measure in measures for part in measure.parts()],
        )
        self._write()

    def _write(self) -> None:
        part = self.out / "result.json.part"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self.doc)))
        part.replace(self.out / "result.json")
        self._saved = time.monotonic()

    def _finish(self, measures: list[Measure[Any]], *, cut: bool) -> None:
        self._save(measures)
        assert self.doc.quality is not None
        found = self.doc.quality
        begun = all(measure.total for measure in measures)
        whole = begun and not cut and all(task.state == "complete" for task in found.tasks)
        self.doc.state = "complete" if whole else "incomplete"
        self.doc.ended_at = _now()
        for part in (part for measure in measures for part in measure.parts()):
            self.doc.findings += [*part.findings, *alarms(part.result, part.samples)]
        found.gates = gates.decide(self.suite.gates, found, self.out, self.folder, self.suite.baseline)
        self.doc.verdict = verdict(found.gates)
        self._write()


def verdict(decided: list[GateResult]) -> Literal["pass", "fail", "undetermined", "invalid"]:
    """Of all gates that block: the worst of them. Without gates nothing was asked, so nothing passed."""
    blocking = [each.decision for each in decided if each.blocks]
    if "error" in blocking:
        return "invalid"
    if "fail" in blocking:
        return "fail"
    return "undetermined" if blocking or not decided else "pass"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
