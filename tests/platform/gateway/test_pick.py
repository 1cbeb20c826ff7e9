"""`pick` is a pure function: thousands of random snapshots, and the few that matter."""

import random

from tursiops.gateway.pick import Load, PickRequest, pick
from tursiops.gateway.snapshot import InstanceEntry, RouteEntry, Snapshot

from tests.gateway_bench import TEAM


def snapshot(*instances):
    return Snapshot(routes=(RouteEntry(team=TEAM, name="m", deployment="d", instances=instances),))


def entry(name, **fields):
    return InstanceEntry(id=name, url=f"http://{name}", token="t", **fields)


def choose(*instances, loads=None, tried=()):
    return pick(PickRequest(TEAM, "m", frozenset(tried)), snapshot(*instances), loads or {})


def test_thousands_of_random_snapshots():
    rng = random.Random(1)
    for _ in range(5_000):
        instances = [
            entry(
                f"i{index}",
                state=rng.choice(["ready", "ready", "draining"]),
                role=rng.choice(["unified", "unified", "decode", "prefill"]),
                weight=rng.choice([0.0, 0.5, 1.0, 2.0]),
            )
            for index in range(rng.randrange(6))
        ]
        seen = [i for i in instances if rng.random() < 0.8]
        loads = {i.id: Load(rng.randrange(5), rng.randrange(50), rng.random() < 0.2) for i in seen}
        tried = {i.id for i in instances if rng.random() < 0.2}
        decision = choose(*instances, loads=loads, tried=tried)
        again = choose(*instances, loads=loads, tried=tried)
        assert decision == again
        able = [i for i in instances if i.state == "ready" and i.role != "prefill" and i.weight > 0]
        fresh = [i for i in able if i.id not in tried and not loads.get(i.id, Load()).cooling]
        assert (decision.instance is None) == (not able)
        if decision.instance is None:
            assert decision.reason == "no instance is ready"
            assert len(decision.rejected) == len(instances)
            continue
        assert decision.instance in (fresh or able)
        if fresh:
            share = {i.id: (loads.get(i.id, Load()).in_flight + 1) / i.weight for i in fresh}
            assert share[decision.instance.id] == min(share.values())
        assert {name for name, _ in decision.rejected} == {i.id for i in instances} - {decision.instance.id}
        assert all(reason for _, reason in decision.rejected)
        assert decision.reason.isascii()


def test_equal_loads_take_turns():
    counts = {"a": 0, "b": 0, "c": 0}
    for _ in range(30):
        chosen = choose(*(entry(name) for name in counts), loads={name: Load(0, n) for name, n in counts.items()})
        counts[chosen.instance.id] += 1
    assert set(counts.values()) == {10}


def test_weights_share_the_load():
    running = {"small": 0, "big": 0}
    for _ in range(40):
        loads = {name: Load(count) for name, count in running.items()}
        running[choose(entry("small"), entry("big", weight=3.0), loads=loads).instance.id] += 1
    assert running == {"small": 10, "big": 30}


def test_the_failed_one_is_the_last_choice_not_none():
    decision = choose(entry("a"), tried={"a"})
    assert (decision.instance.id, decision.reason) == ("a", "no other instance")
    decision = choose(entry("a"), entry("b"), loads={"a": Load(cooling=True), "b": Load(in_flight=9)})
    assert decision.instance.id == "b"
    assert ("a", "failed a moment ago") in decision.rejected


def test_unknown_route():
    assert pick(PickRequest("other", "m"), snapshot(entry("a")), {}).reason == "unknown model"
