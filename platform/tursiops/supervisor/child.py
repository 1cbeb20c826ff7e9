"""One child process: started, listened to, started again with a growing pause when it dies, ended when told."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

import psutil

from tursiops.fleet.backends import identity
from tursiops.supervisor.logs import ProcessLog
from tursiops.supervisor.table import Program

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 30.0  # a process that ran for so long starts again without a pause
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    def __init__(self, program: Program, log: ProcessLog, changed: Callable[[], None]) -> None:
        self.program, self.log = program, log
        self.pid, self.start_time = 0, 0.0
        self.restarts = 0
        self.quick_failures = 0  # in a row, each within STEADY_S of its start
        self.last_status = 0
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Called on the main thread's loop: the death signal is tied to the thread that forks."""
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while not self._stopping:
            began = time.monotonic()
            await self._run_once()
            if self._stopping:
                return
            steady = time.monotonic() - began > STEADY_S
            self.quick_failures = 0 if steady else self.quick_failures + 1
            pause = 0.0 if steady else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.quick_failures - 1))
            self.restarts += 1
            self.log.note(f"ended with {describe(self.last_status)}; start {self.restarts + 1} in {pause:.1f} s")
            await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        # A pipe of our own: with asyncio's, wait() would wait for every grandchild that holds it (Python 3.11).
        reading, writing = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        except OSError as error:
            self.log.note(f"can't be started: {error}")
            self.last_status = 127
            os.close(reading)
            return
        finally:
            os.close(writing)
        self.pid = self._process.pid
        with contextlib.suppress(psutil.NoSuchProcess):
            self.start_time = identity.start_time(self.pid)
        self._changed()
        pump = asyncio.create_task(self._pump(reading))
        self.last_status = await self._process.wait()
        identity.end_group(self.pid, self.start_time)  # what it left in its group would hold the pipe, too
        with contextlib.suppress(asyncio.TimeoutError):  # a grandchild in a session of its own may hold it for ever
            await asyncio.wait_for(pump, 0.5)
        self.pid = 0
        self._changed()

    async def _pump(self, reading: int) -> None:
        stream = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", buffering=0)
        )
        try:
            while data := await stream.read(65536):
                self.log.write(data)
        finally:
            pipe.close()

    @property
    def running(self) -> bool:
        return self.pid != 0

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after the program's own patience. Returns when it is gone."""
        self._stopping = True
        if self._keeper is None:
            return
        process = self._process
        if self.running and process is not None:
            self.signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(self._keeper), self.program.stop_s)
            except TimeoutError:
                self.log.note(f"did not end within {self.program.stop_s:.0f} s: killed")
                self.signal(signal.SIGKILL)
        else:
            self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


def describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def die_with_parent(parent: int) -> Callable[[], None]:
    """The kernel sends SIGTERM when the supervisor dies, however it dies."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died between the fork and the call
            os._exit(1)

    return prepare
