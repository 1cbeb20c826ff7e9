"""How far a job is, as its page shows it: from what its child says and measures. Nothing of it is stored twice."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.utils import timezone

from tursiops.jobs.models import Job, JobMetric, JobState

MADE = 0.7  # of the progress bar: the optimizer's child
TAKEN = 0.73  # the files are in the store and read
BASE_MEASURED = 0.85
MEASURING = "measuring"
"""A metric of the job, told when its files are made: measuring goes on at a pace of its own."""
_LAYER = re.compile(r"layer (\d+) of (\d+)")
_PHASES = (
    ("environment", "environment"),
    ("calibra", "calibrate"),
    *((word, "quantize") for word in ("train", "layer", "embedding")),
    ("writ", "write"),
)
FIGURES = {"layer_loss": "loss", "layer_sqnr_db": "sqnr_db"}
"""Metrics of the built-in optimizer, a step for each layer → figures of a layer."""


def shown(job: Job) -> dict[str, Any] | None:
    """None before the child has said something, and after the end."""
    if job.state not in (JobState.RUNNING, JobState.CANCELLING) or not job.progress_text:
        return None
    metrics = list(_metrics(job))
    latest = {name: value for name, value, _ in metrics}
    found = _LAYER.search(job.progress_text)
    elapsed = _seconds_since(job.started_at)
    layers = int(found[2]) if found else 0
    return {
        "phase": _phase(job),
        "layer": job.progress_text,
        "layers_done": int(latest.get("layers_done") or latest.get("resumed_at") or 0),
        "layers": layers,
        "loss": latest.get("layer_loss"),
        "fallbacks": int(latest.get("fallbacks") or 0),
        "elapsed_s": round(elapsed, 1),
        "eta_s": _left(job.progress, elapsed, layers, metrics),
        "resumed_at": int(latest.get("resumed_at") or 0),
    }


def _seconds_since(when: datetime | None) -> float:
    return (timezone.now() - when).total_seconds() if when else 0.0


def _left(share: float, elapsed: float, layers: int, metrics: list[tuple[str, float, datetime]]) -> float | None:
    """Seconds, where the rest goes as what was done did; None while too little is done to tell. Measuring has a pace of
    its own. So have layers behind those of an earlier attempt, which the text only runs through."""
    found = {name: (value, at) for name, value, at in metrics}
    if MEASURING in found:
        share, elapsed = (share - MADE) / (1 - MADE), _seconds_since(found[MEASURING][1])
    elif "resumed_at" in found and found["resumed_at"][0] > 0:
        made = [at for name, value, at in metrics if name == "layers_done" and at > found["resumed_at"][1]]
        if len(made) < 2 or not layers:
            return None
        pace = (made[-1] - made[0]).total_seconds() / (len(made) - 1)
        return round(pace * layers * (1 - share) / MADE, 1)
    return round(elapsed * (1 - share) / share, 1) if share > 0.02 else None


def layers(job: Job) -> list[dict[str, Any]]:
    """Those that the job has told of so far; of an earlier attempt, too."""
    found: dict[int, dict[str, Any]] = {}
    metrics = JobMetric.objects.filter(job=job, name__in=FIGURES, step__isnull=False).order_by("pk")
    for metric in metrics:
        step = int(metric.step or 0)
        found.setdefault(step, {"index": step, "name": f"layers.{step}"})[FIGURES[metric.name]] = metric.value
    return [found[step] for step in sorted(found)]


def _metrics(job: Job) -> Any:
    """(name, value, when), the newest last; of this attempt."""
    rows = JobMetric.objects.filter(job=job, created_at__gte=job.started_at).order_by("pk")
    return rows.values_list("name", "value", "created_at")


def _phase(job: Job) -> str:
    if job.progress >= BASE_MEASURED:
        return "evaluate"
    if job.progress >= TAKEN:
        return "evaluate_base"
    if job.progress >= MADE:
        return "write"
    text = job.progress_text.lower()
    return next((phase for word, phase in _PHASES if word in text), "prepare")
