"""When the threads of a CPU engine spin, and that the switch works on the libgomp that torch brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engines.native.threads import (
    BUSY,
    FIRST_S,
    LAST_S,
    QUIET,
    SPINS,
    Decision,
    waited_s,
)

ROOT = Path(__file__).parents[2]
STEP = 0.125


def looks(decision: Decision, begin: float, seconds: float, share: float) -> tuple[list[bool], float]:
    """What it says every STEP for so long, and when that ends."""
    said = []
    for number in range(1, round(seconds / STEP) + 1):
        said.append(decision.look(begin + number * STEP, share))
    return said, begin + len(said) * STEP


def test_threads_sleep_until_it_was_quiet_for_a_while() -> None:
    decision = Decision(0.0)
    said, now = looks(decision, 0.0, FIRST_S - STEP, 0.0)
    assert not any(said)
    assert decision.look(now + STEP, 0.0)


def test_one_loud_moment_begins_the_wait_anew() -> None:
    decision = Decision(0.0)
    _, now = looks(decision, 0.0, FIRST_S - STEP, 0.0)
    assert not decision.look(now + STEP, QUIET + 0.01)
    said, _ = looks(decision, now + STEP, FIRST_S - STEP, 0.0)
    assert not any(said)


def test_what_lies_between_the_bounds_changes_nothing() -> None:
    decision = Decision(0.0)
    between = (BUSY + QUIET) / 2
    said, now = looks(decision, 0.0, 10, between)
    assert not any(said)
    _, now = looks(decision, now, FIRST_S, 0.0)
    said, _ = looks(decision, now, 10, between)
    assert all(said)


def test_each_time_that_it_had_to_stop_soon_it_waits_twice_as_long() -> None:
    decision, now, waits = Decision(0.0), 0.0, []
    for _ in range(8):
        began = now
        while not decision.look(now, 0.0):
            now += STEP
        waits.append(now - began)
        now += STEP
        assert not decision.look(now, 1.0)
    assert waits == pytest.approx([min(FIRST_S * 2**n, LAST_S) for n in range(8)], abs=2 * STEP)


def test_who_could_spin_for_long_is_trusted_again() -> None:
    decision, now = Decision(0.0), 0.0
    for seconds in (STEP, STEP, STEP, LAST_S + 1):
        while not decision.look(now, 0.0):
            now += STEP
        _, now = looks(decision, now, seconds, 0.0)
        assert not decision.look(now, 1.0)
    said, _ = looks(decision, now, FIRST_S, 0.0)
    assert said[-1]


def test_waiting_is_the_sum_over_threads_and_unknown_is_told(tmp_path: Path) -> None:
    for number, waited in ((1, 2_000_000_000), (2, 500_000_000)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "schedstat").write_text(f"7 {waited} 3\n")
    assert waited_s(tmp_path) == 2.5
    (tmp_path / "1" / "schedstat").write_text("odd\n")
    assert waited_s(tmp_path) is None
    assert waited_s(tmp_path / "missing") is None


def test_threads_that_have_ended_do_not_count_and_a_kernel_without_the_file_is_told(tmp_path: Path) -> None:
    own = tmp_path / str(os.getpid())
    own.mkdir()
    (own / "schedstat").write_text("7 1000000000 3\n")
    (tmp_path / "9").mkdir()
    assert waited_s(tmp_path) == 1.0
    (own / "schedstat").unlink()
    assert waited_s(tmp_path) is None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing waits")
def test_the_switch_decides_whether_threads_spin() -> None:
    """By the processor time that a second thread takes while it waits: it spins all of a pause, or none of it."""
    script = """
        import json, time
        import torch
        from engines.native.threads import Switch
        torch.set_num_threads(2)
        x = torch.ones(2 * 32768)
        def spent():
            begun = time.process_time()
            for _ in range(20):
                x.sum()
                time.sleep(0.02)
            return time.process_time() - begun
        switch, found = Switch(2), []
        for awake in (False, True, False, True):
            switch.spin(awake)
            spent()
            found.append(min(spent() for _ in range(3)))
        print(json.dumps(found))
    """
    spins = {"OMP_WAIT_POLICY": "PASSIVE", SPINS: "10000000"}  # longer than a pause: what it takes is then seen
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **spins},
    )  # fmt: skip
    asleep, awake, again_asleep, again_awake = json.loads(done.stdout)
    assert min(awake, again_awake) > 0.1
    assert max(asleep, again_asleep) < 0.5 * min(awake, again_awake)


@pytest.mark.parametrize(("given", "spins"), [({}, "30000"), ({SPINS: "0"}, "0")])
def test_a_core_on_a_cpu_watches_and_an_operators_own_count_stands(given: dict[str, str], spins: str) -> None:
    script = """
        import os, sys, threading
        from engines.native import threads
        threads.may_spin()
        assert "torch" not in sys.modules
        threads.watch(1)
        assert threading.active_count() == 1
        threads.watch(2)
        print(os.environ[threads.SPINS], sorted(one.name for one in threading.enumerate()))
    """
    own = {name: value for name, value in os.environ.items() if name != SPINS}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**own, **given},
    )  # fmt: skip
    assert done.stdout.strip() == f"{spins} ['MainThread', 'sleepers', 'threads']"
