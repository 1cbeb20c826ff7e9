"""The reconciler as a pure function: whatever is desired and observed, its steps converge and then stop."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tursiops.deployments.models import Desired, InstanceState
from tursiops.deployments.plan import (
    Create,
    DeploymentView,
    FleetView,
    InstanceView,
    Place,
    Remove,
    RemoveDeployment,
    Stop,
    plan,
)

R1, R2 = uuid.UUID(int=1), uuid.UUID(int=2)
READY, PENDING, FAILED = InstanceState.READY, InstanceState.PENDING, InstanceState.FAILED
_ids = iter(range(100, 10**9))


def instance(index: int = 0, state=READY, *, revision=R1, node: str | None = "a", **fields) -> InstanceView:
    return InstanceView(uuid.UUID(int=next(_ids)), revision, "unified", index, state=state, node=node, **fields)


def deployment(*instances: InstanceView, count: int = 1, current=R1, desired=Desired.RUNNING) -> DeploymentView:
    return DeploymentView(R1, current, desired, {"unified": count}, tuple(instances))


def test_missing_instances_take_the_lowest_free_places():
    actions = plan(deployment(instance(1), count=4), FleetView())
    assert actions == [Create("unified", 0), Create("unified", 2), Create("unified", 3)]


def test_nothing_to_do_when_all_is_well():
    assert plan(deployment(instance(0), instance(1), count=2), FleetView()) == []


def test_unplaced_instance_is_placed():
    row = instance(0, PENDING, node=None)
    assert plan(deployment(row), FleetView()) == [Place(row.id)]


def test_scale_down_takes_the_unhealthy_first_then_the_highest_index():
    first, sick, last = instance(0), instance(1, FAILED), instance(2)
    assert [a.instance for a in plan(deployment(first, sick, last, count=2), FleetView())] == [sick.id]
    assert [a.instance for a in plan(deployment(first, last, count=1), FleetView())] == [last.id]


def test_case_17_surviving_replica_keeps_its_place_and_no_phantom_is_made():
    """Only index 2 is left of 0, 1, 2 after a scale-down; a controller that starts anew sees just that."""
    assert plan(deployment(instance(2), count=1), FleetView()) == []


def test_case_8_place_of_an_ending_instance_is_not_given_away():
    ending = instance(1, InstanceState.DRAINING, desired=Desired.STOPPED)
    assert plan(deployment(instance(0), ending, count=2), FleetView()) == [Create("unified", 2)]
    ended = replace(ending, state=InstanceState.STOPPED)
    assert plan(deployment(instance(0), ended, count=2), FleetView()) == [Remove(ended.id), Create("unified", 1)]


def test_case_10_instances_of_a_lost_node_are_replaced():
    row = instance(0, InstanceState.UNREACHABLE, node="gone")
    actions = plan(deployment(row), FleetView(lost=frozenset({"gone"})))
    assert [type(action) for action in actions] == [Stop, Create]
    assert "lost" in actions[0].reason


def test_case_11_nothing_is_evicted_while_most_nodes_are_silent():
    row = instance(0, InstanceState.UNREACHABLE, node="gone")
    assert plan(deployment(row), FleetView(lost=frozenset({"gone"}), frozen=True)) == []


def test_case_19_failed_replica_keeps_its_place_and_no_other_is_made_for_it():
    assert plan(deployment(instance(0), instance(1, FAILED), count=2), FleetView()) == []


def test_case_45_rolling_update_starts_new_waits_then_drains_old():
    old = [instance(0), instance(1)]
    assert plan(deployment(*old, count=2, current=R2), FleetView()) == [Create("unified", 2)]
    new = instance(2, InstanceState.STARTING, revision=R2)
    assert plan(deployment(*old, new, count=2, current=R2), FleetView()) == []
    actions = plan(deployment(*old, replace(new, state=READY), count=2, current=R2), FleetView())
    assert [type(action) for action in actions] == [Stop, Create]
    assert actions[0].instance == old[1].id


def test_roll_out_stops_at_a_failure_and_the_old_revision_serves_on():
    old, new = [instance(0), instance(1)], instance(2, FAILED, revision=R2)
    assert plan(deployment(*old, new, count=2, current=R2), FleetView()) == []


def test_failed_instances_of_the_old_revision_go_at_once():
    broken = instance(0, FAILED)
    actions = plan(deployment(broken, count=1, current=R2), FleetView())
    assert [type(action) for action in actions] == [Stop, Create]


def test_old_instance_makes_room_where_nothing_else_can():
    old = instance(0)
    new = instance(1, PENDING, revision=R2, node=None, makes_room=old.id)
    assert plan(deployment(old, new, count=1, current=R2), FleetView()) == [
        Stop(old.id, "A newer revision takes its place."),
        Place(new.id),
    ]


def test_draining_node_is_left_once_a_successor_is_ready():
    fleet = FleetView(draining=frozenset({"a"}))
    row = instance(0, node="a")
    assert plan(deployment(row), fleet) == [Create("unified", 1)]
    successor = instance(1, PENDING, node=None)
    assert plan(deployment(row, successor), fleet) == [Place(successor.id)]
    ready = replace(successor, state=READY, node="b")
    assert [a.instance for a in plan(deployment(row, ready), fleet)] == [row.id]


def test_delete_ends_in_removal():
    row = instance(0)
    assert [type(a) for a in plan(deployment(row, desired=Desired.DELETED), FleetView())] == [Stop]
    ended = replace(row, desired=Desired.STOPPED, state=InstanceState.STOPPED)
    actions = plan(deployment(ended, desired=Desired.DELETED), FleetView())
    assert actions == [Remove(ended.id), RemoveDeployment()]


def test_delete_does_not_wait_for_a_lost_node():
    row = instance(0, InstanceState.UNREACHABLE, node="gone", desired=Desired.STOPPED)
    actions = plan(deployment(row, desired=Desired.DELETED), FleetView(lost=frozenset({"gone"})))
    assert actions == [Remove(row.id), RemoveDeployment()]


def test_case_23_roles_scale_apart():
    view = DeploymentView(R1, R1, Desired.RUNNING, {"prefill": 1, "decode": 2}, ())
    assert plan(view, FleetView()) == [Create("decode", 0), Create("decode", 1), Create("prefill", 0)]


@dataclass
class World:
    """Nodes and instances that obey the plan, with slots for `room` instances per node."""

    view: DeploymentView
    room: int
    lost: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    gone: bool = False

    @property
    def fleet(self) -> FleetView:
        return FleetView(lost=frozenset(self.lost), draining=frozenset(self.draining))

    def change(self, changed: InstanceView) -> None:
        rows = tuple(changed if row.id == changed.id else row for row in self.view.instances)
        self.view = replace(self.view, instances=rows)

    def of(self, instance_id) -> InstanceView:
        return next(row for row in self.view.instances if row.id == instance_id)

    def obey(self, actions) -> None:
        for action in actions:
            match action:
                case Create(role, index):
                    assert (role, index) not in {(row.role, row.index) for row in self.view.instances}
                    row = InstanceView(uuid.UUID(int=next(_ids)), self.view.current, role, index)
                    self.view = replace(self.view, instances=(*self.view.instances, row))
                case Place(instance_id):
                    self.place(self.of(instance_id))
                case Stop(instance_id):
                    row = self.of(instance_id)
                    assert row.wanted, "stopped twice"
                    self.change(replace(row, desired=Desired.STOPPED))
                case Remove(instance_id):
                    assert not self.of(instance_id).wanted
                    rows = tuple(row for row in self.view.instances if row.id != instance_id)
                    self.view = replace(self.view, instances=rows)
                case RemoveDeployment():
                    assert not self.view.instances
                    self.gone = True

    def place(self, row: InstanceView) -> None:
        for node in ("a", "b", "c"):
            if node in self.lost or node in self.draining:
                continue
            users = [other for other in self.view.instances if other.node == node]
            if len(users) < self.room:
                self.change(replace(row, node=node, state=InstanceState.SCHEDULED, makes_room=None))
                return
            old = [other for other in users if other.wanted and other.revision != row.revision]
            if old:
                row = replace(row, makes_room=old[0].id)
        self.change(row)

    def nodes_act(self, draw) -> None:
        for row in self.view.instances:
            if row.node is None or row.node in self.lost:
                continue
            if not row.wanted:
                self.change(replace(row, state=draw([InstanceState.DRAINING, InstanceState.STOPPED])))
            elif row.state in (InstanceState.SCHEDULED, InstanceState.STARTING, InstanceState.UNREACHABLE):
                self.change(replace(row, state=draw([InstanceState.STARTING, READY])))


_changes = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 4)),
    st.tuples(st.just("revision"), st.sampled_from([R1, R2])),
    st.tuples(st.just("desired"), st.sampled_from([Desired.RUNNING, Desired.STOPPED])),
    st.tuples(st.just("crash"), st.integers(0, 5)),
    st.tuples(st.just("lose"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("return"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("drain"), st.sampled_from(["a", "b"])),
)


def _disturb(world: World, what: str, value) -> None:
    rows = world.view.instances
    if what == "scale":
        world.view = replace(world.view, replicas={"unified": value})
    elif what == "revision":
        world.view = replace(world.view, current=value)
    elif what == "desired":
        world.view = replace(world.view, desired=value)
    elif what == "crash" and value < len(rows) and rows[value].state == READY:
        world.change(replace(rows[value], state=InstanceState.SCHEDULED))
    elif what == "lose":
        world.lost.add(value)
        for row in rows:
            if row.node == value and row.state == READY:
                world.change(replace(row, state=InstanceState.UNREACHABLE))
    elif what == "return":
        world.lost.discard(value)
        world.draining.discard(value)
    elif what == "drain" and value not in world.lost:
        world.draining.add(value)


@settings(max_examples=120, deadline=None)
@given(script=st.lists(_changes, max_size=12), room=st.integers(2, 4), data=st.data())
def test_any_history_converges_and_stays(script, room, data):
    world = World(deployment(count=2), room)
    for what, value in script:
        _disturb(world, what, value)
        for _ in range(data.draw(st.integers(0, 3))):
            world.obey(plan(world.view, world.fleet))
            world.nodes_act(lambda choices: data.draw(st.sampled_from(choices)))
    for _ in range(40):  # left alone, every engine gets ready or ends
        world.obey(plan(world.view, world.fleet))
        world.nodes_act(lambda choices: choices[-1])
    wanted = world.view.replicas["unified"] if world.view.desired == Desired.RUNNING else 0
    places = room * len({"a", "b", "c"} - world.lost - world.draining)
    serving = [row for row in world.view.instances if row.state == READY and row.wanted]
    assert len(serving) <= wanted or world.draining
    assert len(serving) >= min(wanted, places)
    if wanted <= places:
        assert len(world.view.instances) == wanted
        assert all(row.revision == world.view.current for row in serving)
        assert plan(world.view, world.fleet) == [], "it goes on although nothing is left to do"


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 4), room=st.integers(2, 4))
def test_rolling_update_never_serves_less_than_before_where_there_is_room(count, room):
    world = World(deployment(count=count), room)
    for _ in range(10):
        world.obey(plan(world.view, world.fleet))
        world.nodes_act(lambda choices: choices[-1])
    world.view = replace(world.view, current=R2)
    for _ in range(40):
        world.obey(plan(world.view, world.fleet))
        serving = [row for row in world.view.instances if row.state == READY and row.wanted]
        assert len(serving) >= count
        world.nodes_act(lambda choices: choices[-1])
    assert {row.revision for row in world.view.instances} == {R2}


@pytest.mark.parametrize("state", list(InstanceState))
@pytest.mark.parametrize("desired", [Desired.RUNNING, Desired.STOPPED, Desired.DELETED])
def test_every_state_has_a_plan(state, desired):
    for wanted in (Desired.RUNNING, Desired.STOPPED):
        for node in ("a", "gone", None):
            row = instance(0, state, desired=wanted, node=node)
            for frozen in (True, False):
                plan(deployment(row, desired=desired), FleetView(lost=frozenset({"gone"}), frozen=frozen))
