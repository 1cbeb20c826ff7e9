"""Answers of the capacity planner, kept with what was asked, and put to the test by runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from evaluation.planner import recommend as planner
from evaluation.planner import util_grid
from evaluation.planner.answers import Choice
from evaluation.planner.answers import Plan as Answer
from evaluation.planner.confirm import ConfirmError, confirm
from evaluation.planner.constraints import ConstraintError
from evaluation.planner.model_spec import ModelSpec, SpecError, from_config, from_shape
from evaluation.planner.util_grid import Grid
from evaluation.profile import ProfileError, fit, read_profile
from evaluation.schema import Objective, ResultDoc
from tursiops.accounts.models import Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict
from tursiops.deployments.refusals import refuse
from tursiops.evaluations import rows
from tursiops.evaluations.models import Plan, Run, RunState
from tursiops.registry.models import Version
from tursiops.usage.models import UsageRecord

log = structlog.get_logger(__name__)

EVALUATOR = Actor("evaluator")
MOST_RECORDS = 50_000  # newest; a profile keeps a few thousand pairs of them
FITTED_OVER = timedelta(days=30)


def answer(
    *,
    profile: dict[str, Any],
    version: Version | None = None,
    config: dict[str, Any] | None = None,
    constraints: dict[str, Any] | None = None,
) -> Answer:
    """What the planner says; nothing is kept. The model is a version's, or that of a config.json.

    Raises TursiopsError naming the field.
    """
    if (version is None) == (config is None):
        raise refuse("version", "Give a version or a config: one of them.")
    model = _checked("config" if version is None else "version", lambda: _model(version, config))
    read = _checked("profile", lambda: read_profile(profile))
    found: Answer = _checked(
        "constraints",
        lambda: planner.recommend(read, model, constraints, grids(), created_at=timezone.now().isoformat()),
    )
    return found


def _model(version: Version | None, config: dict[str, Any] | None) -> ModelSpec:
    return from_config(config or {}) if version is None else from_shape(version.shape, str(version))


def _checked(field: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (ProfileError, SpecError, ConstraintError) as error:
        name = "profile" if isinstance(error, ProfileError) else field
        raise refuse(name, str(error)) from error


def grids() -> list[Grid]:
    """What was measured on this installation's devices: <data>/grids/*.json, as `tursiops-eval plan` writes them."""
    found = []
    for path in sorted((Path(settings.DATA_DIR) / "grids").glob("*.json")):
        try:
            found.append(util_grid.read(path))
        except (OSError, ValueError) as error:
            log.warning("planner.grid_unreadable", path=str(path), error=str(error))
    return found


@transaction.atomic
def create_plan(*, team: Team, actor: Actor, name: str = "", **asked: Any) -> Plan:
    """`asked`: as of `answer`."""
    found = answer(**asked)
    version = asked.get("version")
    request = {key: value for key, value in asked.items() if key != "version"}
    plan: Plan = Plan.objects.create(
        team=team,
        name=name or f"{found.profile} on {found.model}",
        version=version,
        request=request,
        answer=msgspec.to_builtins(found),
        created_by=actor.user,
    )
    _tell(plan, actor, "plan.created", f"the plan {plan.name} was made")
    return plan


@transaction.atomic
def delete_plan(*, plan: Plan, actor: Actor) -> None:
    _tell(plan, actor, "plan.deleted", f"the plan {plan.name} was deleted")
    plan.delete()


def fitted_profile(
    *,
    team: Team,
    name: str,
    deployment_id: Any = None,
    since: datetime | None = None,
    until: datetime | None = None,
    slo: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A profile of what the team's applications asked, evaluation's own requests left out.

    Raises TursiopsError where too little was asked to tell.
    """
    until = until or timezone.now()
    keys = Run.objects.filter(team=team, key__isnull=False).values("key")
    records = UsageRecord.objects.filter(
        team=team, started_at__gte=since or until - FITTED_OVER, started_at__lt=until
    ).exclude(api_key_id__in=keys)
    if deployment_id is not None:
        records = records.filter(deployment_id=deployment_id)
    fields = ("api_key_id", "status", "prompt_tokens", "cached_tokens", "completion_tokens", "started_at", "retries")
    newest = records.order_by("-started_at").values(*fields, "disconnected")[:MOST_RECORDS]
    objectives = _checked("slo", lambda: _objectives(slo or []))
    return dict(msgspec.to_builtins(_checked("profile", lambda: fit(list(newest), name, slo=objectives))))


def _objectives(slo: list[dict[str, Any]]) -> list[Objective]:
    try:
        return msgspec.convert(slo, list[Objective])
    except msgspec.ValidationError as error:
        raise ConstraintError(f"slo: {error}") from error


@transaction.atomic
def put_to_test(*, plan: Plan, run: Run, actor: Actor, choice: int | None = None) -> Plan:
    """Link a run to one of a plan's choices: when it is complete, the plan shows how far off it was.

    Raises TursiopsError (choice) or Conflict.
    """
    choices = plan.answer.get("choices", [])
    chosen = choice if choice is not None else plan.answer.get("recommended")
    if chosen is None or not 0 <= chosen < len(choices):
        raise refuse("choice", f"The plan has {len(choices)} choices.", "Give the place of one of them, from 0 on.")
    if run.state in (RunState.CANCELLED, RunState.ERRORED):
        raise Conflict(f"This run is {run.state}; it confirms nothing.", code="no_figures", hint="Choose another run.")
    plan.run, plan.choice = run, chosen
    _compare(plan, run)
    _tell(plan, actor, "plan.confirming", f"the plan {plan.name} is put to the test by the run of {run}")
    return plan


def follow(run: Run) -> None:
    """Called in the transaction that ends the run, however it ends."""
    for plan in Plan.objects.filter(run=run).select_related("team", "version__model"):
        _compare(plan, run)
        if run.state == RunState.COMPLETED:
            _tell(plan, EVALUATOR, "plan.confirmed", f"the plan {plan.name} was measured by the run of {run}")
        else:
            _tell(plan, EVALUATOR, "plan.unconfirmed", f"the plan {plan.name} was not measured: the run is {run.state}")


def _compare(plan: Plan, run: Run) -> None:
    plan.residuals, plan.reason = [], ""
    document = run.results.get("load")
    if run.state != RunState.COMPLETED or document is None:
        plan.reason = f"The run of {run} is {run.state}."
    else:
        picked = msgspec.convert(plan.answer["choices"][plan.choice], Choice)
        peak = float(plan.answer["summary"]["peak"])
        try:
            plan.residuals = msgspec.to_builtins(confirm(picked, peak, msgspec.convert(document, ResultDoc)))
        except ConfirmError as error:
            plan.reason = f"Not comparable: {error}."[:500]
    plan.save(update_fields=["run", "choice", "residuals", "reason", "updated_at"])


def _tell(plan: Plan, actor: Actor, kind: str, text: str) -> None:
    record_change(
        team=plan.team,
        actor=actor,
        kind=kind,
        subject_type="plan",
        subject_id=plan.pk,
        text=text,
        payload=rows.plan_row(plan),
    )
