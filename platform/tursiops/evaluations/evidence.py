"""What a gate rests on is changed by admins alone: else a member could ask less of a version, or delete the run that
speaks against it."""

from __future__ import annotations

from tursiops.core.audit import Actor
from tursiops.core.errors import TursiopsError
from tursiops.core.permissions import Action, may
from tursiops.evaluations.models import Suite


class NotAdmin(TursiopsError):
    status = 403
    code = "permission_denied"


def require_admin(suite: Suite, actor: Actor, what: str) -> None:
    """`what`: the change, as "changes its spec". Raises NotAdmin where an enabled gate rests on the suite."""
    gate = suite.gates.filter(enabled=True).first()
    if gate is None or (actor.user is not None and may(actor.user, Action.ADMIN, suite.team)):
        return
    raise NotAdmin(
        f"The gate {gate.name} rests on {suite.name}: only an admin of the team {what}.",
        hint="Ask an admin of the team.",
    )
