"""Why a choice is as it is, and what to know of a plan as a whole."""

from __future__ import annotations

from evaluation.planner.answers import Choice, Line
from evaluation.planner.candidates import Candidate
from evaluation.planner.constraints import Constraints
from evaluation.planner.hardware import GIB
from evaluation.planner.predict import Meets
from evaluation.planner.util_grid import Timing
from evaluation.profile import BusinessProfile
from evaluation.schema import Objective


def of_choice(
    candidate: Candidate, timing: Timing, verdicts: list[tuple[Objective, Meets]], needed: int, unshared: int
) -> list[Line]:
    """needed, unshared: bytes per GPU that the peak's KV cache takes with and without shared prefixes."""
    room = candidate.kv_room
    lines = [
        Line(
            code="kv_held",
            text=f"{room / GIB:.1f} GiB per GPU are left for the KV cache, and the peak needs {needed / GIB:.2f}.",
            values={"room": room, "needed": needed, "tokens": candidate.kv_tokens},
        )
    ]
    if unshared > room:
        lines.append(
            Line(
                code="kv_unshared_does_not_fit",
                text=f"If the prefix cache evicts, the peak needs {unshared / GIB:.2f} GiB, more than there is: "
                "requests will then wait.",
                values={"unshared": unshared, "room": room},
                severity="warning",
            )
        )
    if timing.grid is None:
        lines.append(
            Line(
                code="bound_only",
                text="Nothing was measured on this device: the figures are bounds only. Calibrate, or confirm by a "
                "load test.",
                values={"gpu": candidate.gpu.key},
                severity="warning",
            )
        )
    elif timing.basis == "transferred":
        lines.append(
            Line(
                code="transferred",
                text=f"Timed with {timing.grid.model}, not with this model or layout: the intervals are wide.",
                values={"gpu": candidate.gpu.key, "model": timing.grid.model},
                severity="warning",
            )
        )
    return lines + [_verdict(objective, verdict) for objective, verdict in verdicts]


def of_plan(
    choices: list[Choice], profile: BusinessProfile, asked: Constraints, assumed_e2el_s: float | None
) -> list[Line]:
    """assumed_e2el_s: where the profile has no objective to count requests in flight with."""
    lines = []
    if not choices:
        text = "No candidate serves this profile; see why each was rejected."
        lines.append(Line(code="nothing_fits", text=text, severity="error"))
    elif choices[0].meets == "no":
        text = "No candidate keeps the objectives at the peak, not even at the fast end."
        lines.append(Line(code="nothing_meets", text=text, severity="error"))
    if assumed_e2el_s is not None:
        lines.append(
            Line(
                code="e2el_assumed",
                text=f"The profile has no E2EL objective: requests in flight are counted with {assumed_e2el_s:g} s.",
                values={"e2el_s": assumed_e2el_s},
                severity="warning",
            )
        )
    if not profile.slo:
        text = "The profile has no objective: only memory and rates are planned."
        lines.append(Line(code="no_objective", text=text, severity="warning"))
    if not asked.prices:
        text = "No prices were given: the order is by GPUs and their memory, not by cost."
        lines.append(Line(code="no_prices", text=text))
    if choices:
        text = "A plan counts once its load test has confirmed it: `tursiops-eval plan confirm`."
        lines.append(Line(code="confirm", text=text))
    return lines


def _verdict(objective: Objective, verdict: Meets) -> Line:
    asked = f"{objective.metric.upper()} P{objective.quantile * 100:g} ≤ {objective.limit_ms:g} ms"
    return Line(
        code=f"objective_{verdict}",
        text=f"{asked}: {verdict}.",
        values={"metric": objective.metric, "quantile": objective.quantile, "limit_ms": objective.limit_ms},
        severity="error" if verdict == "no" else "info",
    )
