"""Case 10 as people see it: REST and console never show the engine of a dead machine as running."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.deployments.models import Instance, InstanceState
from tursiops.fleet.health import LOST_AFTER_S, SUSPECT_AFTER_S
from tursiops.fleet.models import Node

from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(make_tiny, team, node):
    return factories.make_instance(make_tiny(team), node=node, state=InstanceState.READY, ready_at=timezone.now())


def heard(node: Node, heartbeat_s: float, reached_s: float | None = None) -> None:
    """Ages of the two signals."""
    now = timezone.now()
    reached = None if reached_s is None else now - timedelta(seconds=reached_s)
    Node.objects.filter(pk=node.pk).update(heartbeat_at=now - timedelta(seconds=heartbeat_s), reachable_at=reached)


def everywhere(client, row: Instance) -> dict[str, object]:
    """What each address says of one instance and its deployment."""
    deployment = client.get(f"/api/v1/deployments/{row.deployment_id}").json()
    (listed,) = client.get("/api/v1/deployments").json()["results"]
    (node,) = client.get("/api/v1/nodes").json()["results"]
    overview = client.get("/api/v1/overview").json()
    return {
        "instance": client.get(f"/api/v1/instances/{row.pk}").json()["state"],
        "in its deployment": deployment["instances"][0]["state"],
        "in the list": listed["instances"][0]["state"],
        "on its node": node["instances"][0]["state"],
        "on the node's page": client.get(f"/api/v1/nodes/{node['id']}").json()["instances"][0]["state"],
        "on the overview's node": overview["nodes"][0]["instances"][0]["state"],
        "ready": (deployment["ready"]["unified"], listed["ready"]["unified"], overview["instances"]["ready"]),
        "deployments ready": overview["deployments"]["ready"],
    }


@pytest.mark.parametrize("silent_s", [SUSPECT_AFTER_S, LOST_AFTER_S + 1, 86_400])
@pytest.mark.parametrize("state", [InstanceState.READY, InstanceState.STARTING, InstanceState.DRAINING])
def test_case_10_dead_node_s_instances_are_nowhere_shown_as_running(api, viewer, running, node, state, silent_s):
    """No controller looks here: it may have died with the machine."""
    Instance.objects.update(state=state)
    heard(node, silent_s)
    said = everywhere(api(viewer), running)
    assert said.pop("ready") == (0, 0, 0)
    assert said.pop("deployments ready") == 0
    assert set(said.values()) == {"unreachable"}, said
    answer = api(viewer).get(f"/api/v1/deployments/{running.deployment_id}").json()
    assert answer["state"] != "ready"
    assert "No heartbeat" in answer["instances"][0]["reason"]
    assert "No heartbeat" in answer["reason"]
    running.refresh_from_db()
    assert running.state == state, "showing writes nothing"


@pytest.mark.parametrize(("heartbeat_s", "reached_s"), [(0, None), (SUSPECT_AFTER_S - 2, None), (300, 3)])
def test_one_signal_is_enough_to_be_shown_as_running(api, viewer, running, node, heartbeat_s, reached_s):
    heard(node, heartbeat_s, reached_s)
    said = everywhere(api(viewer), running)
    assert said.pop("ready") == (1, 1, 1)
    assert said.pop("deployments ready") == 1
    assert set(said.values()) == {"ready"}, said


def test_case_10_second_signal_must_be_fresh(api, viewer, running, node):
    heard(node, 300, SUSPECT_AFTER_S + 1)
    assert everywhere(api(viewer), running)["instance"] == "unreachable"


@pytest.mark.parametrize("state", [InstanceState.FAILED, InstanceState.STOPPED, InstanceState.SCHEDULED])
def test_what_does_not_run_keeps_its_own_reason(api, viewer, running, node, state):
    Instance.objects.update(state=state, reason="Exit code 2.")
    heard(node, 300)
    answer = api(viewer).get(f"/api/v1/instances/{running.pk}").json()
    assert (answer["state"], answer["reason"]) == (state, "Exit code 2.")
