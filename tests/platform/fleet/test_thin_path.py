"""From a REST call to a serving engine and back, with the real controller, node loop and engine processes."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.core.models import Event
from tursiops.deployments.controller import Controller
from tursiops.deployments.models import Deployment, Instance, InstanceState
from tursiops.fleet import wake
from tursiops.fleet.backends import probe
from tursiops.fleet.lease import Lease
from tursiops.fleet.models import Node
from tursiops.gateway import snapshot

from tests import factories
from tests.processes import alive

URL = "/api/v1/deployments"


@pytest.fixture
def system(host):
    """`until(condition)`: rounds of controller and node, in turn."""
    controller = Controller(Lease("controller", "test"))

    def until(done, seconds: float = 40) -> None:
        end = time.monotonic() + seconds
        while True:
            Node.objects.update(heartbeat_at=timezone.now())  # what the heart's thread does
            controller.tick()
            host.agent.tick()
            if done():
                return
            assert time.monotonic() < end, list(Instance.objects.values("index", "desired", "state", "reason"))
            time.sleep(0.05)

    yield until
    controller.close()


def routed() -> list[snapshot.InstanceEntry]:
    published = snapshot.unseal(wake.client().get(snapshot.REDIS_KEY))
    return [entry for route in published.routes for entry in route.instances if entry.state == "ready"]


@pytest.mark.slow
def test_create_scale_update_stop_delete(system, host, api, stored_version, tiny):
    client = api(_admin(stored_version.model.team))
    body = {"name": "tiny", "version": str(stored_version.pk), "replicas": {"unified": 1}, "engine": "tiny"}
    answer = client.post(URL, {**body, "max_model_len": 64})
    assert answer.status_code == 201, answer.content
    url = f"{URL}/{answer.json()['id']}"

    system(lambda: len(routed()) == 1)
    (entry,) = routed()
    assert probe.proves_token("127.0.0.1", int(entry.url.rpartition(":")[2]), entry.token)
    assert client.get(url).json()["state"] == "ready"

    client.post(f"{url}/scale", {"replicas": {"unified": 2}})
    system(lambda: len(routed()) == 2)
    pids = list(Instance.objects.values_list("pid", flat=True))

    # Case 19: one replica dies; it leaves the rotation while the other serves on.
    os.kill(pids[0], signal.SIGKILL)
    system(lambda: len(routed()) == 1)
    assert client.get(url).json()["state"] == "degraded"
    system(lambda: len(routed()) == 2)

    answer = client.patch(url, {"options": {"drain_s": 0.1}}).json()
    assert answer["restarts"] == ["options"]
    seen_ready = []

    def rolled() -> bool:
        seen_ready.append(len(routed()))
        rows = list(Instance.objects.values_list("revision__number", "state"))
        return rows == [(2, InstanceState.READY)] * 2

    system(rolled)
    assert min(seen_ready) >= 2, "a rolling update served with fewer replicas than before"

    pids = list(Instance.objects.values_list("pid", flat=True))
    client.post(f"{url}/scale", {"replicas": {"unified": 0}})
    system(lambda: not Instance.objects.exists())
    assert not any(alive(pid) for pid in pids)
    assert client.get(url).json()["state"] == "stopped"
    client.post(f"{url}/scale", {"replicas": {"unified": 1}})
    system(lambda: len(routed()) == 1)
    assert Instance.objects.get().index == 0

    assert client.delete(url).status_code == 204
    system(lambda: not Deployment.objects.exists())
    host.agent.tick()
    assert host.backend.runs() == []
    numbers = list(Event.objects.values_list("sequence", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_case_19_last_replica_gone_turns_the_deployment_off(system, host, tiny_deployment, team):
    deployment = tiny_deployment(exit_code=2)
    system(lambda: deployment.instances.filter(state=InstanceState.FAILED).exists())
    system(lambda: True)
    assert routed() == []
    (route,) = snapshot.unseal(wake.client().get(snapshot.REDIS_KEY)).routes
    assert "exit code 2" in route.reason


def test_case_12_node_that_lost_its_network_comes_back_and_takes_new_instances(host, tiny_deployment, monkeypatch):
    """One process of the node all along: nothing is installed or started anew to make it whole again."""
    controller = Controller(Lease("controller", "test"))
    controller.lease.hold()
    controller.lease.since = timezone.now() - timedelta(seconds=600)
    deployment = tiny_deployment()

    def until(done, *, reports: bool = True, seconds: float = 40) -> None:
        end = time.monotonic() + seconds
        while True:
            if reports:
                Node.objects.filter(pk=host.node.pk).update(heartbeat_at=timezone.now())
                host.agent.tick()
            controller.tick()
            if done():
                return
            assert time.monotonic() < end, list(Instance.objects.values("index", "node__name", "state", "reason"))
            time.sleep(0.05)

    until(lambda: len(routed()) == 1)
    first = Instance.objects.get()
    other = factories.make_node()  # a machine that only reports

    with monkeypatch.context() as network:
        network.setattr(probe, "health", lambda *_, **__: probe.Health(False, "unreachable"))
        long_ago = timezone.now() - timedelta(seconds=60)
        Node.objects.filter(pk=host.node.pk).update(heartbeat_at=long_ago, reachable_at=None)
        until(lambda: Instance.objects.filter(node=other).exists(), reports=False)
    assert not Instance.objects.filter(pk=first.pk).exists(), "its place went to the other node"
    assert alive(first.pid), "nobody could tell the engine"

    until(lambda: not host.backend.runs())
    assert not alive(first.pid), "the orphan was found and stopped"
    assert Instance.objects.get().node == other

    Node.objects.filter(pk=other.pk).update(cordoned=True)
    Deployment.objects.filter(pk=deployment.pk).update(replicas={"unified": 2})
    until(lambda: len(routed()) == 1)
    row = Instance.objects.get(node=host.node)
    assert row.state == InstanceState.READY
    assert alive(row.pid)
    controller.close()


def _admin(team):

    return factories.make_user(team, "admin")
