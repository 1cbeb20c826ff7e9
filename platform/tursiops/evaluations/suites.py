"""Every change of suites and of the services outside that runs may be aimed at."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from tursiops.accounts.models import Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.deployments.refusals import refuse
from tursiops.evaluations import evidence, rows, specs, targets
from tursiops.evaluations.models import UNENDED, ExternalEndpoint, Run, Schedule, Suite, SuiteVersion
from tursiops.jobs import queue


def create_suite(
    *, team: Team, actor: Actor, name: str, spec: dict[str, Any], description: str = "", auto_baseline: bool = True
) -> Suite:
    """Raises TursiopsError naming the field, with its path inside the spec."""
    checked = specs.check(spec, team)
    try:
        with transaction.atomic():
            suite: Suite = Suite.objects.create(
                team=team, name=name, description=description, auto_baseline=auto_baseline
            )
            _next_version(suite, checked, actor)
            _tell_of_suite(suite, actor, "suite.created", f"the suite {name} was made")
    except IntegrityError as error:
        raise taken(name) from error
    return suite


def update_suite(
    *,
    suite: Suite,
    actor: Actor,
    name: str | None = None,
    description: str | None = None,
    auto_baseline: bool | None = None,
    spec: dict[str, Any] | None = None,
) -> Suite:
    """None leaves a field as it is; another spec makes the suite's next version.

    Raises TursiopsError; of another spec, while a gate rests on the suite, NotAdmin.
    """
    checked = specs.check(spec, suite.team) if spec is not None else None
    given = {"name": name, "description": description, "auto_baseline": auto_baseline}
    try:
        with transaction.atomic():
            row: Suite = (
                Suite.objects.select_for_update(of=("self",)).select_related("team", "current").get(pk=suite.pk)
            )
            wanted = {field: value for field, value in given.items() if value is not None}
            changes = {
                field: [getattr(row, field), value] for field, value in wanted.items() if getattr(row, field) != value
            }
            for field, value in wanted.items():
                setattr(row, field, value)
            row.save()
            before = row.current
            if checked is not None and (before is None or before.spec != checked):
                evidence.require_admin(row, actor, "changes what it measures")
                fresh = _next_version(row, checked, actor)
                changes["version"] = [before.number if before else None, fresh.number]
            if changes:
                _tell_of_suite(row, actor, "suite.updated", f"the suite {row.name} was changed", changes)
    except IntegrityError as error:
        raise taken(name or "") from error
    return row


def _next_version(suite: Suite, spec: dict[str, Any], actor: Actor) -> SuiteVersion:
    last = suite.versions.aggregate(last=Max("number"))["last"] or 0
    version = SuiteVersion.objects.create(suite=suite, number=last + 1, spec=spec, created_by=actor.user)
    suite.current = version
    suite.save(update_fields=["current", "updated_at"])
    return version


@transaction.atomic
def delete_suite(*, suite: Suite, actor: Actor) -> None:
    """With its ended runs and baselines. Raises Conflict while a schedule, a gate or a run needs it."""
    row = Suite.objects.select_for_update(of=("self",)).select_related("team").get(pk=suite.pk)
    users = [
        *(f"the schedule {item.name}" for item in row.schedules.all()),
        *(f"the gate {item.name}" for item in row.gates.all()),
        *(f"the run on {item.target_name} ({item.state})" for item in row.runs.filter(state__in=UNENDED)),
    ]
    if users:
        raise Conflict(
            f"{row.name} is in use by {', '.join(users[:5])}.",
            code="in_use",
            hint="Delete the schedules and gates, and cancel the runs, first.",
        )
    runs = row.runs.count()
    pk, payload = row.pk, {"id": str(row.pk)}
    text = f"the suite {row.name} was deleted, with {runs} of its runs" if runs else f"the suite {row.name} was deleted"
    row.baselines.all().delete()  # they protect their runs
    row.delete()
    record_change(
        team=row.team,
        actor=actor,
        kind="suite.deleted",
        subject_type="suite",
        subject_id=pk,
        text=text,
        payload=payload,
        changes={"name": [row.name, None], "runs": [runs, 0]},
    )
    transaction.on_commit(queue.send_garbage_collection)


def create_endpoint(
    *, team: Team, actor: Actor, name: str, url: str, model: str, api: str = "chat", key: str = ""
) -> ExternalEndpoint:
    """Raises TursiopsError (bad_url) for an address that runs may not be aimed at."""
    fields = {"url": targets.check_url(url), "model": model, "api": api, "key_encrypted": targets.seal_key(key)}
    try:
        with transaction.atomic():
            endpoint: ExternalEndpoint = ExternalEndpoint.objects.create(team=team, name=name, **fields)
            _tell_of_endpoint(endpoint, actor, "endpoint.created", f"the endpoint {name} was added")
    except IntegrityError as error:
        raise taken(name) from error
    return endpoint


def update_endpoint(*, endpoint: ExternalEndpoint, actor: Actor, **given: Any) -> ExternalEndpoint:
    """`given`: name, url, model, api, key. Another address needs its key anew: the old one must not go there."""
    if "url" in given:
        given["url"] = targets.check_url(given["url"])
    try:
        with transaction.atomic():
            row: ExternalEndpoint = (
                ExternalEndpoint.objects.select_for_update(of=("self",)).select_related("team").get(pk=endpoint.pk)
            )
            moved = "url" in given and given["url"] != row.url
            if moved and row.key_encrypted and "key" not in given:
                raise refuse("key", "Another address needs its key given anew.", "Send `key`; empty for none.")
            changes: dict[str, Any] = {
                name: [getattr(row, name), value] for name, value in given.items() if name != "key"
            }
            if "key" in given:
                row.key_encrypted = targets.seal_key(given.pop("key"))
                changes["key"] = ["(secret)", "(secret)"]
            for name, value in given.items():
                setattr(row, name, value)
            row.save()
            _tell_of_endpoint(row, actor, "endpoint.updated", f"the endpoint {row.name} was changed", changes)
    except IntegrityError as error:
        raise taken(given.get("name", "")) from error
    return row


@transaction.atomic
def delete_endpoint(*, endpoint: ExternalEndpoint, actor: Actor) -> None:
    """Raises Conflict while a schedule or a run is aimed at it. Ended runs stay."""
    schedules = sorted(Schedule.objects.filter(endpoint=endpoint).values_list("name", flat=True))
    running = Run.objects.filter(endpoint=endpoint, state__in=UNENDED).count()
    if schedules or running:
        what = ", ".join([*(f"the schedule {name}" for name in schedules[:5]), *([f"{running} runs"] * bool(running))])
        raise Conflict(f"{endpoint.name} is in use by {what}.", code="in_use", hint="Delete or cancel these first.")
    pk, name = endpoint.pk, endpoint.name
    endpoint.delete()
    record_change(
        team=endpoint.team,
        actor=actor,
        kind="endpoint.deleted",
        subject_type="evaluation_endpoint",
        subject_id=pk,
        text=f"the endpoint {name} was deleted",
        payload={"id": str(pk)},
    )


def taken(name: str) -> TursiopsError:
    return refuse("name", f"{name!r} is taken in this team.", "Choose another name.")


def _tell_of_suite(suite: Suite, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None) -> None:
    record_change(
        team=suite.team,
        actor=actor,
        kind=kind,
        subject_type="suite",
        subject_id=suite.pk,
        text=text,
        payload=rows.suite_row(suite),
        changes=changes,
    )


def _tell_of_endpoint(
    endpoint: ExternalEndpoint, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None
) -> None:
    record_change(
        team=endpoint.team,
        actor=actor,
        kind=kind,
        subject_type="evaluation_endpoint",
        subject_id=endpoint.pk,
        text=text,
        payload=rows.endpoint_row(endpoint),
        changes=changes,
    )
