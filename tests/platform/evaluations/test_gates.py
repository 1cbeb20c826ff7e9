"""Gates: what stops an alias and a rollout, what the refusal tells, and how an admin goes past it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.accounts.models import AuditEntry
from tursiops.core.models import Event
from tursiops.evaluations.models import Gate
from tursiops.registry.models import Alias

from tests import factories
from tests.platform.api_bases import CreateBase, DeleteBase, GetBase, ListBase, PatchBase, assert_error_shape

pytestmark = pytest.mark.django_db
GATES = "/api/v1/evaluations/gates"
FIGURES = {"e2el.p95": {"value": 812.0, "low": 800.0, "high": 830.0, "unit": "ms", "better": "lower"}}
WORSE = {
    "figure": "e2el.p95",
    "unit": "ms",
    "value": 812.0,
    "baseline": 700.0,
    "low": 690.0,
    "high": 710.0,
    "change": 0.16,
    "limit": 721.0,
}


class TestRest(ListBase, GetBase, CreateBase, PatchBase, DeleteBase):
    url = GATES
    make = staticmethod(lambda team: factories.make_gate(team=team))
    needs_create = needs_patch = needs_delete = "admin"
    patch_body = {"enabled": False, "max_age_days": 7}

    def create_body(self, team):
        suite, model = factories.make_suite(team), factories.make_model(team)
        return {"name": factories.unique("gate"), "kind": "alias", "model": str(model.pk), "suite": str(suite.pk)}


@pytest.fixture
def candidate(team):
    """Version 2 of a model whose champion is version 1."""
    alias = factories.make_alias(factories.make_version(team=team))
    return factories.make_version(alias.model)


def move(client, version, **body):
    url = f"/api/v1/models/{version.model_id}/aliases/champion"
    return client.put(url, {"version": str(version.pk), **body})


def gate_for(version, **fields) -> Gate:
    return factories.make_gate(team=version.model.team, model=version.model, **fields)


def measured(gate: Gate, version, **fields):
    """A run of the gate's suite on a deployment of that version."""
    deployment = factories.make_deployment(version=version)
    return factories.make_run(gate.suite, deployment=deployment, **{"figures": FIGURES, **fields})


def refusal(client, version) -> str:
    error = assert_error_shape(move(client, version), 409)
    assert error["code"] == "gate_not_met"
    assert Alias.objects.get().version.number == 1
    return error["fields"]["gates"][0]


def test_a_version_that_was_not_measured_is_not_moved_to(api, member, candidate):
    gate = gate_for(candidate)
    said = refusal(api(member), candidate)
    assert said == f"Gate {gate.name}: {gate.suite.name} has not run to its end on {candidate} in the last 30 days."
    measured(gate, candidate, finished_at=timezone.now() - timedelta(days=31))
    measured(gate, factories.make_version(candidate.model))  # another version's
    measured(gate, candidate, state="incomplete", verdict="")
    refusal(api(member), candidate)
    measured(gate, candidate)
    assert move(api(member), candidate).status_code == 200
    assert Alias.objects.get().version == candidate


def test_a_run_of_the_suite_as_it_was_is_no_evidence(api, member, candidate):
    gate = gate_for(candidate)
    measured(gate, candidate)
    factories.make_suite_version(gate.suite)
    assert refusal(api(member), candidate).endswith(f"{gate.suite.name} has changed since it last ran there.")
    measured(gate, candidate)
    assert move(api(member), candidate).status_code == 200


def test_a_run_that_a_gate_may_rest_on_is_deleted_by_admins_alone(api, member, admin, candidate):
    run = measured(gate_for(candidate), candidate, verdict="fail")
    url = f"/api/v1/evaluations/runs/{run.pk}"
    assert "only an admin of the team deletes its runs" in assert_error_shape(api(member).delete(url), 403)["message"]
    assert api(admin).delete(url).status_code == 204


@pytest.mark.parametrize(
    ("gate", "run", "says"),
    [
        ({}, {"verdict": "fail", "reason": "Too slow."}, "came out as fail. Too slow."),
        ({}, {"verdict": "undetermined"}, "came out as undetermined."),
        ({}, {"regressions": [WORSE]}, "e2el.p95 is 812 ms in the run of"),
        ({}, {"regressions": [WORSE]}, "+16.0% from its baseline of 700 ms; the limit is 721 ms."),
        ({"limits": [{"figure": "e2el.p95", "max": 500.0}]}, {}, "at most 500 ms is asked."),
        ({"limits": [{"figure": "e2el.p95", "min": 900.0}]}, {}, "at least 900 ms is asked."),
        ({"limits": [{"figure": "capacity", "min": 3.0}]}, {}, "did not measure capacity."),
    ],
)
def test_what_was_measured_must_meet_the_gate(api, member, candidate, gate, run, says):
    row = gate_for(candidate, **gate)
    evidence = measured(row, candidate, **run)
    said = refusal(api(member), candidate)
    assert said.startswith(f"Gate {row.name}: ")
    assert says in said
    event = Event.objects.get(kind="move.refused")
    assert (event.subject_type, event.subject_id) == ("model", candidate.model_id)
    assert event.text == f"A gate stopped moving champion of {candidate.model.name} to {candidate}. {said}"
    detail = event.payload["refusals"][0]["detail"]
    assert (detail["gate"], detail["run"]) == (str(row.pk), str(evidence.pk))
    wanted = 950.0 if "min" in str(gate) and "e2el" in str(gate) else 400.0
    better = {name: {**FIGURES["e2el.p95"], "value": wanted} for name in ("e2el.p95", "capacity")}
    measured(row, candidate, figures=better)
    assert move(api(member), candidate).status_code == 200  # the newest run counts


@pytest.mark.parametrize(
    ("fields", "stops"),
    [({"alias": "champion"}, True), ({"alias": "candidate"}, False), ({"enabled": False}, False)],
)
def test_a_gate_is_for_what_it_names(api, member, candidate, fields, stops):
    gate_for(candidate, **fields)
    assert move(api(member), candidate).status_code == (409 if stops else 200)


def test_an_alias_that_stays_meets_no_gate(api, member, candidate):
    gate_for(candidate)
    champion = candidate.model.versions.get(number=1)
    assert move(api(member), champion).status_code == 200


def test_an_admin_goes_past_with_a_reason_that_is_audited(api, member, admin, candidate):
    gate = gate_for(candidate)
    error = assert_error_shape(move(api(member), candidate, override="I say so"), 403)
    assert error["message"] == "Only an admin of the team goes past a gate."
    assert move(api(admin), candidate, override="The old one is broken.").status_code == 200
    assert Alias.objects.get().version == candidate
    entry = AuditEntry.objects.get(action="move.overridden")
    assert (entry.actor, entry.changes["override"]) == (admin.username, "The old one is broken.")
    assert entry.changes["refusals"][0]["detail"]["gate"] == str(gate.pk)
    assert Event.objects.filter(kind="move.overridden", text__contains="The old one is broken.").exists()


def test_a_rollout_meets_the_gates_of_its_deployment_and_a_rollback_none(api, member, admin, candidate, team):
    factories.make_node()
    champion = candidate.model.versions.get(number=1)
    deployment = factories.make_deployment(version=champion)
    gate = factories.make_gate(team=team, kind="rollout", deployment=deployment)
    url = f"/api/v1/deployments/{deployment.pk}"
    body = {"version": str(candidate.pk), "force": True}
    error = assert_error_shape(api(member).patch(url, body), 409)
    assert f"Gate {gate.name}" in error["fields"]["gates"][0]
    deployment.refresh_from_db()
    assert deployment.current.version == champion
    assert api(member).patch(url, {"max_num_seqs": 4, "force": True}).status_code == 200  # the same version
    assert api(admin).patch(url, {**body, "override": "tried by hand"}).status_code == 200
    assert api(member).post(f"{url}/rollback", {"revision": 1}).status_code == 200
    measured(gate, candidate)
    assert api(member).patch(url, body).status_code == 200


def test_a_move_can_be_asked_about_without_making_it(api, viewer, candidate, outsider):
    gate = gate_for(candidate, limits=[{"figure": "e2el.p95", "max": 500.0}])
    run = measured(gate, candidate)
    body = {"version": str(candidate.pk), "alias": "champion"}
    answer = api(viewer).post(f"{GATES}/check", body).json()
    assert (answer["allowed"], answer["move"]) == (False, f"moving champion of {candidate.model.name} to {candidate}")
    [refused] = answer["refusals"]
    assert (refused["detail"]["value"], refused["detail"]["limit"], refused["detail"]["run"]) == (
        812.0,
        500.0,
        str(run.pk),
    )
    assert not Event.objects.filter(kind="move.refused").exists()
    assert_error_shape(api(outsider).post(f"{GATES}/check", body), 400)
    assert_error_shape(api(viewer).post(f"{GATES}/check", {"version": str(candidate.pk)}), 400)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": None}, "model"),
        ({"kind": "rollout"}, "deployment"),
        ({"require_pass": False, "forbid_regression": False}, "limits"),
        ({"limits": [{"figure": "e2el.p95"}]}, "limits"),
        ({"limits": [{"figure": "e2el.p95", "most": 3}]}, "limits"),
        ({"max_age_days": 0}, "max_age_days"),
    ],
)
def test_a_gate_that_can_not_be_is_refused(api, admin, team, fields, field):
    body = {**TestRest().create_body(team), **fields}
    body = {name: value for name, value in body.items() if value is not None}
    assert field in assert_error_shape(api(admin).post(GATES, body), 400)["fields"]


def test_other_teams_gates_stop_nothing(api, member, candidate, other_team):
    factories.make_gate(team=other_team, model=candidate.model)
    assert move(api(member), candidate).status_code == 200
