"""Is a version good enough? Its figures against the limits that were asked, and what that stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tursiops.core.moves import Move, Refusal
from tursiops.jobs.models import Job, JobState
from tursiops.quantization.asked import BETTER
from tursiops.quantization.models import Verdict

KIND = "quantization.make"
_NAMES = {
    "perplexity_ratio": "The perplexity is {value:.4g} × the base's",
    "same_top": "The likeliest token is the base's in {value:.2%} of places",
    "kl": "The KL divergence is {value:.3g} nats per token",
    "fallbacks": "{value:.0f} products were not made as asked",
    "gap_recovery": "Training won back {value:.1%} of what rounding lost",
}
_LIMITS = {
    "perplexity_ratio": "{:.4g} ×",
    "same_top": "{:.2%}",
    "kl": "{:.3g}",
    "fallbacks": "{:.0f}",
    "gap_recovery": "{:.0%}",
}


def judged(
    gate: Mapping[str, float], figures: Mapping[str, Any], own: Sequence[Mapping[str, Any]] = ()
) -> tuple[Verdict, list[dict[str, Any]], str]:
    """Verdict, a rule for each limit, and a sentence for people. A figure that was not measured is an error, never a
    pass: a limit on it was asked for. own: rules that the optimizer's child has judged by itself; no gate takes one
    away."""
    rules = [_rule(name, gate[name], figures.get(name)) for name in BETTER if name in gate]
    rules += [dict(rule) for rule in own]
    missing = [rule["metric"] for rule in rules if rule["value"] is None]
    failed = [rule for rule in rules if rule["value"] is not None and not rule["passed"]]
    if failed:
        return Verdict.FAILED, rules, "Failed its gate. " + " ".join(_told(rule) for rule in failed)
    if missing:
        return Verdict.ERROR, rules, f"No verdict: {', '.join(missing)} could not be measured."
    return Verdict.PASSED, rules, _summary(figures)


def _rule(name: str, limit: float, value: float | None) -> dict[str, Any]:
    better = BETTER[name]
    passed = value is not None and (value <= limit if better == "lower" else value >= limit)
    return {"metric": name, "value": value, "limit": limit, "better": better, "passed": passed}


def _told(rule: dict[str, Any]) -> str:
    side = "at most" if rule["better"] == "lower" else "at least"
    metric = rule["metric"]
    value = _NAMES.get(metric, f"{metric} is {{value:.4g}}").format(value=rule["value"])
    return f"{value}; {side} {_LIMITS.get(metric, '{:.4g}').format(rule['limit'])} is asked."


def _summary(figures: Mapping[str, Any]) -> str:
    ratio, same = figures.get("perplexity_ratio"), figures.get("same_top")
    if ratio is None or same is None:
        return "Made; nothing was asked of it."
    return f"Perplexity {ratio:.4g} × the base's, the same likeliest token in {same:.1%} of places."


def refusals(move: Move) -> list[Refusal]:
    """This app's check of core.moves: a version that failed its gate is not moved to. By the job that made it, which
    stays where the base, and with it the row, has been deleted."""
    jobs = Job.objects.filter(kind=KIND, subject_type="version", subject_id=move.version_id, state=JobState.REJECTED)
    job = jobs.order_by("-created_at").first()
    if job is None:
        return []
    rules = job.report["rules"]
    how = "failed the gate of its quantization" if job.report["verdict"] == Verdict.FAILED else "has no verdict"
    told = " ".join(_told(rule) for rule in rules if rule["value"] is not None and not rule["passed"])
    message = f"{move.version_label} {how}. {told}".strip()
    hint = "Keep its most sensitive layers in 16 bits and make it again, or choose another scheme."
    return [Refusal(message, hint, {"code": "quantization", "job": str(job.pk), "rules": rules})]
