"""How suites, runs, schedules, baselines and gates look from outside: in REST answers and in events alike."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

from tursiops.evaluations import cron
from tursiops.evaluations.models import Baseline, ExternalEndpoint, Gate, Plan, Run, Schedule, Suite, SuiteVersion

NEXT_TIMES = 5


def time(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


def plain(value: Any) -> Any:
    """A column's value as an audit entry holds it: of another row, its id."""
    return str(value.pk) if hasattr(value, "pk") else value


def suite_row(suite: Suite) -> dict[str, Any]:
    version = suite.current
    return {
        "id": str(suite.pk),
        "name": suite.name,
        "description": suite.description,
        "version": version.number if version else 0,
        "spec": version.spec if version else {},
        "auto_baseline": suite.auto_baseline,
        "created_at": time(suite.created_at),
        "updated_at": time(suite.updated_at),
    }


def suite_version_row(version: SuiteVersion) -> dict[str, Any]:
    return {
        "number": version.number,
        "spec": version.spec,
        "created_by": version.created_by.get_username() if version.created_by else None,
        "created_at": time(version.created_at),
    }


def endpoint_row(endpoint: ExternalEndpoint) -> dict[str, Any]:
    return {
        "id": str(endpoint.pk),
        "name": endpoint.name,
        "url": endpoint.url,
        "model": endpoint.model,
        "api": endpoint.api,
        "has_key": bool(endpoint.key_encrypted),
        "created_at": time(endpoint.created_at),
    }


def target_row(row: Run | Schedule | Baseline) -> dict[str, Any]:
    """`id` is null where the target has been deleted since."""
    found = row.deployment_id or row.endpoint_id
    if isinstance(row, Run):
        kind, name = row.target_kind, row.target_name
    else:
        kind, name = "endpoint" if row.endpoint_id else "deployment", str(row.deployment or row.endpoint)
    return {"kind": kind, "id": str(found) if found else None, "name": name}


def run_row(run: Run) -> dict[str, Any]:
    return {
        "id": str(run.pk),
        "suite": str(run.suite_id),
        "suite_name": run.suite.name,
        "suite_version": run.suite_version.number,
        "parts": [name for name in ("load", "quality") if run.suite_version.spec.get(name)],
        "target": target_row(run),
        "revision": run.revision_number,
        "version": str(run.version_id) if run.version_id else None,
        "version_label": str(run.version) if run.version else "",
        "job": str(run.job_id) if run.job_id else None,
        "schedule": str(run.schedule_id) if run.schedule_id else None,
        "requested_by": run.requested_by.get_username() if run.requested_by else None,
        "state": run.state,
        "verdict": run.verdict,
        "reason": run.reason,
        "progress": run.job.progress if run.job else 0.0,
        "progress_text": run.job.progress_text if run.job else "",
        "figures": run.figures,
        "regressions": run.regressions,
        "baseline": str(run.baseline_id) if run.baseline_id else None,
        "created_at": time(run.created_at),
        "started_at": time(run.started_at),
        "finished_at": time(run.finished_at),
        "files_removed_at": time(run.files_removed_at),
    }


def run_detail(run: Run, results: dict[str, Any]) -> dict[str, Any]:
    files = [{"name": file.name, "size": file.blob.size, "sha256": file.blob_id} for file in run.files.all()]
    return {**run_row(run), "seed": run.seed, "spec": run.suite_version.spec, "results": results, "files": files}


def times_row(read: cron.Cron, now: datetime) -> dict[str, Any]:
    return {
        "text": {"en": cron.words(read, "en"), "zh": cron.words(read, "zh")},
        "next_times": [time(at) for at in islice(cron.times(read, now), NEXT_TIMES)],
    }


def schedule_row(schedule: Schedule, now: datetime) -> dict[str, Any]:
    """`next_times` are empty while it is off."""
    times = times_row(cron.parse(schedule.cron, schedule.timezone), now)
    last = next(iter(schedule.runs.all()), None)  # newest first
    return {
        "id": str(schedule.pk),
        "name": schedule.name,
        "suite": str(schedule.suite_id),
        "suite_name": schedule.suite.name,
        "target": target_row(schedule),
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        **(times if schedule.enabled else {**times, "next_times": []}),
        "enabled": schedule.enabled,
        "run_missed": schedule.run_missed,
        "missed": schedule.missed,
        "reason": schedule.reason,
        "fired_for": time(schedule.fired_for),
        "last_run": run_row(last) if last else None,
        "owner": schedule.owner.get_username() if schedule.owner else None,
        "created_at": time(schedule.created_at),
    }


def baseline_row(baseline: Baseline) -> dict[str, Any]:
    return {
        "id": str(baseline.pk),
        "suite": str(baseline.suite_id),
        "suite_name": baseline.suite.name,
        "target": target_row(baseline),
        "run": str(baseline.run_id),
        "figures": baseline.run.figures,
        "by_hand": baseline.by_hand,
        "updated_at": time(baseline.updated_at),
    }


def gate_row(gate: Gate) -> dict[str, Any]:
    return {
        "id": str(gate.pk),
        "name": gate.name,
        "kind": gate.kind,
        "model": str(gate.model_id) if gate.model_id else None,
        "model_name": gate.model.name if gate.model else "",
        "alias": gate.alias,
        "deployment": str(gate.deployment_id) if gate.deployment_id else None,
        "deployment_name": gate.deployment.name if gate.deployment else "",
        "suite": str(gate.suite_id),
        "suite_name": gate.suite.name,
        "require_pass": gate.require_pass,
        "forbid_regression": gate.forbid_regression,
        "limits": gate.limits,
        "max_age_days": gate.max_age_days,
        "enabled": gate.enabled,
        "created_at": time(gate.created_at),
    }


def plan_row(plan: Plan) -> dict[str, Any]:
    return {
        "id": str(plan.pk),
        "name": plan.name,
        "version": str(plan.version_id) if plan.version_id else None,
        "version_label": str(plan.version) if plan.version else "",
        "request": plan.request,
        "answer": plan.answer,
        "run": str(plan.run_id) if plan.run_id else None,
        "choice": plan.choice,
        "reason": plan.reason,
        "residuals": plan.residuals,
        "created_at": time(plan.created_at),
    }
