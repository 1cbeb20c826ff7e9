"""Placement as a pure function: filter, fit, score, and the reason of every rejection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tursiops.fleet.placement import GpuRoom, NodeRoom, Requirement, place

from engines.api import Fit

GIB = 2**30


def needs(total: int):
    def fit(device: str, available: int) -> Fit:
        return Fit(
            weights=total,
            kv_cache=0,
            activations=0,
            overhead=0,
            available=available,
            fits=total <= available,
            kv_tokens=0,
            reason="" if total <= available else f"{total - available} bytes too many.",
        )

    return fit


def gpu(index: int, free: float, total: float = 24) -> GpuRoom:
    return GpuRoom(index, "L20", int(total * GIB), int(free * GIB))


def node(name: str, *, free: float = 24, gpus=(), state: str = "ready", reason: str = "", **fields) -> NodeRoom:
    return NodeRoom(name, state, reason, 32 * GIB, int(free * GIB), tuple(gpus), **fields)


def test_case_1_share_on_a_gpu_is_never_more_than_its_free_memory():
    partly_used = node("a", gpus=[gpu(0, free=20), gpu(1, free=24)])
    outcome = place(Requirement(needs(43 * GIB), "cuda", gpus=2), [partly_used])
    assert outcome.chosen is None
    assert "GPU 0 has 20.00 GiB free of 24.00 GiB" in outcome.reason
    assert "its share is 21.50 GiB" in outcome.reason
    outcome = place(Requirement(needs(40 * GIB), "cuda", gpus=2), [partly_used])
    assert outcome.chosen is not None
    assert outcome.chosen.gpu_indices == (0, 1)


@given(
    free=st.lists(st.integers(0, 24), min_size=1, max_size=6),
    need=st.integers(1, 100),
    gpus=st.integers(1, 6),
)
def test_case_1_holds_for_any_free_memory(free, need, gpus):
    host = node("a", gpus=[gpu(index, each) for index, each in enumerate(free)])
    chosen = place(Requirement(needs(need * GIB), "cuda", gpus=gpus), [host]).chosen
    possible = len(free) >= gpus and sorted(free, reverse=True)[gpus - 1] * gpus >= need
    assert (chosen is not None) == possible
    if chosen is not None:
        assert len(set(chosen.gpu_indices)) == gpus
        assert all(need / gpus <= free[index] for index in chosen.gpu_indices)


def test_case_5_says_which_filter_removed_whom():
    nodes = [
        node("a", state="cordoned", reason="An admin closed it."),
        node("b", state="lost", reason="No heartbeat for 90 s."),
        node("c", gpus=[]),
    ]
    outcome = place(Requirement(needs(GIB), "cuda"), nodes)
    assert outcome.chosen is None
    assert {item.node: item.filter for item in outcome.rejected} == {"a": "state", "b": "state", "c": "device"}
    assert "a: It is cordoned: An admin closed it." in outcome.reason
    assert "c: It has no GPU" in outcome.reason
    assert " 0 " not in outcome.reason


def test_case_5_no_node_at_all_says_what_to_start():
    assert "manage.py node" in place(Requirement(needs(GIB)), []).reason


def test_case_5_unknown_pin_names_the_known_nodes():
    outcome = place(Requirement(needs(GIB), node_name="z"), [node("a"), node("b")])
    assert outcome.reason == "The deployment is pinned to node z, which is unknown. Known: a, b."


def test_case_5_a_pin_hides_the_reasons_of_other_nodes():
    outcome = place(Requirement(needs(99 * GIB), node_name="a"), [node("a"), node("b", free=200)])
    assert outcome.chosen is None
    assert "a: Memory" in outcome.reason
    assert "b:" not in outcome.reason


def test_case_6_chosen_gpu_that_is_offline_is_named_and_nothing_else_is_taken():
    host = node("a", gpus=[gpu(0, 24), gpu(1, 24)])
    outcome = place(Requirement(needs(GIB), "auto", gpu_indices=(3,)), [host, node("b", free=100)])
    assert outcome.chosen is None
    assert "GPU 3" in outcome.reason
    assert "offline or absent" in outcome.reason


def test_case_6_chosen_gpu_that_is_too_small_is_named_and_no_other_gpu_is_taken():
    host = node("a", gpus=[gpu(0, 2), gpu(1, 24)])
    outcome = place(Requirement(needs(5 * GIB), "cuda", gpu_indices=(0,)), [host])
    assert outcome.chosen is None
    assert "GPU 0 has 2.00 GiB free of 24.00 GiB" in outcome.reason
    assert "GPU 1" not in outcome.reason


def test_case_6_auto_never_falls_back_to_the_processor_of_a_gpu_node():
    outcome = place(Requirement(needs(5 * GIB)), [node("a", free=100, gpus=[gpu(0, 2)])])
    assert outcome.chosen is None
    assert outcome.short_of_memory


def test_case_8_fourth_replica_gets_its_full_gpu_set_again():
    """4 → 2 → 4 with two GPUs per replica: rooms are rebuilt from what runs, so the freed GPUs are free."""
    requirement = Requirement(needs(40 * GIB), "cuda", gpus=2)
    free = dict.fromkeys(range(8), 24.0)
    sets: list[tuple[int, ...]] = []

    def add() -> None:
        chosen = place(requirement, [node("a", gpus=[gpu(index, each) for index, each in free.items()])]).chosen
        assert chosen is not None
        sets.append(chosen.gpu_indices)
        free.update(dict.fromkeys(chosen.gpu_indices, 4.0))

    for _ in range(4):
        add()
    assert sorted(index for each in sets for index in each) == list(range(8))
    for each in (sets.pop(), sets.pop()):
        free.update(dict.fromkeys(each, 24.0))
    add()
    add()
    assert sorted(index for each in sets for index in each) == list(range(8))


def test_replicas_are_spread_over_equal_nodes():
    chosen = place(Requirement(needs(GIB)), [node("a", replicas_here=1), node("b")]).chosen
    assert chosen is not None
    assert chosen.node == "b"


def test_the_loser_is_told_too():
    outcome = place(Requirement(needs(GIB)), [node("a", free=10), node("b", free=20)])
    assert outcome.as_dict()["rejected"][0]["node"] == "a"
    assert "b scored higher" in outcome.rejected[0].reason


@pytest.mark.parametrize("state", ["suspect", "lost", "cordoned", "draining"])
def test_only_ready_nodes_are_used(state):
    assert place(Requirement(needs(1)), [node("a", state=state)]).chosen is None


def test_offloaded_weights_need_the_host_s_memory_too():
    def fit(device: str, available: int) -> Fit:
        return Fit(GIB, 0, 0, 0, available, True, 0, "", host=12 * GIB)

    hosts = [node(name, free=free, gpus=[gpu(0, free=20)]) for name, free in (("large", 16), ("small", 8))]
    outcome = place(Requirement(fit, "cuda"), hosts)
    assert outcome.chosen is not None
    assert outcome.chosen.node == "large"
    [rejected] = outcome.rejected
    assert rejected.reason == "Host memory: 8.00 GiB free of 32.00 GiB, offloaded weights need 12.00 GiB."
