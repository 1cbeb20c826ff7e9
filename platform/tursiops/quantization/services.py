"""Every change of quantizations: started, and what a job's states mean for them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from django.db import transaction

from tursiops.core.audit import Actor, record_change
from tursiops.jobs import services as jobs
from tursiops.jobs.models import ENDED, Job, JobState
from tursiops.quantization import traffic
from tursiops.quantization.asked import Asked, Choice
from tursiops.quantization.models import Quantization, Verdict
from tursiops.quantization.plans import require_plan
from tursiops.quantization.verdicts import KIND
from tursiops.registry import services as registry
from tursiops.registry.models import LineageEdge, LineageKind, SourceKind, Version, VersionState

JUDGE = Actor("quantization")


def quantize(*, base: Version, actor: Actor, asked: Asked, idempotency_key: str | None = None) -> list[Quantization]:
    """Start a job for each scheme; each makes the next version of the base's model. All are started, or none.

    The caller has seen that base and corpus are of his team. Raises TursiopsError naming the fields, or Conflict for a
    base that is not ready.
    """
    team = base.model.team
    keys = [f"{idempotency_key}#{index}" if idempotency_key else None for index in range(len(asked.choices))]
    if idempotency_key:
        past = Quantization.objects.filter(job__team=team, job__idempotency_key__in=keys).select_related("job", "base")
        if found := list(past.order_by("created_at")):
            return found
    require_plan(base, asked)
    if asked.calibration.source == "gateway":
        corpus = traffic.as_corpus(team, actor)
        asked = replace(asked, calibration=replace(asked.calibration, corpus=corpus))
    with transaction.atomic():
        return [_start(base, actor, asked, choice, key) for choice, key in zip(asked.choices, keys, strict=True)]


def _start(base: Version, actor: Actor, asked: Asked, choice: Choice, key: str | None) -> Quantization:
    scheme, calibration = choice.scheme, asked.calibration.as_dict()
    recipe, gate = choice.recipe(asked.calibration), choice.limits(int(base.shape.get("parameters") or 0))
    version = registry.next_version(base.model, source_kind=SourceKind.JOB, source_ref=_about(base, scheme.label))
    job = jobs.enqueue_job(
        team=base.model.team,
        actor=actor,
        kind=KIND,
        title=f"Quantize {base} to {scheme.label}",
        spec={
            "base": str(base.pk),
            "optimizer": scheme.optimizer,
            "recipe": recipe,
            "corpus": calibration["corpus"],
            "gate": gate,
            "device": asked.device.key,
        },
        subject_type="version",
        subject_id=version.pk,
        idempotency_key=key,
    )
    if job.subject_id != version.pk:  # the same request, sent at the same time, came first
        version.delete()
        first: Quantization = Quantization.objects.select_related("job", "base").get(job=job)
        return first
    row: Quantization = Quantization.objects.create(
        base=base,
        version=version,
        job=job,
        optimizer=scheme.optimizer,
        scheme=scheme.name,
        scheme_label=scheme.label,
        recipe=recipe,
        calibration=calibration,
        gate=gate,
        device=asked.device.key,
        tp=asked.tp,
    )
    registry.version_making(version=version)
    _tell(row, actor, "quantization.started", f"{row} was started", {"recipe": recipe, "gate": gate})
    return row


def _about(base: Version, label: str) -> str:
    return f"{base}, {label}"[:500]


def on_state(job: Job) -> None:
    """Version and row follow their job, in the transaction of each change of its state. A cancelled job leaves no
    version; one that is taken up again gets one anew."""
    row = Quantization.objects.select_related("base__model__team", "version__model__team").filter(job=job).first()
    if row is None or (row.version is not None and row.version.state == VersionState.READY):
        return
    if job.state in (JobState.QUEUED, JobState.RUNNING):
        registry.version_making(version=row.version or _version_again(row, job))
    elif job.state == JobState.CANCELLED:
        _drop(row)
    elif job.state == JobState.ERRORED:
        if row.version is not None:
            registry.version_not_made(version=row.version, reason=job.reason or "The job errored.")
    elif job.state in ENDED and row.version is not None:  # succeeded, or rejected: made, and a limit was not kept
        registry.version_ready(version=row.version, report=job.report)
        _judge(row, job)


def _version_again(row: Quantization, job: Job) -> Version:
    about = _about(row.base, row.scheme_label)
    row.version = registry.next_version(row.base.model, pk=job.subject_id, source_kind=SourceKind.JOB, source_ref=about)
    row.save(update_fields=["version", "updated_at"])
    return row.version


def _drop(row: Quantization) -> None:
    version, row.version = row.version, None
    row.save(update_fields=["version", "updated_at"])
    if version is not None:
        registry.version_dropped(version=version, reason="its job was cancelled")


def _judge(row: Quantization, job: Job) -> None:
    """The verdict goes onto row, edge and version: who looks at one of them sees it."""
    assert row.version is not None
    row.verdict = job.report["verdict"]
    row.save(update_fields=["verdict", "updated_at"])
    if row.verdict in (Verdict.FAILED, Verdict.ERROR):
        registry.version_remark(version=row.version, remark=job.report["reason"])
    LineageEdge.objects.create(
        kind=LineageKind.QUANTIZED_FROM, parent=row.base, child=row.version, job=job, changes=_changes(row)
    )
    told = {"verdict": row.verdict, "rules": row.rules, "fallbacks": row.figures.get("fallbacks")}
    _tell(row, JUDGE, "quantization.judged", f"{row.version}: {job.report['reason']}", told)


def _changes(row: Quantization) -> dict[str, Any]:
    """What the lineage shows on the edge: {name: {before, after, unit}}."""
    before, after = row.base_figures, row.figures
    both = {
        "size": ("size_bytes", "bytes"),
        "memory": ("memory_bytes", "bytes"),
        "perplexity": ("perplexity", ""),
        "prefill": ("prefill_tokens_per_s", "tokens/s"),
        "decode": ("decode_tokens_per_s", "tokens/s"),
    }
    changes: dict[str, Any] = {"scheme": {"before": row.base.quantization, "after": row.scheme_label, "unit": ""}}
    changes |= {
        name: {"before": _rounded(before[figure]), "after": _rounded(after[figure]), "unit": unit}
        for name, (figure, unit) in both.items()
        if before.get(figure) is not None and after.get(figure) is not None
    }
    for name, figure, lossless, unit in (("same top", "same_top", 1.0, ""), ("KL", "kl", 0.0, "nats per token")):
        if after.get(figure) is not None:
            changes[name] = {"before": lossless, "after": _rounded(after[figure]), "unit": unit}
    changes["fallbacks"] = {"before": 0, "after": after.get("fallbacks", 0), "unit": "layers"}
    changes["verdict"] = {"before": "base", "after": row.verdict, "unit": ""}
    return changes


def _rounded(value: float) -> float:
    """To four digits; whole numbers stay whole."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _tell(row: Quantization, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None) -> None:
    subject: uuid.UUID = row.pk
    record_change(
        team=row.base.model.team,
        actor=actor,
        kind=kind,
        subject_type="quantization",
        subject_id=subject,
        text=text[:500],
        payload={
            "id": str(row.pk),
            "base": str(row.base_id),
            "version": str(row.version_id or ""),
            "scheme": row.scheme,
        },
        changes=changes,
    )
