"""Drafts: versions that guess tokens for a larger one. Which fit, and the edges `draft_for` that people draw.

A draft is a model with the vocabulary of its target, or a head (EAGLE-3, Medusa) that was trained on its hidden states.
What the files alone can't tell, the engine checks when it loads both, token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import NotFound, TursiopsError
from tursiops.registry import rows
from tursiops.registry.models import LineageEdge, LineageKind, Version, VersionState

MODEL = "draft"
"""Proposer that computes with a model of its own."""
HEADS = ("eagle3", "medusa")
"""Tasks of versions that are heads, and the proposers that compute with them."""


@dataclass(frozen=True)
class Misfit:
    code: str
    message: str
    hint: str


def proposer_of(draft: Version) -> str:
    task = draft.shape.get("task", "")
    return task if task in HEADS else MODEL


def misfit(draft: Version, target: Version) -> Misfit | None:
    """Why `draft` can't guess for `target`; None where nothing is known against it."""
    if draft.pk == target.pk:
        return Misfit("same_version", f"{draft} can't draft for itself.", "Choose a smaller model.")
    for each in (draft, target):
        if each.state != VersionState.READY:
            return Misfit("not_ready", f"{each} is {each.state}.", "Choose a version that is ready.")
    if target.shape.get("task", "generate") != "generate":
        return Misfit("not_generating", f"{target} generates nothing, so there is nothing to draft.", "")
    return _of_head(draft, target) if proposer_of(draft) in HEADS else _of_model(draft, target)


def _of_model(draft: Version, target: Version) -> Misfit | None:
    if draft.shape.get("task", "generate") != "generate":
        return Misfit("not_generating", f"{draft} generates nothing.", "Choose a model that generates.")
    if (found := _vocabulary(draft, target)) is not None:
        return found
    ours, theirs = (int(each.tokenizer.get("vocab_size") or 0) for each in (draft, target))
    if draft.format == target.format and ours != theirs:
        text = f"The tokenizer of {draft} has {ours:,} tokens and that of {target} {theirs:,}."
        return Misfit("vocabulary_differs", text, "Choose a draft of the same model family.")
    small, large = (int(each.shape.get("parameters", 0)) for each in (draft, target))
    if small >= large:
        text = f"{draft} has {small:,} parameters and {target} {large:,}: a draft must be the smaller one."
        return Misfit("not_smaller", text, "Choose a smaller model.")
    return None


def _of_head(draft: Version, target: Version) -> Misfit | None:
    ours, theirs = (int(each.shape.get("hidden", 0)) for each in (draft, target))
    if ours != theirs:
        text = f"{draft} was made for a hidden size of {ours:,} and {target} has {theirs:,}."
        return Misfit("hidden_size_differs", text, "Choose the head that was trained for this model.")
    return _vocabulary(draft, target)


def _vocabulary(draft: Version, target: Version) -> Misfit | None:
    ours, theirs = (int(each.shape.get("vocab", 0)) for each in (draft, target))
    if ours == theirs:
        return None
    text = f"{draft} has a vocabulary of {ours:,} tokens and {target} one of {theirs:,}."
    return Misfit("vocabulary_differs", text, "Choose a draft of the same model family.")


def fitting(target: Version, visible: QuerySet[Any]) -> list[dict[str, Any]]:
    """Versions of `visible` that fit: those that people have recorded first, then the smaller first."""
    recorded = set(
        LineageEdge.objects.filter(kind=LineageKind.DRAFT_FOR, parent=target).values_list("child_id", flat=True)
    )
    found = [row for row in visible.select_related("model") if misfit(row, target) is None]
    found.sort(key=lambda row: (row.pk not in recorded, int(row.shape.get("parameters", 0)), str(row)))
    return [_draft_row(row, target, row.pk in recorded) for row in found]


def _draft_row(draft: Version, target: Version, recorded: bool) -> dict[str, Any]:
    parameters, proposer = int(draft.shape.get("parameters", 0)), proposer_of(draft)
    whole = int(target.shape.get("parameters", 0))
    vocab, hidden = int(target.shape.get("vocab", 0)), int(target.shape.get("hidden", 0))
    head, same = f"A head for a hidden size of {hidden:,}.", f"The same vocabulary of {vocab:,} tokens."
    share = f"It has {parameters / whole:.0%} of the model's parameters." if whole else ""
    return {
        "version": str(draft.pk),
        "label": str(draft),
        "model": str(draft.model_id),
        "proposer": proposer,
        "parameters": parameters,
        "size_bytes": draft.size_bytes,
        "quantization": draft.quantization,
        "recorded": recorded,
        "reason": f"{same if proposer == MODEL else head} {share}".strip(),
    }


@transaction.atomic
def draft_add(*, draft: Version, target: Version, actor: Actor) -> None:
    """Record that `draft` guesses for `target`; once. Raises TursiopsError with the code of the misfit."""
    if (found := misfit(draft, target)) is not None:
        raise TursiopsError(found.message, hint=found.hint, code=found.code, fields={"draft": [found.message]})
    _, made = LineageEdge.objects.get_or_create(kind=LineageKind.DRAFT_FOR, parent=target, child=draft)
    if made:
        _tell(draft, target, actor, "version.draft_added", f"{draft} is a draft for {target}")


@transaction.atomic
def draft_remove(*, draft: Version, target: Version, actor: Actor) -> None:
    """Deployments that draft with it go on. Raises NotFound where nobody recorded it."""
    removed, _ = LineageEdge.objects.filter(kind=LineageKind.DRAFT_FOR, parent=target, child=draft).delete()
    if not removed:
        raise NotFound(f"{draft} is not recorded as a draft for {target}.")
    _tell(draft, target, actor, "version.draft_removed", f"{draft} is no longer a draft for {target}")


def _tell(draft: Version, target: Version, actor: Actor, kind: str, text: str) -> None:
    record_change(
        team=target.model.team,
        actor=actor,
        kind=kind,
        subject_type="version",
        subject_id=target.pk,
        text=text,
        payload=rows.version_row(target.pk),
        changes={"draft": str(draft.pk)},
    )
