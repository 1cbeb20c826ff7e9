"""What makes a score suspicious: findings beside it, because a broken set-up looks like a weak model."""

from __future__ import annotations

from typing import Any, Literal

from evaluation.quality.results import Sample, TaskResult
from evaluation.schema import Finding

LEAST = 10
"""Items below which a share says nothing."""

CUT_SHARE = 0.1


def alarms(task: TaskResult, samples: list[Sample]) -> list[Finding]:
    """Of one task, with the samples that its figures rest on."""
    found: list[Finding] = []

    def add(severity: Literal["warning", "error"], code: str, cause: str, remedy: str, **evidence: Any) -> None:
        found.append(
            Finding(code=code, severity=severity, cause=cause, remedy=remedy, evidence={"task": task.name, **evidence})
        )

    if task.errors:
        told = f"{task.errors} of {task.items} items of {task.name} have no answer; no figure holds them."
        remedy = "Read the samples' errors, mend the cause, and run again with --resume."
        add("error", "items_without_answer", told, remedy, errors=task.errors, items=task.items)
    figure = task.figures.get(task.primary)
    if figure is None or figure.value is None or figure.n < LEAST:
        return found
    seen = {"score": figure.value, "n": figure.n}
    if task.chance is not None and figure.low is not None and figure.low <= task.chance:
        told = f"{task.name} scores {figure.value:.3g}, and {task.chance:.3g} by guessing lies in its interval."
        remedy = "Look at the samples, the chat template and the BOS policy before the model is blamed."
        bos = task.policy.get("bos")
        add("warning", "chance_level", told, remedy, **seen, chance=task.chance, low=figure.low, bos=bos)
    if figure.unit == "share" and figure.value == 0:
        told = f"Not one of {figure.n} items of {task.name} is right."
        remedy = "Read some answers: a template, a rule or a limit of tokens may be at fault."
        add("warning", "nothing_right", told, remedy, **seen)
    answers = [each for each in samples if not each.error and "finish_reason" in each.data]
    empty = sum(not each.answer.strip() for each in answers)
    if empty > CUT_SHARE * len(answers):
        told = f"{empty} of {len(answers)} answers of {task.name} are empty."
        add("warning", "empty_answers", told, "The chat template or a stop text may end them at once.", count=empty)
    cut = sum(each.data["finish_reason"] == "length" for each in answers)
    if cut > CUT_SHARE * len(answers):
        told = f"{cut} of {len(answers)} answers of {task.name} were cut at max_tokens."
        add("warning", "cut_answers", told, "Raise max_tokens of the task, or ask for shorter answers.", count=cut)
    return found
