from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.fleet.health import NodeState, majority_silent, node_health
from tursiops.fleet.models import Node

NOW = timezone.now()


def node(age: float | None, reached: float | None = None, **fields) -> Node:
    def at(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    return Node(name=f"n{age}", heartbeat_at=at(age), reachable_at=at(reached), **fields)


@pytest.mark.parametrize(
    ("row", "state", "words"),
    [
        (node(2), NodeState.READY, ""),
        (node(14), NodeState.READY, ""),
        (node(16), NodeState.SUSPECT, "No heartbeat for 16 s"),
        (node(40), NodeState.LOST, "its engines do not answer"),
        (node(40, reached=3), NodeState.SUSPECT, "its engines answer"),
        (node(40, reached=30), NodeState.LOST, "Check the host"),
        (node(None), NodeState.LOST, "never reported"),
        (node(1, cordoned=True), NodeState.CORDONED, "closed"),
        (node(1, cordoned=True, draining=True), NodeState.DRAINING, "moved"),
        (node(16, cordoned=True), NodeState.SUSPECT, "No heartbeat"),
    ],
)
def test_state_and_reason(row, state, words):
    health = node_health(row, NOW)
    assert health.state == state
    assert words in health.reason
    assert bool(health.reason) == (state != NodeState.READY)


@pytest.mark.parametrize(
    ("ages", "silent"),
    [
        ([1, 1, 20], False),
        ([1, 20, 20], True),
        ([1, 20], False),
        ([20], True),
        ([], False),
        ([1, 700, 700, 700], False),  # long gone: no vote
        ([1, 20, None, None], False),
    ],
)
def test_case_11_majority_of_nodes_falls_silent(ages, silent):
    assert majority_silent([node(age) for age in ages], NOW) is silent
