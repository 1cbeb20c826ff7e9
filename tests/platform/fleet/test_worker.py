"""The job worker as a child: kept running, adopted after the node's death, ended with it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

import psutil
import pytest
from tursiops.fleet import worker
from tursiops.fleet.worker import JobWorker


class Sleeper(JobWorker):
    code = "import time; time.sleep(600)"

    def command(self):
        return [sys.executable, "-c", self.code]


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_GRACE_S", 0.3)
    made = []

    def build(kind=Sleeper):
        made.append(kind(tmp_path, "n1"))
        return made[-1]

    yield build
    for each in made:
        each.stop()


def pid_of(child: JobWorker) -> int:
    running = child._running()
    assert running is not None
    return running[0]


def test_command_is_celery_with_its_own_queue_and_pool(tmp_path):
    command = JobWorker(tmp_path, "n1").command()
    assert command[1:6] == ["-m", "celery", "-A", "tursiops", "worker"]
    assert tuple(command[6:10]) == ("-Q", "jobs", "-P", "threads")


def test_started_once_and_again_after_its_death(make):
    child = make()
    child.ensure()
    first = pid_of(child)
    child.ensure()
    assert pid_of(child) == first
    os.kill(first, signal.SIGKILL)
    time.sleep(0.4)
    child.ensure()
    assert pid_of(child) != first


def test_adopted_by_the_next_node_process(make):
    first, second = make(), make()
    first.ensure()
    second.ensure()
    assert pid_of(first) == pid_of(second)
    assert second._child is None


def test_broken_worker_is_not_started_in_a_loop(make):
    class Broken(Sleeper):
        code = "raise SystemExit(1)"

    child = make(Broken)
    for _ in range(20):
        child.ensure()
        time.sleep(0.01)
    assert len(child._starts) <= 2


def test_one_that_cannot_be_written_down_is_ended_and_the_node_goes_on(make, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    child = make()
    with monkeypatch.context() as patch:
        patch.setattr(worker.identity, "write_launch", full)
        child.ensure()
        assert child._running() is None
        assert child._child.poll() is not None, "nobody would find it again"
    time.sleep(0.4)
    child.ensure()
    assert child._running() is not None


def test_stubborn_worker_is_ended(make):
    class Stubborn(Sleeper):
        code = (
            "import signal, time\n"
            "for number in (signal.SIGTERM, signal.SIGQUIT): signal.signal(number, signal.SIG_IGN)\n"
            "print('deaf', flush=True); time.sleep(600)"
        )

    child = make(Stubborn)
    child.ensure()
    process = psutil.Process(pid_of(child))
    deadline = time.monotonic() + 10
    while b"deaf" not in (child._folder / "worker.log").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.stop()
    assert not process.is_running()
