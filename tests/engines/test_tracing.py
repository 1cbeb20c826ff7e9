"""Traces of a running loop: as many steps as asked, and no failure of a recorder that reaches the loop."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.native import tracing
from engines.native.diagnosis import Diagnosis
from engines.native.ipc import MemoryAsked, MemoryFound, Trace, Traced
from engines.native.step_clock import COMMIT, LAUNCH, OUTSIDE, PHASES, SCHEDULE, SEND, WAIT, StepClock
from tests.engines.driver import Driver


class Recorder:
    """Notes what it is told; raises where it is asked to."""

    def __init__(self, fail_at: str = "") -> None:
        self.said: list[str] = []
        self._fail_at = fail_at

    def _say(self, word: str) -> None:
        self.said.append(word)
        if word == self._fail_at:
            raise RuntimeError("no profiler here")

    def start(self) -> None:
        self._say("start")

    def enter(self, name: str) -> None:
        self._say(name)

    def leave(self) -> None:
        self._say("/")

    def stop(self, file: Path) -> None:
        self._say("stop")

    def drop(self) -> None:
        self._say("drop")


def turn(clock: StepClock, *, commits: bool = True) -> None:
    """What a turn of the core's loop tells its clock."""
    clock.enter(SCHEDULE)
    clock.enter(LAUNCH)
    if commits:
        clock.enter(WAIT)
        clock.enter(COMMIT)
        clock.enter(SEND)
        clock.take()
    clock.enter(OUTSIDE)


def tracing_clock(recorder: Recorder, steps: int = 2, timeout: float = 60) -> tuple[tracing.TracingClock, list[Traced]]:
    ended: list[Traced] = []
    return tracing.TracingClock(Trace("timeline", steps, timeout, "/nowhere"), recorder, ended.append), ended


def test_a_clock_gives_each_phase_its_time_and_the_rest_to_none() -> None:
    clock = StepClock()
    for phase, seconds in ((OUTSIDE, 0.02), (SCHEDULE, 0.01), (LAUNCH, 0.03), (OUTSIDE, 0.02), (SCHEDULE, 0.01)):
        clock.enter(phase)
        time.sleep(seconds)
    clock.enter(COMMIT)
    spent = dict(zip(PHASES, clock.take(), strict=True))
    assert 0.02 <= spent["schedule"] < 0.1
    assert 0.03 <= spent["launch"] < 0.1
    assert (spent["wait"], spent["commit"], spent["send"]) == (0, 0, 0)
    clock.enter(OUTSIDE)
    assert clock.take()[SCHEDULE] == 0


def test_a_trace_ends_with_the_step_that_was_asked_and_its_phases_are_closed() -> None:
    recorder = Recorder()
    clock, ended = tracing_clock(recorder, steps=2)
    clock.enter(OUTSIDE)
    assert recorder.said == []  # it begins with a step
    turn(clock, commits=False)  # of two steps in flight the first is launched and not waited for
    turn(clock)
    assert ended == []
    turn(clock)
    assert ended == [Traced(2)]
    once = [word for phase in PHASES for word in (phase, "/")]
    assert recorder.said == ["start", *once[:4], *once, *once, "stop"]
    turn(clock)  # a loop that still holds it
    assert recorder.said[-1] == "stop"


def test_time_runs_out_with_some_steps_and_with_none() -> None:
    recorder = Recorder()
    clock, ended = tracing_clock(recorder, steps=100, timeout=0.05)
    turn(clock)
    time.sleep(0.06)
    clock.idle()
    assert ended == [Traced(1)]
    idle, none = tracing_clock(Recorder(), timeout=0.01)
    idle.idle()
    assert none == []
    time.sleep(0.02)
    idle.idle()
    assert [(each.steps, each.code) for each in none] == [(0, "no_steps")]
    assert "send requests meanwhile" in none[0].message


@pytest.mark.parametrize("place", ["start", "launch", "/", "stop"])
def test_a_recorder_that_fails_ends_the_trace_and_nothing_else(place: str) -> None:
    recorder = Recorder(fail_at=place)
    clock, ended = tracing_clock(recorder, steps=1)
    turn(clock)
    turn(clock)
    assert [each.code for each in ended] == ["trace_failed"]
    assert "RuntimeError: no profiler here" in ended[0].message
    assert recorder.said[-2:] == [place, "drop"]


def test_one_trace_at_a_time_and_the_old_clock_comes_back(tmp_path: Path) -> None:
    driver, sent = Driver(), list[Traced | MemoryFound]()
    clock = driver.pipeline.clock
    diagnosis = Diagnosis(driver.pipeline, sent.append, None)
    file = tmp_path / "trace.json"
    diagnosis.take(Trace("timeline", 3, 60.0, str(file)))
    diagnosis.take(Trace("timeline", 3, 60.0, str(file)))
    assert [each.code for each in sent] == ["trace_running"]
    driver.add([1, 2, 3], max_tokens=8)
    for _ in range(4):
        driver.step()
        torch.ones(3).mul(2)  # what the trace must show
        driver.pipeline.clock.take()
        driver.pipeline.clock.enter(OUTSIDE)
    assert sent[1:] == [Traced(3)]
    assert driver.pipeline.clock is clock
    names = [event.get("name") for event in json.loads(file.read_text())["traceEvents"]]
    assert names.count("schedule") == names.count("launch") == 3
    assert "aten::mul" in names


def test_memory_that_cannot_be_told_is_an_answer_too() -> None:
    def broken() -> dict[str, Any]:
        raise OSError("no such device")

    for memory, code in ((None, "no_memory_table"), (broken, "failed")):
        sent = list[Traced | MemoryFound]()
        Diagnosis(Driver().pipeline, sent.append, memory).take(MemoryAsked())
        assert [each.code for each in sent] == [code]
        assert sent[0].message
