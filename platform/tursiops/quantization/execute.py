"""The job kind `quantization.make`: the optimizer's child makes the files, the engine's measure base and version on
this machine, and the gate judges. Its folder outlives attempts: finished layers, finished files are not made again."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from engines.api import MeasuresVersions
from engines.protocol import ChildError
from evaluation.quality import sets
from tursiops.core import registry, store
from tursiops.jobs.kinds import JobKind
from tursiops.jobs.models import JobMetric
from tursiops.jobs.run import Cancelled, JobRun, Outcome
from tursiops.quantization import schemes, services
from tursiops.quantization.asked import BETTER
from tursiops.quantization.models import Quantization, Verdict
from tursiops.quantization.progress import BASE_MEASURED, MADE, MEASURING, TAKEN
from tursiops.quantization.verdicts import KIND, judged
from tursiops.registry import imports
from tursiops.registry.models import Corpus

ENGINE = "native"
HELD_OUT = "bundled:wikitext2"  # nothing of it is in the calibration texts that come with Tursiops
RESTARTS = 2  # of a child that was killed after it had finished more than its forerunner
MEASURED = frozenset(BETTER) - {"fallbacks"}  # figures of a gate that come from the engine's children


def run(run: JobRun) -> Outcome:
    row = Quantization.objects.select_related("base", "version").filter(job=run.job).first()
    if row is None or row.version is None:
        raise ChildError("version_gone", "the version was deleted", "Start it again.")
    folder = store.local().incoming(str(run.job.subject_id))
    try:
        began = time.monotonic()
        blobs = {file.name: file.blob for file in row.base.files.select_related("blob")}
        paths = imports.linked(blobs, _fresh(run.workdir / "base"))
        found = _made(run, row, folder, paths)
        JobMetric.objects.create(job=run.job, name=MEASURING, value=time.time())
        run.progress(MADE, "taking the files in")
        files = imports.taken_in(run, found, folder / "files")
        links = imports.linked(files, _fresh(run.workdir / "files"))
        command = registry.engine(ENGINE).inspect_command()
        facts = run.child(command, {"paths": links, "format": found["format"]}, span=(MADE, TAKEN)).data
        size = sum(blob.size for blob in files.values())
        before, after = _measured(run, row, found, (row.base.format, paths), (found["format"], links))
    except Cancelled:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    before = {"size_bytes": row.base.size_bytes, **before}
    fallbacks, options = len(found.get("fallbacks") or []), found.get("serve_options") or {}
    after = {"size_bytes": size, "fallbacks": fallbacks, "serve_options": options, **after}
    after["seconds"] = round(time.monotonic() - began, 1)
    verdict, rules, reason = judged(row.gate, after, found.get("rules") or [])
    row.report, row.base_figures, row.figures, row.rules = found, before, after, rules
    row.save(update_fields=["report", "base_figures", "figures", "rules", "updated_at"])
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        {
            "version": str(row.version.pk),
            "base": {"version": str(row.base.pk), "label": str(row.base)},
            "files": [{"name": name, "sha256": blob.sha256, "size": blob.size} for name, blob in files.items()],
            "format": found["format"],
            "revision": "",
            "license": row.base.license,
            "facts": facts,
            "verdict": verdict,
            "rules": rules,
            "figures": after,
            "reason": reason,
        },
        verdict="ok" if verdict == Verdict.PASSED else "failed",
    )


def _fresh(folder: Path) -> Path:
    """Of this attempt alone: a lost worker may have left links there."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


# -- making -------------------------------------------------------------------------------------------------------


def _made(run: JobRun, row: Quantization, folder: Path, paths: dict[str, str]) -> dict[str, Any]:
    """The optimizer's report; its files lie in `folder`/files. An earlier attempt's are taken where all are there.

    Raises ChildError.
    """
    told, staging = folder / "report.json", folder / "files"
    if (found := _finished(told, staging)) is not None:
        run.log.write("the files of an earlier attempt are whole")
        return found
    shutil.rmtree(staging, ignore_errors=True)
    spec = {
        "recipe": row.recipe,
        "paths": paths,
        "format": row.base.format,
        "calibration": _corpus_path(row),
        "workdir": str(folder / "work"),
        "staging": str(staging),
    }
    found = _through_kills(run, schemes.made_by(row.optimizer).command(), spec, folder / "work")
    part = told.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(told)
    return found


def _through_kills(run: JobRun, command: list[str], spec: dict[str, Any], work: Path) -> dict[str, Any]:
    """The child's report. One that is killed goes on at its last finished layer, as long as it comes further: what is
    out of memory in one layer would be so again."""
    for _ in range(RESTARTS):
        before = _files_in(work)
        try:
            return run.child(command, spec, span=(0.0, MADE)).data
        except ChildError as error:
            if error.code != "crashed" or _files_in(work) <= before:
                raise
            how, _, _ = error.message.partition(". ")  # what follows are its last words, which the log has
            run.log.write(f"{how.removesuffix('.')}. Going on from what it had finished.")
    return run.child(command, spec, span=(0.0, MADE)).data


def _files_in(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file() and path.suffix != ".part")


def _finished(told: Path, staging: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(told.read_text())
        whole = all((staging / item["name"]).stat().st_size == item["size"] for item in found["files"])
    except (OSError, ValueError, KeyError):
        return None
    return found if whole else None


def _corpus_path(row: Quantization) -> str:
    """Of the calibration text; "" for the optimizer's own."""
    if not row.calibration["corpus"]:
        return ""
    corpus = Corpus.objects.filter(pk=row.calibration["corpus"]).first()
    if corpus is None:
        raise ChildError("corpus_gone", "the corpus was deleted", "Upload it again.")
    return str(store.path_of(corpus.blob_id))


# -- measuring ----------------------------------------------------------------------------------------------------


def _measured(
    run: JobRun,
    row: Quantization,
    found: dict[str, Any],
    base: tuple[str, dict[str, str]],
    made: tuple[str, dict[str, str]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of base and version, one after the other on this machine. Raises ChildError where one can't be measured
    and a limit is on it: another attempt, perhaps on another machine, only measures. Where nothing is asked of it, the
    log tells, and the version is there all the same."""
    engine = registry.engine(ENGINE)
    if not isinstance(engine, MeasuresVersions):
        run.log.write(f"the engine {ENGINE} of this installation measures nothing")
        return {}, {}
    reference = str(run.workdir / "reference.npy")
    text = str(sets.source(HELD_OUT, run.workdir).path)
    common = {"device": "auto", "text": text}
    options = found.get("serve_options") or {}
    sides = (
        ("the base", base, {**common, "keep": reference}, (TAKEN, BASE_MEASURED)),
        ("the version", made, {**common, "reference": reference, "options": options}, (BASE_MEASURED, 1.0)),
    )
    figures: list[dict[str, Any]] = []
    for name, (format, paths), spec, span in sides:
        run.log.write(f"measuring {name}")
        model = {"format": format, "paths": paths, "dtype": ""}
        try:
            told = run.child(engine.measure_command(), {**spec, "model": model}, span=span).data
        except ChildError as error:
            run.log.write(f"not measured: {error.message} {error.hint}".strip())
            if MEASURED.intersection(row.gate):
                raise
            return (figures[0] if figures else {}), {"not_measured": error.message}
        figures.append(_figures(told))
        run.log.write(f"{name}, {told['dtype']} on {told['device']}: {_said(figures[-1])}")
    before, after = figures
    if before["perplexity"] and after["perplexity"]:
        after["perplexity_ratio"] = after["perplexity"] / before["perplexity"]
    return before, after


def _said(figures: dict[str, Any]) -> str:
    told = {"perplexity": "perplexity", "decode_tokens_per_s": "tokens/s decoded", "kl": "nats of KL per token"}
    return ", ".join(f"{figures[name]:.4g} {unit}" for name, unit in told.items() if figures.get(name) is not None)


def _figures(told: dict[str, Any]) -> dict[str, Any]:
    agreement = told.get("agreement") or {}
    return {
        "memory_bytes": told["weights"],
        "process_bytes": told["process"],
        "prefill_tokens_per_s": told["prefill"],
        "decode_tokens_per_s": told["decode"],
        "perplexity": told["perplexity"],
        "tokens": told["tokens"],
        "bos": told["bos"],
        "measured_on": told["device"],
        "dtype": told["dtype"],
        **(
            {"same_top": agreement["same_top"], "kl": agreement["kl"], "kl_p99": agreement["kl_p99"]}
            if agreement
            else {}
        ),
    }


def kind() -> JobKind:
    return JobKind(
        name=KIND,
        label="Quantize",
        run=run,
        alone=True,  # they share the processors or the GPU and the memory, and would measure the speed of both
        on_state=services.on_state,
        spec_schema={
            "type": "object",
            "properties": {
                "base": {"type": "string"},
                "optimizer": {"type": "string"},
                "recipe": {"type": "object"},
                "corpus": {"type": "string"},
                "gate": {"type": "object"},
                "device": {"type": "string"},
            },
            "required": ["base", "optimizer", "recipe", "corpus", "gate", "device"],
            "additionalProperties": False,
        },
    )
