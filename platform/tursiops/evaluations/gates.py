"""Gates: what a version must have shown before it is moved to. `refusals` is this app's check of core.moves."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from tursiops.accounts.models import Team
from tursiops.core.audit import Actor, record_change
from tursiops.core.moves import Move, Refusal
from tursiops.deployments.refusals import refuse
from tursiops.evaluations import figures, rows, selectors, suites
from tursiops.evaluations.models import Gate, GateKind, Run, Verdict
from tursiops.registry import names


def create_gate(*, team: Team, actor: Actor, **fields: Any) -> Gate:
    """`fields`: those of Gate, rows of the team. Raises TursiopsError naming the field."""
    gate = Gate(team=team, **fields)
    _check(gate)
    try:
        with transaction.atomic():
            gate.save(force_insert=True)
            _tell(gate, actor, "gate.created", f"the gate {gate.name} was made")
    except IntegrityError as error:
        raise suites.taken(gate.name) from error
    return gate


def update_gate(*, gate: Gate, actor: Actor, **given: Any) -> Gate:
    try:
        with transaction.atomic():
            row: Gate = selectors.gates().select_for_update(of=("self",)).get(pk=gate.pk)
            changes = {name: [rows.plain(getattr(row, name)), rows.plain(value)] for name, value in given.items()}
            for name, value in given.items():
                setattr(row, name, value)
            _check(row)
            row.save()
            _tell(row, actor, "gate.updated", f"the gate {row.name} was changed", changes)
    except IntegrityError as error:
        raise suites.taken(str(given.get("name", ""))) from error
    return row


@transaction.atomic
def delete_gate(*, gate: Gate, actor: Actor) -> None:
    _tell(gate, actor, "gate.deleted", f"the gate {gate.name} was deleted", {"name": [gate.name, None]})
    gate.delete()


def _check(gate: Gate) -> None:
    if gate.kind == GateKind.ALIAS and gate.model is None:
        raise refuse("model", "A gate before an alias names its model.")
    if gate.kind == GateKind.ROLLOUT and gate.deployment is None:
        raise refuse("deployment", "A gate before a rollout names its deployment.")
    if gate.kind == GateKind.ALIAS and gate.deployment is not None:
        raise refuse("deployment", "A gate before an alias is of a model, not of a deployment.")
    if gate.kind == GateKind.ROLLOUT and (gate.model is not None or gate.alias):
        raise refuse("model", "A gate before a rollout is of a deployment; it has no model and no alias.")
    if gate.alias:
        names.check_alias(gate.alias)
    if not (gate.require_pass or gate.forbid_regression or gate.limits):
        raise refuse("limits", "This gate asks nothing.", "Set require_pass, forbid_regression, or a limit.")
    for index, limit in enumerate(gate.limits):
        if limit.get("min") is None and limit.get("max") is None:
            raise refuse("limits", f"Limit {index + 1} ({limit['figure']}) has neither min nor max.")


def refusals(move: Move) -> list[Refusal]:
    """What the team's gates say against the move. A gate that nothing was measured for refuses, too."""
    gates = selectors.gates().filter(team=move.team, enabled=True, kind=move.kind)
    if move.kind == "alias":
        gates = gates.filter(Q(alias="") | Q(alias=move.alias), model=move.subject_id)
    else:
        gates = gates.filter(deployment=move.subject_id)
    return [refusal for gate in gates for refusal in of_gate(gate, move.version_id, move.version_label)]


def of_gate(gate: Gate, version_id: uuid.UUID, version_label: str) -> list[Refusal]:
    since = timezone.now() - timedelta(days=gate.max_age_days)
    run = selectors.evidence(gate.suite, version_id, since)
    if run is None:
        message = (
            f"Gate {gate.name}: {gate.suite.name} has not run to its end on {version_label} "
            f"in the last {gate.max_age_days} days."
        )
        if selectors.outdated_evidence(gate.suite, version_id, since):
            changed = f"{gate.suite.name} has changed since it last ran there."
            message = f"{message} {changed}"
        hint = f"Deploy {version_label} beside the one that serves, and run {gate.suite.name} on it."
        return [Refusal(message, hint, _detail(gate, None, "no_run"))]
    found = []
    if gate.require_pass and run.verdict != Verdict.PASS:
        message = f"Gate {gate.name}: the run of {run} came out as {run.verdict}. {run.reason}".strip()
        found.append(Refusal(message, _remedy(run), _detail(gate, run, "verdict", value=run.verdict, limit="pass")))
    if gate.forbid_regression:
        found += [_regressed(gate, run, item) for item in run.regressions]
    return found + [refusal for limit in gate.limits for refusal in _beyond(gate, run, limit)]


def _regressed(gate: Gate, run: Run, item: dict[str, Any]) -> Refusal:
    unit = item["unit"]
    value, limit = figures.shown(item["value"], unit), figures.shown(item["limit"], unit)
    message = (
        f"Gate {gate.name}: {item['figure']} is {value} in the run of {run}, {item['change']:+.1%} from its baseline "
        f"of {figures.shown(item['baseline'], unit)}; the limit is {limit}."
    )
    detail = _detail(gate, run, "regression", figure=item["figure"], value=item["value"], limit=item["limit"])
    return Refusal(message, _remedy(run), {**detail, "unit": unit, "baseline": item["baseline"]})


def _beyond(gate: Gate, run: Run, limit: dict[str, Any]) -> list[Refusal]:
    name, least, most = limit["figure"], limit.get("min"), limit.get("max")
    figure = run.figures.get(name)
    if figure is None:
        message = f"Gate {gate.name}: the run of {run} did not measure {name}."
        known = ", ".join(sorted(run.figures)[:8]) or "nothing"
        return [Refusal(message, f"It measured {known}.", _detail(gate, run, "not_measured", figure=name))]
    value, unit = figure["value"], figure["unit"]
    told = f"Gate {gate.name}: {name} is {figures.shown(value, unit)} in the run of {run}"
    found = []
    if least is not None and value < least:
        found.append((least, f"{told}; at least {figures.shown(least, unit)} is asked."))
    if most is not None and value > most:
        found.append((most, f"{told}; at most {figures.shown(most, unit)} is asked."))
    detail = _detail(gate, run, "limit", figure=name, value=value)
    return [Refusal(text, _remedy(run), {**detail, "limit": edge, "unit": unit}) for edge, text in found]


def _remedy(run: Run) -> str:
    return f"See the run's findings; correct what they name, and run {run.suite.name} again."


def _detail(gate: Gate, run: Run | None, code: str, **more: Any) -> dict[str, Any]:
    return {
        "code": code,
        "gate": str(gate.pk),
        "gate_name": gate.name,
        "suite": str(gate.suite_id),
        "run": str(run.pk) if run else None,
        "figure": None,
        "value": None,
        "limit": None,
        **more,
    }


def _tell(gate: Gate, actor: Actor, kind: str, text: str, changes: dict[str, Any] | None = None) -> None:
    record_change(
        team=gate.team,
        actor=actor,
        kind=kind,
        subject_type="gate",
        subject_id=gate.pk,
        text=text,
        payload=rows.gate_row(gate),
        changes=changes,
    )
