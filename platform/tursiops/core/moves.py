"""The one place where a version goes from tried to used: an alias that moves, a deployment that rolls out.

Apps register checks here; each may refuse. An admin of the team may go past refusals, with a reason that is audited.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from django.db import transaction

from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.core.permissions import Action, may
from tursiops.core.registry import Point

if TYPE_CHECKING:
    from tursiops.accounts.models import Team

checks = Point("move check")  # functions that take a Move and give a list of Refusals


@dataclass(frozen=True)
class Move:
    """`subject`: the model whose alias moves, or the deployment that rolls out."""

    kind: Literal["alias", "rollout"]
    team: Team
    subject_id: uuid.UUID
    subject_name: str
    version_id: uuid.UUID  # what it moves to
    version_label: str
    alias: str = ""

    @property
    def subject_type(self) -> str:
        return "model" if self.kind == "alias" else "deployment"

    def __str__(self) -> str:
        if self.kind == "alias":
            return f"moving {self.alias} of {self.subject_name} to {self.version_label}"
        return f"rolling {self.version_label} out to {self.subject_name}"


@dataclass(frozen=True)
class Refusal:
    message: str  # names the gate, the run, the figure with its value, and the limit
    hint: str  # what to do
    detail: dict[str, Any] = field(default_factory=dict)  # gate, run, figure, value, limit: for programs


def refusals(move: Move) -> list[Refusal]:
    """What every registered check says against the move; empty: it may go on."""
    return [refusal for name in checks.names() for refusal in checks.get(name)(move)]


def allow(move: Move, *, actor: Actor, override: str = "") -> None:
    """Call before the transaction that moves: a refusal is an event that must outlive the error.

    `override`: an admin's reason for going past refusals. Raises Conflict (code gate_not_met) with a sentence per
    refusal in `fields.gates`, or TursiopsError (403) where someone else than an admin gives a reason.
    """
    found = refusals(move)
    if not found:
        return
    if override:
        if actor.user is None or not may(actor.user, Action.ADMIN, move.team):
            raise _NotAdmin("Only an admin of the team goes past a gate.", hint="Ask one, or meet the gate.")
        _record(move, actor, "move.overridden", f"{actor.name} went past a gate, {move}: {override}", found, override)
        return
    first = found[0]
    _record(move, actor, "move.refused", f"A gate stopped {move}. {first.message}", found)
    more = f" And {len(found) - 1} more." if len(found) > 1 else ""
    raise Conflict(
        f"{first.message}{more}",
        hint=f"{first.hint} An admin may go past it with a reason (override).",
        code="gate_not_met",
        fields={"gates": [item.message for item in found]},
    )


class _NotAdmin(TursiopsError):
    status = 403
    code = "permission_denied"


@transaction.atomic
def _record(move: Move, actor: Actor, kind: str, text: str, found: list[Refusal], override: str = "") -> None:
    told = [asdict(item) for item in found]
    record_change(
        team=move.team,
        actor=actor,
        kind=kind,
        subject_type=move.subject_type,
        subject_id=move.subject_id,
        text=text,
        payload={
            "id": str(move.subject_id),
            "move": str(move),
            "alias": move.alias,
            "version": str(move.version_id),
            "refusals": told,
        },
        changes={"move": str(move), "override": override, "refusals": told},
    )
