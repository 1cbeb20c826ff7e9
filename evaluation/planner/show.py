"""A plan as text, for a terminal."""

from __future__ import annotations

from evaluation.planner.answers import Choice, Figure, Plan
from evaluation.planner.hardware import GIB


def text(plan: Plan) -> str:
    lines = [f"{plan.model} for {plan.profile}: peak {plan.summary['peak']:.2f} requests/s"]
    for index, choice in enumerate(plan.choices):
        mark = "→" if index == plan.recommended else " "
        lines += ["", f"{mark} {_head(choice)}", *(f"    {line}" for line in _body(choice))]
    lines += ["", *(f"{line.severity}: {line.text}" for line in plan.findings)]
    if not plan.choices:
        lines += [f"rejected: {line.text}" for line in plan.rejected]
    return "\n".join(lines)


def _head(choice: Choice) -> str:
    shape = f"TP {choice.tp}" + (f", PP {choice.pp}" if choice.pp > 1 else "")
    cost = "" if choice.cost_per_hour is None else f", {choice.cost_per_hour:.2f} per hour"
    return (
        f"{choice.gpus} × {choice.gpu_name} ({choice.replicas} instances, {shape}, {choice.scheme}{cost}): "
        f"meets the objectives: {choice.meets}; {choice.basis.replace('_', ' ')}"
    )


def _body(choice: Choice) -> list[str]:
    taken = sum(line.bytes for line in choice.memory)
    lines = [f"memory per GPU {taken / GIB:.1f} of {choice.usable / GIB:.1f} GiB"]
    lines += [f"  {line.part:<14}{line.bytes / GIB:8.2f} GiB  {line.source}" for line in choice.memory]
    lines += [f"  {_figure(figure)}" for figure in choice.figures]
    lines += [f"- {line.text}" for line in choice.reasons]
    if choice.pd is not None:
        lines.append(f"- prefill and decode apart: {'advised' if choice.pd.advised else 'not advised'}")
        lines += [f"  {line.text}" for line in choice.pd.reasons]
    return lines


def _figure(figure: Figure) -> str:
    value = "bound only" if figure.value is None else f"{figure.value:.4g}"
    return f"{figure.metric:<16}{value:>12}  {figure.low:.4g} … {figure.high:.4g} {figure.unit}  ({figure.source})"
