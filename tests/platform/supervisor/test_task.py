"""The children that prepare the database and the demo: their words become progress, their failures an explanation."""

import asyncio
import sys
import textwrap
import time

import pytest
from tursiops.progress import SetupError
from tursiops.supervisor.task import Task

from tests.processes import alive


async def task(tmp_path, code: str, seen: list | None = None):
    head = "import sys\nfrom engines.api import Channel\nchannel = Channel()\n"
    argv = [sys.executable, "-c", head + textwrap.dedent(code)]
    async with Task(argv, tmp_path / "setup-first.log") as task:
        return await task.report("demo", "look around", lambda *words: (seen or []).append(words))


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ".")


async def test_report_and_progress(tmp_path):
    seen: list = [None]
    code = "channel.progress(0.5, 'half'); print('noise of a library'); channel.report({'key': 1})"
    assert await task(tmp_path, code, seen) == {"key": 1}
    assert seen[1:] == [(0.5, "half")]


async def test_each_step_of_a_child_reports(tmp_path):
    code = "channel.report({'step': 1}); channel.progress(0.5, 'on'); channel.report({'step': 2}); raise SystemExit(5)"
    argv = [sys.executable, "-c", f"from engines.api import Channel\nchannel = Channel()\n{code}"]
    seen = []
    async with Task(argv, tmp_path / "setup-first.log") as task:
        assert await task.report("one", "", lambda *words: seen.append(words)) == {"step": 1}
        assert not seen
        assert await task.report("two", "", lambda *words: seen.append(words)) == {"step": 2}
        assert seen == [(0.5, "on")]
        with pytest.raises(SetupError, match="three failed: ended with status 5"):
            await task.report("three", "", lambda *words: None)


async def test_a_child_that_has_reported_is_not_waited_for(tmp_path):
    code = "channel.progress(0, str(os.getpid())); channel.report({}); time.sleep(60)"
    argv = [sys.executable, "-c", f"import os, time\nfrom engines.api import Channel\nchannel = Channel()\n{code}"]
    seen = []
    async with Task(argv, tmp_path / "setup-first.log") as task:
        await task.report("one", "", lambda *words: seen.append(words))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert not alive(int(seen[0][1]))


async def test_an_error_is_told_with_its_hint(tmp_path):
    with pytest.raises(SetupError) as failed:
        await task(tmp_path, "channel.error('x', 'the disk is full', 'make room')")
    assert "demo failed: the disk is full" in str(failed.value)
    assert "make room" in str(failed.value)
    assert str(tmp_path / "setup-first.log") in str(failed.value)


async def test_a_crash_is_told_with_its_last_line(tmp_path):
    with pytest.raises(SetupError) as failed:
        await task(tmp_path, "raise RuntimeError('no such table')")
    assert "RuntimeError: no such table" in str(failed.value)
    assert "look around" in str(failed.value)


async def test_a_cancelled_task_ends_its_child(tmp_path):

    seen: list = [None]
    code = "import os, time; channel.progress(0, str(os.getpid())); time.sleep(60)"
    running = asyncio.create_task(task(tmp_path, code, seen))
    while len(seen) < 2:
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(int(seen[1][1]))
