"""Schedules, with time faked: what beat's table holds, one run per time, missed times, and a night that goes wrong."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry
from tursiops.celery import app
from tursiops.core.models import Event
from tursiops.evaluations import rows, schedules, tasks
from tursiops.evaluations.models import Baseline, Run, Schedule
from tursiops.registry.models import Alias

from tests import factories
from tests.platform.api_bases import CreateBase, DeleteBase, GetBase, ListBase, PatchBase, assert_error_shape
from tests.platform.evaluations.conftest import document, event_kinds, worked

pytestmark = pytest.mark.django_db
SCHEDULES = "/api/v1/evaluations/schedules"
MADE = datetime(2026, 12, 1, 12, tzinfo=UTC)
NIGHT = datetime(2026, 12, 2, 1, tzinfo=UTC)  # two o'clock in Berlin


class TestRest(ListBase, GetBase, CreateBase, PatchBase, DeleteBase):
    url = SCHEDULES
    make = staticmethod(lambda team: factories.make_schedule(team=team))
    patch_body = {"cron": "0 3 * * 1", "timezone": "Asia/Shanghai", "run_missed": False}

    def create_body(self, team):
        suite, deployment = factories.make_suite(team), factories.make_deployment(team)
        return {
            "name": factories.unique("schedule"),
            "suite": str(suite.pk),
            "deployment": str(deployment.pk),
            "cron": "0 2 * * *",
        }


@pytest.fixture
def nightly(api, member, suite, serving) -> Schedule:
    """Each night at two in Berlin, made at noon on 1 December 2026."""
    body = {"name": "nightly", "suite": str(suite.pk), "deployment": str(serving.pk)}
    answer = api(member).post(SCHEDULES, {**body, "cron": "0 2 * * *", "timezone": "Europe/Berlin"})
    assert answer.status_code == 201, answer.content
    Schedule.objects.update(fired_for=MADE)
    return Schedule.objects.get()


def fire(schedule: Schedule, at: datetime) -> Run | None:
    return schedules.fire(schedule_id=schedule.pk, now=at)


def test_it_tells_in_words_and_times_when_it_comes(api, member, nightly):
    shown = api(member).get(f"{SCHEDULES}/{nightly.pk}").json()
    assert shown["text"] == {"en": "Every day at 02:00 (Europe/Berlin)", "zh": "每天 02:00(Europe/Berlin)"}
    times = [datetime.fromisoformat(text).astimezone(ZoneInfo("Europe/Berlin")) for text in shown["next_times"]]
    assert [(at.hour, at.minute) for at in times] == [(2, 0)] * 5
    assert all(at > timezone.now() for at in times)
    assert api(member).patch(f"{SCHEDULES}/{nightly.pk}", {"enabled": False}).json()["next_times"] == []
    asked = api(member).get(f"{SCHEDULES}/times", {"cron": "30 3 * * 1-5"}).json()
    assert asked["text"]["en"] == "Monday to Friday at 03:30 (UTC)"
    assert len(asked["next_times"]) == 5
    error = assert_error_shape(api(member).get(f"{SCHEDULES}/times", {"cron": "30 3 * *"}), 400)
    assert set(error["fields"]) == {"cron"}


def test_celery_beat_sends_its_message_at_two_and_not_before(nightly, children):
    """beat's own entry, made from its own table, and the task that it names."""
    entry = ModelEntry(PeriodicTask.objects.get(pk=nightly.task_id), app=app)
    entry.last_run_at = MADE
    for now, due in ((NIGHT - timedelta(seconds=1), False), (NIGHT + timedelta(seconds=1), True)):
        entry.schedule.nowfun = lambda now=now: now
        assert entry.is_due().is_due is due
    Schedule.objects.update(fired_for=timezone.now() - timedelta(days=1))
    app.tasks[entry.task](*entry.args)
    assert Run.objects.get().schedule == nightly


def test_one_time_makes_one_run(nightly, children, member):
    assert fire(nightly, NIGHT - timedelta(seconds=1)) is None
    run = fire(nightly, NIGHT + timedelta(seconds=3))
    assert run is not None
    assert (run.schedule, run.requested_by, run.state) == (nightly, member, "queued")
    assert fire(nightly, NIGHT + timedelta(seconds=4)) is None  # the message came twice
    worked(run)
    assert fire(nightly, NIGHT + timedelta(days=1)) is not None
    nightly.refresh_from_db()
    assert (nightly.fired_for, nightly.missed) == (NIGHT + timedelta(days=1), 0)


def test_a_worker_that_is_killed_while_it_makes_the_run_does_not_lose_the_time(nightly, children, monkeypatch):
    def killed(**fields):
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(schedules.runs, "create_run", killed)
        with pytest.raises(SystemExit):
            fire(nightly, NIGHT)
    assert fire(nightly, NIGHT + timedelta(minutes=1)) is not None


@pytest.mark.parametrize("run_missed", [True, False])
def test_missed_times_are_told_and_run_once_or_left_out(nightly, children, team, run_missed):
    Schedule.objects.update(run_missed=run_missed)
    run = fire(nightly, NIGHT + timedelta(days=2, hours=5))  # the platform was down for three nights
    assert (run is not None) is run_missed
    nightly.refresh_from_db()
    assert (nightly.missed, nightly.fired_for) == (3, NIGHT + timedelta(days=2))
    assert nightly.reason == "3 of its times passed while the platform was down."
    told = Event.objects.get(team=team, kind="schedule.missed").text
    assert told.endswith("run once, late" if run_missed else "left out")
    assert fire(nightly, NIGHT + timedelta(days=2, hours=6)) is None


def test_one_that_is_off_or_gone_fires_nothing(api, member, nightly, children):
    url = f"{SCHEDULES}/{nightly.pk}"
    api(member).patch(url, {"enabled": False})
    assert PeriodicTask.objects.get(pk=nightly.task_id).enabled is False
    assert fire(nightly, NIGHT) is None
    Schedule.objects.update(fired_for=timezone.now() - timedelta(days=3))
    api(member).patch(url, {"enabled": True})
    assert fire(nightly, timezone.now()) is None  # what passed while it was off was not missed
    assert api(member).delete(url).status_code == 204
    assert not PeriodicTask.objects.filter(pk=nightly.task_id).exists()


def test_one_that_went_with_its_target_leaves_nothing_behind(nightly, serving):
    serving.current = None
    serving.save()
    serving.delete()
    assert not Schedule.objects.exists()
    tasks.fire_schedule_task(str(nightly.pk))  # beat does not know yet
    assert not PeriodicTask.objects.filter(pk=nightly.task_id).exists()


@pytest.mark.parametrize("why", ["stopped", "left", "viewer"])
def test_a_time_that_can_make_no_run_says_why(nightly, children, member, serving, team, why):
    if why == "stopped":
        type(serving).objects.update(desired="stopped")
    elif why == "left":
        type(member).objects.filter(pk=member.pk).update(is_active=False)
    else:
        member.memberships.update(role="viewer")
    assert fire(nightly, NIGHT) is None
    nightly.refresh_from_db()
    assert {"stopped": "is stopped"}.get(why, "may not start runs") in nightly.reason
    assert nightly.reason in Event.objects.get(team=team, kind="schedule.failed").text


def test_a_night_that_finds_a_regression_stops_the_move_in_the_morning(
    api, member, team, suite, serving, nightly, children
):
    """The whole path: the schedule fires, the run is worse than its baseline, the alias stays, and all say why."""
    good = worked(fire(nightly, NIGHT))
    assert Baseline.objects.get().run_id == good.pk
    model = serving.current.version.model
    champion = factories.make_version(model)
    factories.make_alias(champion)
    gate = factories.make_gate(suite, model=model, alias="champion", name="no slower")
    children.document = document(p95=1000.0)  # a quarter slower
    bad = worked(fire(nightly, NIGHT + timedelta(days=1)))
    assert [item["change"] for item in bad.regressions] == [0.25]
    url = f"/api/v1/models/{model.pk}/aliases/champion"
    error = assert_error_shape(api(member).put(url, {"version": str(serving.current.version_id)}), 409)
    assert error["message"] == (
        f"Gate no slower: e2el.p95 is 1000 ms in the run of {bad}, +25.0% from its baseline of 800 ms; "
        "the limit is 824 ms."
    )
    assert "run " + suite.name in error["hint"]
    assert Alias.objects.get(name="champion").version == champion
    assert {"evaluation.regressed", "move.refused"} <= set(event_kinds(team))
    told = api(member).get("/api/v1/events", {"subject_type": "model"}).json()["events"][-1]
    assert told["payload"]["refusals"][0]["detail"] == {
        "code": "regression",
        "gate": str(gate.pk),
        "gate_name": "no slower",
        "suite": str(suite.pk),
        "run": str(bad.pk),
        "figure": "e2el.p95",
        "value": 1000.0,
        "limit": 824.0,
        "unit": "ms",
        "baseline": 800.0,
    }
    children.document = document(p95=810.0)
    worked(fire(nightly, NIGHT + timedelta(days=2)))
    assert api(member).put(url, {"version": str(serving.current.version_id)}).status_code == 200
    last = api(member).get(f"{SCHEDULES}/{nightly.pk}").json()["last_run"]
    assert (last["verdict"], last["created_at"]) == ("pass", rows.time(Run.objects.first().created_at))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "0 2 * *"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"timezone": "Berlin"}, "timezone"),
        ({"deployment": str(uuid.uuid4())}, "deployment"),
        ({"interval": 3}, "interval"),
    ],
)
def test_what_can_never_fire_is_refused(api, member, team, fields, field):
    error = assert_error_shape(api(member).post(SCHEDULES, {**TestRest().create_body(team), **fields}), 400)
    assert field in error["fields"]
    assert not PeriodicTask.objects.filter(task=schedules.TASK).exists()
