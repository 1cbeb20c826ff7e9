"""Figures of speculation by their definitions, over the last minute and since the core started."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from engines.native.ipc import Ready, SpeculationCounts, Update
from engines.native.request import SamplingParams
from engines.native.serve import speculation
from engines.native.serve.metrics import Metrics
from engines.native.serve.stream import Stream

pytestmark = pytest.mark.speculation
READY = Ready(10, 16, 128, 4, {})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speculation, "time", clock)
    return clock


def counts(
    steps: int, verified: int, rows: int, by_source: dict[str, tuple[int, int]], **more: Any
) -> SpeculationCounts:
    drafted, accepted = (sum(each[place] for each in by_source.values()) for place in (0, 1))
    return SpeculationCounts(steps, verified, rows, drafted, accepted, by_source, **more)


def step(sources: list[int], told: SpeculationCounts | None) -> Update:
    ids, tokens = np.zeros(len(sources), np.int64).tobytes(), np.zeros(len(sources), np.int32).tobytes()
    return Update(
        ids, tokens, b"", {}, [], [], [], 1, 0, 1, 0, sources=np.array(sources, np.int8).tobytes(), speculation=told
    )


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    metrics.text()
    return metrics.registry.get_sample_value(f"tursiops_engine_speculation_{name}", labels)


def test_rates_are_those_of_the_definitions(clock: Clock) -> None:
    metrics = Metrics()
    metrics.core_ready(READY)
    metrics.update(step([-1, -1], counts(1, 0, 0, {"lookahead": (0, 0), "draft": (0, 0)})))  # two requests, plain
    clock.now += 2
    # Two requests in a pass with 4 and 3 guesses; of the first all stand, of the second one: 5 + 2 tokens.
    after = counts(2, 1, 2, {"lookahead": (4, 4), "draft": (3, 1)}, saved_s=0.25, speedup=1.8, width=4)
    metrics.update(step([0, 0, 0, 0, -1, 1, -1], after))
    seen = metrics.speculation
    assert seen is not None
    found = seen.since_start
    assert (found.steps, found.verified_steps, found.rows, found.drafted_tokens, found.accepted_tokens) == (
        2,
        1,
        2,
        7,
        5,
    )
    assert found.acceptance_length == 1 + 5 / 2
    assert found.hit_rate == 5 / 7
    assert found.tokens_per_step == 9 / 4  # four times a request was in a pass, and nine tokens came
    assert found.share_speculated == 0.5
    assert (found.saved_s, found.speedup, found.width, found.window_s) == (0.25, 1.8, 4, 2.0)
    assert [(each.source, each.drafted, each.accepted, each.hit_rate) for each in found.sources] == [
        ("lookahead", 4, 4, 1.0),
        ("draft", 3, 1, 1 / 3),
    ]
    assert value(metrics, "acceptance_length") == 3.5
    assert value(metrics, "tokens_per_step") == 2.25
    assert value(metrics, "step_share") == 0.5
    assert value(metrics, "speedup") == 1.8
    assert value(metrics, "saved_seconds") == 0.25
    assert value(metrics, "hit_rate", source="lookahead") == 1.0
    assert value(metrics, "guessed_tokens_total", source="draft", result="accepted") == 1
    assert value(metrics, "guessed_tokens_total", source="draft", result="rejected") == 2
    assert value(metrics, "steps_total", kind="verify") == value(metrics, "steps_total", kind="plain") == 1
    assert value(metrics, "rows_total") == 2


def test_recent_figures_forget_what_is_older_than_a_minute(clock: Clock) -> None:
    metrics = Metrics()
    metrics.update(step([0, -1], counts(1, 1, 1, {"lookahead": (1, 1)})))
    seen = metrics.speculation
    assert seen is not None
    for passed in range(1, 101):
        clock.now += 1
        metrics.update(step([-1], counts(1 + passed, 1, 1, {"lookahead": (1, 1)})))
        assert seen.recent.window_s <= 61
    assert (seen.recent.steps, seen.recent.verified_steps, seen.recent.tokens_per_step) == (60, 0, 1.0)
    assert (seen.recent.acceptance_length, seen.recent.hit_rate, seen.recent.speedup) == (None, None, None)
    assert (seen.since_start.accepted_tokens, seen.since_start.steps) == (1, 101)
    clock.now += 3600  # an engine that is idle has no figures of late
    assert (seen.recent.steps, seen.recent.tokens_per_step, seen.recent.window_s) == (0, None, 60)
    assert value(metrics, "speedup") == 1


def test_another_core_counts_from_nought_and_counters_go_on(clock: Clock) -> None:
    metrics = Metrics()
    metrics.update(step([0, -1], counts(5, 2, 2, {"lookahead": (9, 3)})))
    metrics.core_ready(READY)
    metrics.update(step([0, -1], counts(1, 1, 1, {"lookahead": (2, 1)})))
    seen = metrics.speculation
    assert seen is not None
    assert (seen.since_start.steps, seen.since_start.drafted_tokens, seen.since_start.tokens) == (1, 2, 2)
    assert value(metrics, "guessed_tokens_total", source="lookahead", result="accepted") == 4
    assert value(metrics, "steps_total", kind="verify") == 3


def test_an_engine_that_does_not_speculate_has_no_such_metrics() -> None:
    metrics = Metrics()
    metrics.update(step([], None))
    assert metrics.speculation is None
    assert b"speculation" not in metrics.text()


def test_sources_stay_beside_their_tokens_where_only_some_passes_have_any() -> None:
    stream = Stream(1, [], SamplingParams(), asyncio.Event())
    for token, source in ((5, -1), (6, 1), (7, -1), (8, 0)):
        stream.feed(token, None, None, 1.0, source)
    assert stream.take() == ([5, 6, 7, 8], [], [], [-1, 1, -1, 0])
    stream.feed(9, None, None, 1.0)
    assert stream.take() == ([9], [], [], [])


def test_figures_are_plain_values(clock: Clock) -> None:
    metrics = Metrics()
    metrics.update(step([0, -1], counts(1, 1, 1, {"ngram": (2, 1)})))
    assert metrics.speculation is not None
    told = msgspec.to_builtins(metrics.speculation.recent)
    assert told["sources"] == [{"source": "ngram", "drafted": 2, "accepted": 1, "hit_rate": 0.5}]
