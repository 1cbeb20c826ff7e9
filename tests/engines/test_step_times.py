"""The model of a step's time: what it learns, what it withstands, how it sizes a chunk."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.step_times import Load, StepTimes, chunk

costs = st.tuples(
    st.floats(1e-4, 0.05), st.floats(0, 1e-3), st.floats(0, 1e-7), st.floats(1e-6, 3e-3), st.floats(0, 1e-8)
)


def true(cost: tuple[float, ...], load: Load) -> float:
    return cost[0] + sum(
        each * value
        for each, value in zip(cost[1:], (load.decodes, load.decode_keys, load.prefill, load.prefill_keys), strict=True)
    )


def drawn(chooser: random.Random) -> Load:
    decodes = chooser.randint(0, 64)
    part = chunk(chooser.randint(0, 8000), chooser.choice([0, 0, 16, 128, 512, 2048]))
    return Load(decodes, decodes * chooser.randint(1, 4000), part.prefill, part.prefill_keys)


@given(cost=costs, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_it_finds_the_costs_whatever_they_are(cost: tuple[float, ...], seed: int) -> None:
    chooser, times = random.Random(seed), StepTimes()
    for _ in range(120):
        load = drawn(chooser)
        times.observe(load, true(cost, load) * chooser.uniform(0.97, 1.03))
    for _ in range(20):
        load = drawn(chooser)
        assert times.seconds(load) == pytest.approx(true(cost, load), rel=0.15)


COST = (0.004, 2e-5, 3e-9, 9e-6, 2e-10)


def learnt(chooser: random.Random, steps: int = 150, cost: tuple[float, ...] = COST) -> StepTimes:
    times = StepTimes()
    for _ in range(steps):
        load = drawn(chooser)
        times.observe(load, true(cost, load))
    return times


def test_a_captured_graph_and_a_pause_are_not_believed() -> None:
    chooser = random.Random(1)
    times, load = learnt(chooser), Load(32, 32_000)
    for _ in range(3):
        times.observe(load, 5.0)
        for _ in range(20):
            each = drawn(chooser)
            times.observe(each, true(COST, each))
    assert times.seconds(load) == pytest.approx(true(COST, load), rel=0.2)


def test_a_device_that_became_slower_is_believed_after_a_while() -> None:
    chooser = random.Random(2)
    times = learnt(chooser)
    for _ in range(100):
        load = drawn(chooser)
        times.observe(load, 10 * true(COST, load))
    load = Load(32, 32_000, 512, 512 * 1000)
    assert times.seconds(load) == pytest.approx(10 * true(COST, load), rel=0.2)


def test_an_hour_of_decoding_does_not_make_prefill_forgotten() -> None:
    chooser = random.Random(3)
    times = learnt(chooser)
    part = chunk(1000, 512)
    for step in range(2000):
        times.observe(Load(16, 16 * (100 + step)), true(COST, Load(16, 16 * (100 + step))))
    assert times.added(1000, 512) == pytest.approx(true(COST, part) - COST[0], rel=0.15)


@given(start=st.integers(0, 100_000), room=st.floats(-0.01, 0.2), most=st.integers(1, 8192), steps=st.integers(0, 40))
def test_tokens_are_as_many_as_the_room_holds(start: int, room: float, most: int, steps: int) -> None:
    times = learnt(random.Random(4), steps)
    fit = times.tokens(start, room, most)
    assert 0 <= fit <= most
    assert room <= 0 or times.added(start, fit) <= room * 1.001 + 1e-12
    if fit < most and room > 0:
        assert times.added(start, fit + 1) > room * 0.999


def test_nothing_seen_is_nothing_expected() -> None:
    times = StepTimes()
    assert times.seconds(Load(5, 500)) == 0
    assert not times.knows_prefill
    times.observe(Load(5, 500), 0.01)
    assert times.seconds(Load(5, 500)) == pytest.approx(0.01, rel=0.01)
