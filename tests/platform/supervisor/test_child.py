"""Real child processes: started again after kill -9, with pauses; ended with the supervisor however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from tursiops.supervisor import child as child_module
from tursiops.supervisor.child import Child, describe
from tursiops.supervisor.logs import ProcessLog
from tursiops.supervisor.processes import Processes
from tursiops.supervisor.table import Program

from tests.processes import alive


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", textwrap.dedent(code)]


@pytest.fixture
def make(tmp_path):
    made: list[Child] = []

    def make_child(code: str, stop_s: float = 5.0) -> Child:
        child = Child(Program("thing", python(code), stop_s), ProcessLog(tmp_path, "thing"), lambda: None)
        made.append(child)
        return child

    return make_child


async def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


async def test_a_killed_child_is_started_again(make):
    child = make("import time; print('hello'); time.sleep(60)")
    child.start()
    await until(lambda: "hello" in child.log.tail)
    first = child.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: child.running and child.pid != first)
    assert child.restarts == 1
    assert any("signal SIGKILL" in line for line in child.log.tail)
    await child.stop()
    assert not alive(child.pid) or child.pid == 0


async def test_pauses_grow_while_it_keeps_ending(make, monkeypatch):
    monkeypatch.setattr(child_module, "FIRST_PAUSE_S", 0.05)
    child = make("raise SystemExit(3)")
    child.start()
    await until(lambda: child.quick_failures >= 3)
    await child.stop()
    pauses = [line.rsplit(" in ", 1)[1] for line in child.log.tail if "start" in line]
    assert pauses[:3] == ["0.1 s ---", "0.1 s ---", "0.2 s ---"]  # 0.05, 0.10, 0.20 as printed
    assert child.last_status == 3


async def test_stop_is_final_and_a_deaf_child_is_killed(make):
    child = make("import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)", stop_s=0.3)
    child.start()
    await until(lambda: "deaf" in child.log.tail)
    pid = child.pid
    await child.stop()
    assert not alive(pid)
    await asyncio.sleep(0.7)
    assert not child.running
    assert child.restarts == 0


async def test_stop_during_the_pause_returns_at_once(make, monkeypatch):
    monkeypatch.setattr(child_module, "FIRST_PAUSE_S", 30.0)
    child = make("pass")
    child.start()
    await until(lambda: child.quick_failures == 1)
    began = time.monotonic()
    await child.stop()
    assert time.monotonic() - began < 1


async def test_a_command_that_is_missing_is_a_failure_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(child_module, "FIRST_PAUSE_S", 0.01)
    child = Child(Program("thing", [str(tmp_path / "nothing-here")]), ProcessLog(tmp_path, "thing"), lambda: None)
    child.start()
    await until(lambda: child.quick_failures >= 2)
    assert any("can't be started" in line for line in child.log.tail)
    await child.stop()


async def test_what_a_child_left_in_its_group_goes_with_it(make):
    child = make("""
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
        time.sleep(60)
    """)
    child.start()
    await until(lambda: child.log.tail)
    grandchild = psutil.Process(int(child.log.tail[0]))
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: not alive(grandchild.pid))
    await child.stop()


def test_children_end_when_the_supervisor_is_killed(tmp_path):
    supervisor = subprocess.Popen(
        python(f"""
            import asyncio, sys
            from pathlib import Path
            from tursiops.supervisor.child import Child
            from tursiops.supervisor.logs import ProcessLog
            from tursiops.supervisor.table import Program
            async def main():
                program = Program("thing", [sys.executable, "-c", "import time; time.sleep(60)"])
                log = ProcessLog(Path({str(tmp_path)!r}), "thing")
                child = Child(program, log, lambda: print(child.pid, flush=True))
                child.start()
                await asyncio.sleep(60)
            asyncio.run(main())
        """),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "platform:."},
    )
    child = psutil.Process(int(supervisor.stdout.readline()))
    supervisor.kill()
    supervisor.wait()
    child.wait(5)


def test_endings_are_said_in_words():
    assert describe(2) == "status 2"
    assert describe(-9) == "signal SIGKILL"


async def test_a_child_comes_back_where_its_state_cannot_be_written(tmp_path, capsys):
    """On a full disk nothing may keep a dead process from its next start."""
    processes = Processes(tmp_path, 1)
    (tmp_path / ".supervisor.json.part").symlink_to("/dev/full")
    child = processes.start(Program("sleeper", ["sleep", "60"]))
    try:
        await until(lambda: child.running)
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: child.running and child.restarts == 1)
    finally:
        await child.stop()
    assert capsys.readouterr().out.count("supervisor.json can't be written") == 1
