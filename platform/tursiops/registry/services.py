"""Every change of models, versions and aliases."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from tursiops.accounts.models import Team
from tursiops.core import moves
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.jobs import queue
from tursiops.jobs import services as jobs
from tursiops.jobs.models import ENDED, Job
from tursiops.registry import names, rows, sources
from tursiops.registry.drafts import HEADS
from tursiops.registry.models import Alias, Model, SourceKind, Version, VersionFile, VersionState

IMPORTER = Actor("importer")
MAKER = Actor("maker")
DEFAULT_TASK = "text-generation"
TASKS = {"embed": "feature-extraction", "score": "text-ranking", **dict.fromkeys(HEADS, "draft-head")}
"""A shape's task → the model's, by the names that hubs give them, but for heads, which they have no name for."""


def import_model(
    *,
    team: Team,
    actor: Actor,
    source: str,
    ref: str = "",
    revision: str = "",
    name: str = "",
    idempotency_key: str | None = None,
) -> Job:
    """Start the import of a version; a model of that name gets its next version, a new name a new model.

    Raises TursiopsError naming the field, or NotFound for an unknown source.
    """
    if idempotency_key is not None:
        past: Job | None = Job.objects.filter(team=team, idempotency_key=idempotency_key).first()
        if past is not None:
            return past
    ref, suggested = sources.checked_ref(source, ref, actor.user)
    name = names.check(name) if name else names.make(suggested)
    with transaction.atomic():
        model, is_new = Model.objects.get_or_create(team=team, name=name)
        if is_new:
            _tell_of_model(model, actor, "model.created", f"model {name} was made")
        version = next_version(
            model, source_kind=_source_kind(source), source_ref=ref[:500], source_revision=revision[:100]
        )
        job = jobs.enqueue_job(
            team=team,
            actor=actor,
            kind="registry.import",
            title=f"Import {version}",
            spec={"source": source, "ref": ref, "revision": revision},
            subject_type="version",
            subject_id=version.pk,
            idempotency_key=idempotency_key,
        )
        if job.subject_id != version.pk:  # the same request, sent at the same time, came first
            transaction.set_rollback(True)
            return job
        _tell_of_version(version, actor, "version.importing", f"{version} is being imported from {source}")
    return job


def _source_kind(source: str) -> str:
    return source if source in SourceKind.values else SourceKind.JOB


def next_version(model: Model, **fields: Any) -> Version:
    """Numbers are given under the model's lock: two imports at once get two numbers."""
    Model.objects.select_for_update().get(pk=model.pk)
    last = model.versions.aggregate(last=Max("number"))["last"] or 0
    version: Version = Version.objects.create(model=model, number=last + 1, **fields)
    return version


def version_importing(*, version: Version) -> None:
    """A queued or running import; also when a failed one is retried. Called in the job's transaction."""
    if version.state != VersionState.IMPORTING or version.reason:
        _set_state(version, VersionState.IMPORTING, "")
        _tell_of_version(version, IMPORTER, "version.importing", f"{version} is being imported")


def version_failed(*, version: Version, reason: str) -> None:
    """Aliases and other versions stay as they are: the last good state is kept."""
    _set_state(version, VersionState.FAILED, reason)
    _tell_of_version(version, IMPORTER, "version.failed", f"{version} could not be imported: {reason}")


def version_making(*, version: Version) -> None:
    """A queued or running job that makes a version of another one; as `version_importing` of an import."""
    _set_state(version, VersionState.IMPORTING, "")
    _tell_of_version(version, MAKER, "version.importing", f"{version} is being made from {version.source_ref}")


def version_not_made(*, version: Version, reason: str) -> None:
    """As `version_failed` of an import."""
    _set_state(version, VersionState.FAILED, reason)
    _tell_of_version(version, MAKER, "version.failed", f"{version} could not be made: {reason}")


def version_dropped(*, version: Version, reason: str) -> None:
    """A version that was being made and never will be: the number is free again."""
    _delete_and_tell(version, MAKER, f"{version} was dropped: {reason}")


def version_remark(*, version: Version, remark: str) -> None:
    """What is to be known of a ready version before it is used: it stands where a failed one's reason would."""
    _set_state(version, VersionState.READY, remark)
    _tell_of_version(version, MAKER, "version.remarked", f"{version}: {remark}"[:500])


def version_ready(*, version: Version, report: dict[str, Any]) -> None:
    """Write what the import found. From now on the version never changes."""
    facts = report["facts"]
    tokenizer = facts.get("tokenizer") or {}
    version.format = report["format"]
    version.architecture = str(facts["shape"]["architecture"])[:64]
    version.dtype = str(facts.get("dtype") or "")[:16]
    version.quantization = str(facts.get("quantization") or "")[:64]
    version.license = str(report["license"])[:100]
    version.source_revision = str(report["revision"] or version.source_revision)[:100]
    version.size_bytes = sum(item["size"] for item in report["files"])
    version.shape = facts["shape"]
    version.tokenizer = tokenizer
    version.chat_template = facts.get("chat_template") or ""
    version.state, version.reason = VersionState.READY, ""
    version.save()
    Model.objects.filter(pk=version.model_id).update(task=TASKS.get(version.shape.get("task", ""), DEFAULT_TASK))
    VersionFile.objects.bulk_create(
        VersionFile(version=version, name=item["name"], blob_id=item["sha256"]) for item in report["files"]
    )
    _tell_of_version(version, IMPORTER, "version.ready", f"{version} is ready")


def placeholder_dropped(*, version: Version, job: Job) -> None:
    """The files turned out to be those of an earlier version: the job points there and the number is free again."""
    existing = Version.objects.select_related("model").get(pk=job.report["version"])
    Job.objects.filter(pk=job.pk).update(subject_id=existing.pk, updated_at=timezone.now())
    job.subject_id = existing.pk
    text = f"{version} was not needed: the same files are {existing}"
    _delete_and_tell(version, IMPORTER, text)


@transaction.atomic
def update_model(*, model: Model, actor: Actor, name: str | None = None, description: str | None = None) -> Model:
    """None leaves a field as it is. Raises TursiopsError naming the field."""
    before = {"name": model.name, "description": model.description}
    if name is not None and name != model.name:
        model.name = names.check(name)
        if Model.objects.filter(team=model.team, name=name).exclude(pk=model.pk).exists():
            raise Conflict(f"There is a model {name!r} already.", fields={"name": ["Taken."]})
    if description is not None:
        model.description = description
    model.save()
    changes = {field: [old, getattr(model, field)] for field, old in before.items() if old != getattr(model, field)}
    _tell_of_model(model, actor, "model.updated", f"model {model.name} was changed", changes)
    return model


@transaction.atomic
def delete_model(*, model: Model, actor: Actor) -> None:
    """With all versions, aliases and lineage. Raises Conflict where one is deployed or being imported."""
    Model.objects.select_for_update().get(pk=model.pk)
    for version in model.versions.select_related("model"):
        _refuse_if_used(version)
    pk, team, label = model.pk, model.team, model.name
    model.aliases.all().delete()
    model.delete()
    _tell(team, actor, "model.deleted", "model", pk, f"model {label} was deleted", {"id": str(pk)})
    transaction.on_commit(queue.send_garbage_collection)


@transaction.atomic
def delete_version(*, version: Version, actor: Actor) -> None:
    """Raises Conflict where it is deployed, has an alias, or is being imported."""
    Model.objects.select_for_update().get(pk=version.model_id)
    _refuse_if_used(version)
    aliases = sorted(version.aliases.values_list("name", flat=True))
    if aliases:
        raise Conflict(f"{version} is {', '.join(aliases)}.", code="in_use", hint="Move or remove these aliases first.")
    _delete_and_tell(version, actor, f"{version} was deleted")
    transaction.on_commit(queue.send_garbage_collection)


def _refuse_if_used(version: Version) -> None:
    makes = Q(subject_type="version", subject_id=version.pk)
    reads = Q(spec__base=str(version.pk))  # another version is being made of it
    running = Job.objects.filter(makes | reads).exclude(state__in=ENDED).first()
    if running is not None:
        raise Conflict(
            f"{version} is in use by the job {running.title!r} ({running.state}).",
            code="in_use",
            hint="Cancel the job, or wait for its end.",
        )
    served, drafting = version.revisions.all(), version.draft_revisions.all()
    deployments = sorted(
        {name for rows in (served, drafting) for name in rows.values_list("deployment__name", flat=True)}
    )
    if deployments:
        raise Conflict(
            f"{version} is used by {', '.join(deployments[:5])}.",
            code="in_use",
            hint="Deploy another version there, or delete the deployment, first.",
        )


def set_alias(*, model: Model, actor: Actor, name: str, version_id: uuid.UUID, override: str = "") -> Alias:
    """Point an alias at a ready version of the model. `override`: an admin's reason for going past a gate.

    Raises TursiopsError or Conflict, gate_not_met among them.
    """
    names.check_alias(name)
    version = model.versions.select_related("model").filter(pk=version_id).first()
    if version is None:
        raise TursiopsError(f"{model.name} has no such version.", fields={"version": ["Not a version of this model."]})
    if version.state != VersionState.READY:
        raise Conflict(
            f"{version} is {version.state}; an alias points at a version that is ready.", code="version_not_ready"
        )
    before = model.aliases.filter(name=name).values_list("version__number", flat=True).first()
    if before != version.number:
        moves.allow(alias_move(model, name, version), actor=actor, override=override)
    with transaction.atomic():
        alias, _ = Alias.objects.update_or_create(model=model, name=name, defaults={"version": version})
        text = f"{model.name}: {name} is now v{version.number}"
        _tell_of_model(model, actor, "model.alias_set", text, {name: [before, version.number]})
    return alias


def alias_move(model: Model, name: str, version: Version) -> moves.Move:
    return moves.Move("alias", model.team, model.pk, model.name, version.pk, str(version), alias=name)


@transaction.atomic
def remove_alias(*, alias: Alias, actor: Actor) -> None:
    model, number = alias.model, alias.version.number
    alias.delete()
    text = f"{model.name}: the alias {alias.name} was removed"
    _tell_of_model(model, actor, "model.alias_removed", text, {alias.name: [number, None]})


def _set_state(version: Version, state: VersionState, reason: str) -> None:
    version.state, version.reason = state, reason[:500]
    version.save(update_fields=["state", "reason", "updated_at"])


def _tell_of_model(model: Model, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None) -> None:
    _tell(model.team, actor, kind, "model", model.pk, text, rows.model_row(model.pk), changes)


def _tell_of_version(version: Version, actor: Actor, kind: str, text: str) -> None:
    payload = rows.version_row(version.pk)
    _tell(version.model.team, actor, kind, "version", version.pk, text, payload, {"state": version.state})


def _delete_and_tell(version: Version, actor: Actor, text: str) -> None:
    """The event still says of which model it was: a list of models counts and shows versions."""
    pk, payload = version.pk, {"id": str(version.pk), "model": str(version.model_id)}
    version.delete()
    _tell(version.model.team, actor, "version.deleted", "version", pk, text, payload)


def _tell(
    team: Team,
    actor: Actor,
    kind: str,
    subject_type: str,
    subject_id: uuid.UUID,
    text: str,
    payload: dict[str, Any],
    changes: dict[str, Any] | None = None,
) -> None:
    record_change(
        team=team,
        actor=actor,
        kind=kind,
        subject_type=subject_type,
        subject_id=subject_id,
        text=text,
        payload=payload,
        changes=changes,
    )
