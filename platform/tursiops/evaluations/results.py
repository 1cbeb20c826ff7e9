"""What a run's folder holds, taken into the database and the file store. The folder outlives a killed worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
from django.conf import settings

from evaluation.schema import Finding, ResultDoc, read_result
from tursiops.core import store
from tursiops.evaluations import figures, specs
from tursiops.evaluations.models import MAX_FILE_NAME, ON_TARGET, Run, RunFile, Verdict

log = structlog.get_logger(__name__)

RESULT = "result.json"
MAX_FILES = 200
_WORST_FIRST = [Verdict.INVALID, Verdict.FAIL, Verdict.UNDETERMINED, Verdict.PASS]


def root() -> Path:
    return Path(settings.DATA_DIR) / "evaluations"


def folder(run: Run) -> Path:
    return root() / str(run.pk)


@dataclass(frozen=True)
class Taken:
    docs: dict[str, ResultDoc]  # by part
    verdict: str
    complete: bool
    reason: str


def take_in(run: Run, *, progress: Callable[[int], None] = lambda done: None) -> Taken:
    """Write the result documents, figures and files of a run's folder to its row; idempotent.

    Called at every end of an attempt, so that a cancelled or failed run keeps what it measured.
    """
    found = take_documents(run)
    _keep_files(run, progress)
    wanted = [part for part in specs.RUN_PARTS if run.suite_version.spec.get(part)]
    complete = all(part in found and found[part].state == "complete" for part in wanted)
    verdicts = {doc.verdict for doc in found.values()}
    verdict = next((one for one in _WORST_FIRST if one in verdicts), Verdict.UNDETERMINED)
    reason = " ".join(sentence(doc) for doc in found.values() if doc.verdict == verdict)
    return Taken(found, str(verdict), complete, reason)


def take_documents(run: Run) -> dict[str, ResultDoc]:
    """The result documents alone, by part: quick enough for the transaction that ends a lost run."""
    found = _documents(run)
    run.results = {part: msgspec.to_builtins(doc) for part, doc in found.items()}
    run.figures = {name: figure for doc in found.values() for name, figure in figures.of(doc).items()}
    run.save(update_fields=["results", "figures", "updated_at"])
    return found


def so_far(run: Run) -> dict[str, Any]:
    """The result documents by part; of a run that is at work here, as its child last wrote them."""
    if run.state not in ON_TARGET:
        return dict(run.results)
    return {part: msgspec.to_builtins(doc) for part, doc in _documents(run).items()}


def _documents(run: Run) -> dict[str, ResultDoc]:
    """Those that are there and can be read."""
    found = {}
    for part in specs.RUN_PARTS:
        path = folder(run) / part / RESULT
        try:
            found[part] = read_result(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, msgspec.DecodeError) as error:
            log.warning("evaluation.result_unreadable", run=str(run.pk), part=part, error=str(error))
    return found


def _keep_files(run: Run, progress: Callable[[int], None]) -> None:
    base = folder(run)
    paths = sorted(path for path in base.rglob("[!.]*") if path.is_file() and not path.is_symlink())
    for path in paths[:MAX_FILES]:
        name = path.relative_to(base).as_posix()
        if len(name) <= MAX_FILE_NAME:
            blob = store.put_file(path, link=False, progress=progress)  # it may still be written to
            RunFile.objects.update_or_create(run=run, name=name, defaults={"blob": blob})


def remove_folder(run: Run) -> None:
    shutil.rmtree(folder(run), ignore_errors=True)


def sentence(doc: ResultDoc) -> str:
    """What a result came to, in one line."""
    worst = next((finding for finding in findings(doc) if finding.severity == "error"), None)
    if doc.verdict == "invalid" and worst is not None:
        return f"The figures must not be used: {_sentence(worst.cause)}"
    if doc.capacity is not None and doc.capacity.low is not None:
        high = f"{doc.capacity.high:.3g}" if doc.capacity.high is not None else "more"
        return f"Capacity {doc.capacity.low:.3g} to {high} requests/s ({doc.capacity.decision})."
    for gate in doc.quality.gates if doc.quality is not None else []:
        if gate.blocks:
            return f"{gate.rule}: {_sentence(gate.reason or gate.decision)}"
    for level in doc.levels:
        for goal in level.objectives:
            if goal.decision == doc.verdict:
                return (
                    f"{goal.metric} at most {goal.limit_ms:g} ms: missed by {goal.k} of {goal.n} requests, "
                    f"at most {100 * (1 - goal.quantile):.3g} % allowed."
                )
    if doc.quality is not None and not doc.quality.gates and worst is None:
        return "Nothing was asked of its quality: the suite has no gate for it."
    return _sentence(worst.cause) if worst is not None else ""


def nothing_failed(run: Run) -> bool:
    """Whether all that was asked of an ended run held. Of a quality part without gates nothing was asked."""
    docs = run.results.values()
    return bool(docs) and all(doc["verdict"] == Verdict.PASS or _asked_nothing(doc) for doc in docs)


def _asked_nothing(doc: dict[str, Any]) -> bool:
    quality = doc.get("quality")
    return quality is not None and not quality["gates"] and doc["verdict"] == Verdict.UNDETERMINED


def findings(doc: ResultDoc) -> list[Finding]:
    return [*doc.findings, *(finding for level in doc.levels for finding in level.findings)]


def _sentence(text: Any) -> str:
    said = str(text).strip()
    return said if not said or said[-1] in ".!?" else f"{said}."
