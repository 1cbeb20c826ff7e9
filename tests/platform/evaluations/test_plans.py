"""The planner behind REST: what it is asked, profiles of real usage, and a run that confirms a plan."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.evaluations import runs
from tursiops.evaluations.models import Plan, Run

from tests import factories
from tests.platform.api_bases import DeleteBase, GetBase, ListBase, assert_error_shape
from tests.platform.evaluations.conftest import document, worked

pytestmark = pytest.mark.django_db
PLANS = "/api/v1/evaluations/plans"
PROFILE = {
    "name": "chat",
    "arrivals": {"rate": 2.0},
    "lengths": {"pairs": [[200, 100], [400, 50]]},
    "slo": [{"metric": "e2el", "quantile": 0.95, "limit_ms": 5000}],
}
H200 = {"gpus": ["h200"], "requests": 100, "choices": 1}


class TestRest(ListBase, GetBase, DeleteBase):
    url = PLANS
    make = staticmethod(factories.make_plan)


@pytest.fixture
def asked(team) -> dict:
    version = factories.make_version(team=team)
    return {"profile": PROFILE, "version": str(version.pk), "constraints": H200}


def test_an_answer_is_the_planners_and_is_kept_only_as_a_plan(api, viewer, member, asked):
    answer = api(viewer).post("/api/v1/evaluations/plan", asked)
    assert answer.status_code == 200, answer.content
    assert answer.json()["choices"][0]["gpu"] == "h200"
    assert not Plan.objects.exists()
    assert_error_shape(api(viewer).post(PLANS, asked), 403)
    kept = api(member).post(PLANS, {**asked, "name": "for the shop"}).json()
    assert (kept["name"], kept["request"]["profile"]["name"]) == ("for the shop", "chat")
    assert kept["answer"]["choices"] == answer.json()["choices"]  # pure: the same question, the same answer


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"profile": {"name": "x"}}, "profile", "arrivals"),
        ({"profile": {**PROFILE, "lengths": {}}}, "profile", "pairs"),
        ({"version": None}, "version", "one of them"),
        ({"config": {"model_type": "llama"}}, "version", "one of them"),
        ({"constraints": {"max_gpu": 3}}, "constraints", "max_gpu"),
    ],
)
def test_what_can_not_be_planned_names_its_field(api, member, asked, fields, field, says):
    body = {name: value for name, value in {**asked, **fields}.items() if value is not None}
    error = assert_error_shape(api(member).post(PLANS, body), 400)
    assert says in error["fields"][field][0]


def test_other_teams_versions_are_not_planned_for(api, outsider, asked):
    assert set(assert_error_shape(api(outsider).post(PLANS, asked), 400)["fields"]) == {"version"}


def test_a_run_confirms_a_plan_with_residuals(api, member, team, asked, suite, serving, started, children):
    plan = api(member).post(PLANS, asked).json()
    run = started()
    body = {"run": str(run.pk)}
    linked = api(member).post(f"{PLANS}/{plan['id']}/confirm", body).json()
    assert (linked["run"], linked["residuals"]) == (str(run.pk), [])
    assert "is queued" in linked["reason"]
    children.document = document(p95=900.0)  # at 2 requests/s, the profile's peak
    worked(run)
    shown = api(member).get(f"{PLANS}/{plan['id']}").json()
    [residual] = [item for item in shown["residuals"] if item["metric"] == "e2el_p95"]
    assert (residual["measured"], shown["reason"], shown["choice"]) == (900.0, "", 0)
    assert residual["low"] < residual["high"]


@pytest.mark.parametrize("end", ["cancelled", "incomplete", "gone"])
def test_a_run_that_is_not_made_or_breaks_off_tells_its_plan(api, member, asked, started, children, end):
    plan = api(member).post(PLANS, asked).json()
    first = started()
    run = first if end == "incomplete" else started()
    api(member).post(f"{PLANS}/{plan['id']}/confirm", {"run": str(run.pk)})
    if end == "incomplete":
        children.act = "fail"
        worked(run)
    elif end == "cancelled":
        api(member).post(f"/api/v1/evaluations/runs/{run.pk}/cancel")
    else:
        Run.objects.filter(pk=run.pk).update(deployment=None)
        runs.start_waiting()
    assert f"is {'errored' if end == 'gone' else end}." in api(member).get(f"{PLANS}/{plan['id']}").json()["reason"]


def test_a_run_at_another_rate_confirms_nothing_and_says_why(api, member, asked, started, children):
    plan = api(member).post(PLANS, {**asked, "profile": {**PROFILE, "arrivals": {"rate": 9.0}}}).json()
    run = worked(started())
    linked = api(member).post(f"{PLANS}/{plan['id']}/confirm", {"run": str(run.pk)}).json()
    assert "the plan is for 9 requests/s" in linked["reason"]
    error = assert_error_shape(
        api(member).post(f"{PLANS}/{plan['id']}/confirm", {"run": str(run.pk), "choice": 7}), 400
    )
    assert set(error["fields"]) == {"choice"}


def test_a_profile_is_fitted_from_the_teams_own_requests(api, viewer, team, other_team):
    now = timezone.now()
    own = factories.make_api_key(team)
    of_a_run = factories.make_run(team=team, key=factories.make_api_key(team))

    def use(owner, count: int, prompt: int, key) -> None:
        for index in range(count):
            at = now - timedelta(seconds=60 + 7 * index)
            factories.make_usage(owner, started_at=at, prompt_tokens=prompt, completion_tokens=30, api_key_id=key)

    use(team, 25, 100, own.pk)
    use(team, 25, 999, of_a_run.key_id)  # evaluation's own requests are not the business's
    use(other_team, 25, 500, None)
    answer = api(viewer).post("/api/v1/evaluations/profile", {"name": "measured"})
    assert answer.status_code == 200, answer.content
    assert set(map(tuple, answer.json()["lengths"]["pairs"])) == {(100, 30)}
    body = {"name": "measured", "until": (now - timedelta(days=1)).isoformat()}
    error = assert_error_shape(api(viewer).post("/api/v1/evaluations/profile", body), 400)
    assert "needs 20" in error["fields"]["profile"][0]
