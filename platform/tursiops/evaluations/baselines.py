"""Every change of baselines: the run that a suite's later runs on a target are compared with."""

from __future__ import annotations

from django.db import transaction

from tursiops.core.audit import Actor, record_change
from tursiops.core.errors import Conflict
from tursiops.evaluations import rows, selectors, targets
from tursiops.evaluations.models import Baseline, Run, RunState, Suite
from tursiops.evaluations.targets import Target

FOLLOWER = Actor("evaluator")


def of(suite: Suite, target: Target) -> Baseline | None:
    found: Baseline | None = selectors.baselines().filter(suite=suite, **target.fields).first()
    return found


@transaction.atomic
def set_baseline(*, run: Run, actor: Actor) -> Baseline:
    """By hand: it stays until a person sets another. Raises Conflict for a run that tells too little."""
    target = targets.of(run)
    if target is None:
        raise Conflict(
            f"{run.target_name} has been deleted.", code="target_gone", hint="Choose a run of another target."
        )
    if run.state != RunState.COMPLETED or not run.figures:
        raise Conflict(
            f"This run is {run.state} and has {len(run.figures)} figures.",
            code="no_figures",
            hint="A baseline is a run that came to its end and measured something.",
        )
    return _set(run, target, actor, by_hand=True)


def follow(run: Run, target: Target) -> Baseline:
    """Automatically: the last run that passed. Called in the transaction that ends the run."""
    return _set(run, target, FOLLOWER, by_hand=False)


def _set(run: Run, target: Target, actor: Actor, *, by_hand: bool) -> Baseline:
    before = of(run.suite, target)
    baseline: Baseline
    baseline, _ = Baseline.objects.update_or_create(
        suite=run.suite, **target.fields, defaults={"team": run.team, "run": run, "by_hand": by_hand}
    )
    how = f"by {actor.name}" if by_hand else "as the last run that passed"
    _tell(baseline, actor, "baseline.set", f"a baseline of {run} was set {how}", before)
    return baseline


@transaction.atomic
def remove_baseline(*, baseline: Baseline, actor: Actor) -> None:
    _tell(baseline, actor, "baseline.removed", f"{baseline} was removed", baseline)
    baseline.delete()


def _tell(baseline: Baseline, actor: Actor, kind: str, text: str, before: Baseline | None) -> None:
    after = None if kind == "baseline.removed" else str(baseline.run_id)
    record_change(
        team=baseline.team,
        actor=actor,
        kind=kind,
        subject_type="baseline",
        subject_id=baseline.pk,
        text=text,
        payload=rows.baseline_row(baseline),
        changes={"run": [str(before.run_id) if before else None, after], "by_hand": baseline.by_hand},
    )
