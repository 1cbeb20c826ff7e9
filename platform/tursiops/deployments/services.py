"""Changes that people make to deployments. Each writes the desired state, its audit entry and its event at once;
the controller and the nodes do the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Max

from tursiops.accounts.models import Team
from tursiops.core import moves
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, NotFound, TursiopsError
from tursiops.deployments.checks import check_name, check_replicas, check_revision
from tursiops.deployments.estimate import Estimate, estimate
from tursiops.deployments.models import Deployment, Desired, Instance, InstanceState, Revision
from tursiops.deployments.refusals import refuse
from tursiops.deployments.rows import deployment_row
from tursiops.fleet import wake
from tursiops.registry.models import Version

REVISION_FIELDS = (
    "version",
    "draft_version",
    "engine",
    "topology",
    "device",
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "kv_cache_bytes",
    "node_name",
    "gpu_indices",
    "options",
)
"""What an edit of restarts the instances; name, description and replicas do not."""


@dataclass(frozen=True)
class Updated:
    deployment: Deployment
    restarts: list[str]  # fields whose change restarts the instances, one after another


def deployment_create(
    *,
    team: Team,
    actor: Actor,
    name: str,
    replicas: dict[str, int],
    description: str = "",
    force: bool = False,
    override: str = "",
    **revision: Any,
) -> Deployment:
    """`revision`: REVISION_FIELDS, `version` among them. Refused where no replica can ever fit, unless `force`, and
    where a gate stops the version, unless an admin gives a reason (`override`)."""
    check_name(team, name)
    fresh = Revision(number=1, created_by=actor.user, **revision)
    engine = check_revision(fresh)
    check_replicas(replicas, engine.capabilities())
    if not force:
        _refuse_hopeless(estimate(revision=fresh, replicas=replicas, served_name=name))
    deployment = Deployment(team=team, name=name, description=description, replicas=replicas, created_by=actor.user)
    moves.allow(rollout_move(deployment, fresh.version), actor=actor, override=override)
    try:
        with transaction.atomic():
            deployment.save(force_insert=True)
            fresh.deployment = deployment
            fresh.save()
            deployment.current = fresh
            deployment.save(update_fields=["current"])
            _record(deployment, actor, "deployment.created", f"Deployment {name} was created.", _values(fresh))
    except IntegrityError as error:  # two people chose the name at once
        raise refuse("name", f"{name!r} is taken in this team.", "Choose another name.") from error
    return deployment


def deployment_update(
    *,
    deployment: Deployment,
    actor: Actor,
    description: str | None = None,
    replicas: dict[str, int] | None = None,
    force: bool = False,
    override: str = "",
    **revision: Any,
) -> Updated:
    """Change what is given. A changed revision field makes the next revision, which rolls out.

    `override`: an admin's reason for going past a gate that stops another version. A rollback meets no gate: nobody
    is kept on a revision that fails.
    """
    version = revision.get("version")
    if version is not None and deployment.current is not None and deployment.current.version_id != version.pk:
        moves.allow(rollout_move(deployment, version), actor=actor, override=override)
    with transaction.atomic():
        row = _locked(deployment)
        before = _current(row)
        changed = {name: value for name, value in revision.items() if getattr(before, name) != value}
        fresh = _next_revision(row, before, changed, actor) if changed else before
        engine = check_revision(fresh)
        wanted = row.replicas if replicas is None else replicas
        check_replicas(wanted, engine.capabilities())
        if changed and not force:
            replaced = list(row.instances.values_list("pk", flat=True))
            _refuse_hopeless(estimate(revision=fresh, replicas=wanted, served_name=row.name, replaces=replaced))
        changes = {name: [_plain(getattr(before, name)), _plain(value)] for name, value in changed.items()}
        if changed:
            fresh.save()
            row.current = fresh
        for name, value in (("description", description), ("replicas", replicas)):
            if value is not None and value != getattr(row, name):
                changes[name] = [getattr(row, name), value]
                setattr(row, name, value)
        if changes:
            row.save()
            text = f"Deployment {row.name} was changed: {', '.join(sorted(changes))}."
            _record(row, actor, "deployment.updated", text, changes)
    return Updated(row, sorted(changed))


def rollout_move(deployment: Deployment, version: Version) -> moves.Move:
    return moves.Move("rollout", deployment.team, deployment.pk, deployment.name, version.pk, str(version))


def deployment_scale(*, deployment: Deployment, actor: Actor, replicas: dict[str, int]) -> Deployment:
    """Roles that are not named keep their count."""
    with transaction.atomic():
        row = _locked(deployment)
        wanted = {**row.replicas, **replicas}
        check_replicas(wanted, check_revision(_current(row)).capabilities())
        if wanted != row.replicas:
            changes = {"replicas": [row.replicas, wanted]}
            row.replicas = wanted
            row.save()
            told = ", ".join(f"{count} {role}" for role, count in sorted(wanted.items()))
            _record(row, actor, "deployment.scaled", f"Deployment {row.name} was scaled to {told}.", changes)
    return row


def deployment_stop(*, deployment: Deployment, actor: Actor) -> Deployment:
    return _desire(deployment, actor, Desired.STOPPED, "deployment.stopped", "was stopped")


def deployment_start(*, deployment: Deployment, actor: Actor) -> Deployment:
    return _desire(deployment, actor, Desired.RUNNING, "deployment.started", "was started")


def deployment_delete(*, deployment: Deployment, actor: Actor) -> Deployment:
    """The name is free at once; requests in flight end first; the controller removes the row at last."""
    return _desire(deployment, actor, Desired.DELETED, "deployment.deleted", "was deleted")


def deployment_rollback(*, deployment: Deployment, actor: Actor, number: int) -> Updated:
    """Point back to an earlier revision; it rolls out like a new one."""
    with transaction.atomic():
        row = _locked(deployment)
        before = _current(row)
        target = row.revisions.select_related(*_REVISION).filter(number=number).first()
        if target is None:
            known = ", ".join(str(item.number) for item in row.revisions.all())
            raise NotFound(f"{row.name} has no revision {number}.", hint=f"Revisions: {known}.")
        if target.pk == before.pk:
            raise Conflict(f"Revision {number} is the current one.", hint="Nothing was changed.")
        check_revision(target)
        differing = sorted(name for name in REVISION_FIELDS if getattr(before, name) != getattr(target, name))
        row.current = target
        row.save()
        text = f"Deployment {row.name} goes back from revision {before.number} to {number}."
        _record(row, actor, "deployment.rolled_back", text, {"revision": [before.number, number]})
    return Updated(row, differing)


def instance_restart(*, instance: Instance, actor: Actor) -> Instance:
    """Start it anew and forget its failures. Raising the epoch asks for it; a running engine drains first."""
    with transaction.atomic():
        row: Instance = Instance.objects.select_for_update(of=("self",)).select_related(*_RELATED).get(pk=instance.pk)
        if row.desired != Desired.RUNNING:
            raise Conflict("This instance is being stopped.", hint="Scale the deployment up for another one.")
        changes: dict[str, Any] = {"restarts": 0, "next_start_at": None}
        if row.state == InstanceState.FAILED:
            changes["state"] = InstanceState.SCHEDULED if row.node else InstanceState.PENDING
            changes["reason"] = "A restart was asked for."
        elif row.state in (InstanceState.STARTING, InstanceState.READY, InstanceState.UNREACHABLE):
            changes["epoch"] = F("epoch") + 1
            changes["reason"] = "A restart was asked for; its requests end first."
        Instance.objects.filter(pk=row.pk).update(**changes)
        row.refresh_from_db(fields=[*changes])
        text = f"{row.deployment.name} {row.role} {row.index} is to start anew."
        _record(row.deployment, actor, "instance.restarted", text, {"instance": [None, str(row.pk)]})
    if row.node is not None:
        wake.wake(wake.node_channel(row.node.name))
    return row


_REVISION = ("version__model", "draft_version__model", "created_by")
_RELATED = ("deployment__team", "deployment__current__version__model", "node", "revision")


def _desire(deployment: Deployment, actor: Actor, desired: Desired, kind: str, verb: str) -> Deployment:
    with transaction.atomic():
        row = _locked(deployment)
        if row.desired == desired:
            return row
        changes = {"desired": [row.desired, str(desired)]}
        row.desired = desired
        row.save()
        _record(row, actor, kind, f"Deployment {row.name} {verb}.", changes)
    return row


def _locked(deployment: Deployment) -> Deployment:
    """The row, locked until the end of the transaction. Raises NotFound for one that is being deleted."""
    rows = Deployment.objects.select_for_update(of=("self",)).select_related("team")
    row: Deployment | None = rows.filter(pk=deployment.pk).first()
    if row is None or row.desired == Desired.DELETED:
        raise NotFound(f"Deployment {deployment.name} is deleted.")
    return row


def _current(row: Deployment) -> Revision:
    revision: Revision = Revision.objects.select_related(*_REVISION).get(pk=row.current_id)
    return revision


def _next_revision(row: Deployment, before: Revision, changed: dict[str, Any], actor: Actor) -> Revision:
    values = {name: getattr(before, name) for name in REVISION_FIELDS}
    last = row.revisions.aggregate(last=Max("number"))["last"] or 0
    return Revision(deployment=row, number=last + 1, created_by=actor.user, **{**values, **changed})


def _refuse_hopeless(found: Estimate) -> None:
    if found.hopeless:
        hint = " ".join([*found.need.suggestions, "Send force: true to create it anyway; it waits for room."])
        raise TursiopsError(found.reason, hint=hint, code="does_not_fit")


def _values(revision: Revision) -> dict[str, Any]:
    return {name: [None, _plain(getattr(revision, name))] for name in REVISION_FIELDS}


def _plain(value: Any) -> Any:
    return str(value) if not isinstance(value, str | int | float | list | dict | None) else value


def _record(row: Deployment, actor: Actor, kind: str, text: str, changes: dict[str, Any]) -> None:
    record_change(
        team=row.team,
        actor=actor,
        kind=kind,
        subject_type="deployment",
        subject_id=row.pk,
        text=text,
        payload=deployment_row(row),
        changes=changes,
    )
    wake.wake(wake.CONTROLLER)
