"""The controller against rows: who leads, what it does, what gateways are told."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.core.models import Event
from tursiops.deployments import apply, plan, publish
from tursiops.deployments.controller import Controller
from tursiops.deployments.models import Deployment, Desired, Instance, InstanceState
from tursiops.fleet import wake
from tursiops.fleet.backends import probe
from tursiops.fleet.lease import LEASE_S, RENEW_S, Lease
from tursiops.fleet.models import ControllerLease, Node
from tursiops.gateway import snapshot
from tursiops.secrets import seal_instance_token

from tests import factories

pytestmark = pytest.mark.django_db


def later(seconds: float):
    return timezone.now() + timedelta(seconds=seconds)


@pytest.fixture
def controller():
    wake.client().delete(snapshot.REDIS_KEY)
    made = Controller(Lease("controller", "me"))
    yield made
    made.close()


def lead_long_enough(controller: Controller) -> None:
    """A controller that has watched for as long as a loss takes."""
    controller.lease.hold()
    controller.lease.since = later(-600)


def make_ready(row: Instance, port: int = 9, epoch: int = 1) -> None:
    Instance.objects.filter(pk=row.pk).update(
        state=InstanceState.READY,
        port=port,
        address="127.0.0.1",
        epoch=epoch,
        token_encrypted=seal_instance_token("secret"),
        ready_at=timezone.now(),
    )


def silence(node: Node, seconds: float) -> None:
    Node.objects.filter(pk=node.pk).update(heartbeat_at=later(-seconds), reachable_at=None)


def states() -> list[tuple[int, str, str]]:
    return list(Instance.objects.order_by("role", "index").values_list("index", "desired", "state"))


def test_two_controllers_one_leads():
    first, second = Controller(Lease("controller", "a")), Controller(Lease("controller", "b"))
    assert first.tick()
    assert not second.tick()
    first.close()
    assert second.tick()
    assert not first.tick()
    second.close()


def test_lease_of_a_dead_leader_runs_out():
    dead, heir = Lease("controller", "a"), Lease("controller", "b")
    assert dead.hold()
    assert not heir.hold(later(LEASE_S - 1))
    assert heir.hold(later(LEASE_S + 1))
    assert not dead.hold(later(RENEW_S + 1))
    assert ControllerLease.objects.get().holder == "b"


def test_two_leaders_may_act_at_once_without_harm(make_tiny, node):
    """Two controllers that both believe to lead carry out the same plan: each step takes effect once."""
    deployment = make_tiny(replicas={"unified": 1})
    for _ in range(2):
        apply.apply(deployment, plan.Create("unified", 0))
    row = Instance.objects.get()
    for _ in range(2):
        apply.apply(deployment, plan.Place(row.pk))
        apply.apply(deployment, plan.Stop(row.pk, "why"))
    for _ in range(2):
        apply.apply(deployment, plan.Remove(row.pk))
    kinds = list(Event.objects.values_list("kind", flat=True))
    assert kinds == ["instance.pending", "instance.scheduled", "instance.stopping", "instance.removed"]


def test_overtaken_steps_change_nothing(make_tiny, node):
    deployment = make_tiny()
    stale = Deployment.objects.get(pk=deployment.pk)
    Deployment.objects.update(desired=Desired.STOPPED)
    apply.apply(stale, plan.Create("unified", 0))
    assert not Instance.objects.exists()
    row = factories.make_instance(deployment)
    apply.apply(stale, plan.Remove(row.pk))
    apply.apply(stale, plan.RemoveDeployment())
    assert Instance.objects.exists()
    assert Deployment.objects.exists()


def test_creates_places_and_leaves_events(controller, make_tiny, node):
    make_tiny(replicas={"unified": 2})
    controller.tick()
    controller.tick()
    rows = list(Instance.objects.all())
    assert [row.state for row in rows] == ["scheduled", "scheduled"]
    assert all(row.node == node and row.placement["chosen"] == node.name for row in rows)
    assert Event.objects.filter(kind="instance.scheduled").count() == 2
    before = Event.objects.count()
    controller.tick()
    assert Event.objects.count() == before, "an idle round wrote events"


def test_case_8_scale_0_2_0_frees_places(controller, make_tiny, node):
    deployment = make_tiny(replicas={"unified": 2})
    for _ in range(2):
        controller.tick()
    Deployment.objects.update(replicas={"unified": 0})
    controller.tick()
    assert states() == [(0, "stopped", "scheduled"), (1, "stopped", "scheduled")]
    Instance.objects.update(state=InstanceState.STOPPED)
    controller.tick()
    assert states() == []
    Deployment.objects.filter(pk=deployment.pk).update(replicas={"unified": 1})
    controller.tick()
    assert [index for index, _, _ in states()] == [0]


def test_case_5_pending_instance_says_why_and_tells_it_once(controller, make_tiny, node):
    make_tiny(revision={"device": "cuda"})
    for _ in range(3):
        controller.tick()
    row = Instance.objects.get()
    assert row.state == InstanceState.PENDING
    assert "It has no GPU" in row.reason
    assert Event.objects.filter(kind="instance.pending").count() == 2  # made; and why it waits


def test_promised_memory_is_not_given_twice(controller, make_tiny):
    """Both replicas would fit into what is measured free now, one alone into what will be."""
    factories.make_node(memory_total=32 * 10**9, memory_available=500_000_000)
    make_tiny(replicas={"unified": 2})
    for _ in range(3):
        controller.tick()
    assert [state for _, _, state in states()] == ["scheduled", "pending"]
    assert "Memory" in Instance.objects.get(index=1).reason


def test_delete_removes_all(controller, make_tiny, node):
    deployment = make_tiny()
    for _ in range(2):
        controller.tick()
    Deployment.objects.update(desired=Desired.DELETED)
    controller.tick()
    assert [desired for _, desired, _ in states()] == ["stopped"]
    Instance.objects.update(state=InstanceState.STOPPED)
    controller.tick()
    assert not Deployment.objects.filter(pk=deployment.pk).exists()
    assert Event.objects.last().kind == "deployment.removed"


def test_case_23_deleting_a_deployment_of_two_roles_removes_all(controller, make_tiny, node):
    make_tiny(replicas={"prefill": 1, "decode": 2})
    for _ in range(2):
        controller.tick()
    assert Instance.objects.count() == 3
    Deployment.objects.update(replicas={"prefill": 1, "decode": 1})
    controller.tick()
    assert Instance.objects.filter(role="decode", desired=Desired.STOPPED).count() == 1
    Deployment.objects.update(desired=Desired.DELETED)
    controller.tick()
    Instance.objects.update(state=InstanceState.STOPPED)
    controller.tick()
    assert not Deployment.objects.exists()


def test_rolling_update_where_only_one_fits(controller, make_tiny):
    """No room for both: the old one goes first, because its end is what makes room."""
    node = factories.make_node(memory_total=500_000_000, memory_available=450_000_000)
    deployment = make_tiny()
    for _ in range(2):
        controller.tick()
    old = Instance.objects.get()
    make_ready(old)
    Node.objects.update(memory_available=100_000_000)
    deployment.current = factories.make_revision(deployment, version=deployment.current.version, engine="tiny")
    deployment.save()
    for _ in range(3):
        controller.tick()
    old.refresh_from_db()
    assert old.desired == Desired.STOPPED
    Instance.objects.filter(pk=old.pk).update(state=InstanceState.STOPPED)
    Node.objects.update(memory_available=450_000_000)
    controller.tick()
    controller.tick()
    (row,) = Instance.objects.all()
    assert (row.node, row.revision) == (node, deployment.current)


def test_rolling_update_that_fits_nowhere_keeps_the_old_one(controller, make_tiny, node):
    deployment = make_tiny()
    for _ in range(2):
        controller.tick()
    make_ready(Instance.objects.get())
    version = factories.make_version(team=deployment.team, size_bytes=99 * 10**9)
    deployment.current = factories.make_revision(deployment, version=version, engine="tiny")
    deployment.save()
    for _ in range(4):
        controller.tick()
    assert states() == [(0, "running", "ready"), (1, "running", "pending")]


def test_case_10_instances_of_a_dead_node_leave_ready_and_are_replaced(controller, make_tiny):
    dead, alive = factories.make_node(), factories.make_node()
    deployment = make_tiny()
    row = factories.make_instance(deployment, node=dead)
    make_ready(row)  # nothing listens on its port
    lead_long_enough(controller)
    silence(dead, 16)
    controller.tick()
    row.refresh_from_db()
    assert (row.state, row.desired) == (InstanceState.UNREACHABLE, Desired.RUNNING)
    assert "does not answer" in row.reason
    silence(dead, 31)
    for _ in range(3):
        controller.tick()
    (replacement,) = Instance.objects.all()
    assert replacement.pk != row.pk
    assert replacement.node == alive
    kinds = set(Event.objects.values_list("kind", flat=True))
    assert {"instance.unreachable", "instance.removed", "node.suspect", "node.lost"} - kinds == {"node.suspect"}


def test_new_leader_evicts_nothing_at_once(controller, make_tiny):
    dead, _ = factories.make_node(), factories.make_node()
    row = factories.make_instance(make_tiny(), node=dead)
    make_ready(row)
    silence(dead, 300)
    for _ in range(3):
        controller.tick()
    assert states() == [(0, "running", "unreachable")]


def test_case_11_majority_silent_freezes_and_tells(controller, make_tiny):
    nodes = [factories.make_node() for _ in range(3)]
    deployment = make_tiny(replicas={"unified": 3})
    for node in nodes:
        make_ready(factories.make_instance(deployment, node=node))
    lead_long_enough(controller)
    controller.tick()
    silence(nodes[0], 40)
    silence(nodes[1], 40)
    for _ in range(3):
        controller.tick()
    assert [desired for _, desired, _ in states()] == ["running"] * 3
    assert Event.objects.filter(kind="fleet.majority_silent").count() == 1
    # The gateway may still reach what only the controller lost.
    (route,) = _published().routes
    assert len(route.instances) == 3
    Node.objects.update(heartbeat_at=timezone.now())
    controller.tick()
    assert Event.objects.filter(kind="fleet.majority_back").count() == 1


def test_silent_node_whose_engines_answer_keeps_serving(controller, make_tiny, monkeypatch):
    """The second signal: the node process is down, its engines are not."""
    silent, _ = factories.make_node(), factories.make_node()
    row = factories.make_instance(make_tiny(), node=silent)
    make_ready(row)
    lead_long_enough(controller)
    silence(silent, 300)
    monkeypatch.setattr(probe, "health", lambda *_, **__: probe.Health(True, ""))
    controller.tick()
    row.refresh_from_db()
    assert (row.state, row.desired) == (InstanceState.READY, Desired.RUNNING)
    silent.refresh_from_db()
    assert silent.reachable_at is not None


def _published() -> snapshot.Snapshot:
    return snapshot.unseal(wake.client().get(snapshot.REDIS_KEY))


def test_snapshot_holds_keys_and_routes(controller, make_tiny, node, team):
    deployment = make_tiny(team)
    ready = factories.make_instance(deployment, node=node)
    make_ready(ready, port=1234, epoch=7)
    factories.make_instance(deployment, node=node, state=InstanceState.STARTING)
    key = factories.make_api_key(team, requests_per_minute=60)
    factories.make_api_key(team, revoked_at=timezone.now())
    factories.make_api_key(team, expires_at=later(-1))
    controller.tick()
    published = _published()
    assert list(published.keys) == [key.sha256]
    assert published.keys[key.sha256].rpm == 60
    (route,) = published.routes
    assert (route.team, route.name, route.context_length) == (str(team.pk), deployment.name, 8192)
    (entry,) = route.instances
    assert (entry.id, entry.url, entry.token) == (str(ready.pk), "http://127.0.0.1:1234", "secret")
    assert (entry.epoch, entry.state) == (7, "ready")


def test_snapshot_version_rises_with_content_only(controller, make_tiny, node, monkeypatch):
    make_tiny(replicas={"unified": 0})
    controller.tick()
    first = _published()
    monkeypatch.setattr(publish, "REFRESH_S", 0.0)
    time.sleep(0.01)
    controller.tick()
    second = _published()
    assert second.version == first.version
    assert second.generated_at > first.generated_at
    factories.make_api_key()
    controller.tick()
    assert _published().version > first.version


def test_new_leader_goes_on_from_the_published_version(controller, make_tiny, node):
    make_tiny(replicas={"unified": 0})
    controller.tick()
    first = _published()
    controller.close()
    Controller(Lease("controller", "other")).tick()
    assert _published().version == first.version


def test_revoked_key_is_gone_at_the_next_round(controller, team):
    key = factories.make_api_key(team)
    controller.tick()
    assert key.sha256 in _published().keys
    type(key).objects.update(revoked_at=timezone.now())
    controller.tick()
    assert _published().keys == {}


def test_instance_that_is_to_stop_takes_no_new_requests(controller, make_tiny, node):
    row = factories.make_instance(make_tiny(), node=node, desired=Desired.STOPPED)
    make_ready(row)
    controller.tick()
    (route,) = _published().routes
    assert [entry.state for entry in route.instances] == ["draining"]


def test_route_without_instances_says_why(controller, make_tiny, node):
    make_tiny(desired=Desired.STOPPED)
    controller.tick()
    (route,) = _published().routes
    assert (route.desired, route.instances) == ("stopped", ())
    assert "stopped" in route.reason


def test_one_broken_deployment_does_not_stop_the_others(controller, make_tiny, node, monkeypatch):
    broken, fine = make_tiny(), make_tiny()
    real = apply.create_instance

    def create(deployment, role, index):
        if deployment.pk == broken.pk:
            raise RuntimeError("boom")
        real(deployment, role, index)

    monkeypatch.setattr(apply, "create_instance", create)
    controller.tick()
    assert [row.deployment_id for row in Instance.objects.all()] == [fine.pk]


def test_chores_run_and_a_failing_one_stops_nothing():
    ran = []

    def broken():
        raise RuntimeError("boom")

    controller = Controller(Lease("controller", "me"), chores=(broken, lambda: ran.append(1)))
    controller.tick()
    assert ran == [1]
    controller.close()
