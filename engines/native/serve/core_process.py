"""The core as a child process: started, spoken to, watched, started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import zmq
import zmq.asyncio

from engines.native.ipc import FromCore, ToCore, decode_from_core, encode

CORE_MODULE = "engines.native.core"


class CoreProcess:
    """One life of the core. Its sockets lie in a folder of its own, so no message of an earlier life gets in."""

    def __init__(self, run_dir: Path, module: str = CORE_MODULE) -> None:
        self._run_dir, self._module = run_dir, module
        self._folder = Path(tempfile.mkdtemp(prefix="ts-core-", dir="/tmp"))  # short: a socket's path is ≤ 107 bytes
        self._context = zmq.asyncio.Context()
        self._outbox = self._context.socket(zmq.PUSH)
        self._inbox = self._context.socket(zmq.PULL)
        for socket, name in ((self._outbox, "to-core"), (self._inbox, "from-core")):
            socket.set_hwm(0)
            socket.bind(f"ipc://{self._folder / name}")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """In our process group: a signal for the group, such as Ctrl-C, is ignored by it, as we end it ourselves."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *("--run-dir", str(self._run_dir), "--sockets", str(self._folder), "--parent", str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
        )

    def send(self, message: ToCore) -> None:
        """Never blocks. To a core that died it is dropped with the core."""
        with contextlib.suppress(zmq.ZMQError):
            zmq.Socket.send(self._outbox, encode(message), zmq.NOBLOCK)

    async def messages(self) -> AsyncIterator[FromCore]:
        """Until the core is dead and all that it sent was read."""
        assert self._process is not None
        dead = asyncio.ensure_future(self._process.wait())
        receiving: asyncio.Future[bytes] = asyncio.ensure_future(self._inbox.recv())
        try:
            while True:
                await asyncio.wait((dead, receiving), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    await asyncio.wait((receiving,), timeout=0.2)  # its last words may be on the way
                if not receiving.done():
                    return
                yield decode_from_core(receiving.result())
                receiving = asyncio.ensure_future(self._inbox.recv())
        finally:
            for task in (dead, receiving):
                task.cancel()

    def last_words(self) -> str:
        """How it ended, for a reason sentence."""
        code = self._process.returncode if self._process else None
        if code is None:
            return "is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    async def close(self, grace_s: float = 5.0) -> None:
        """End the process, wait for it, and remove the sockets."""
        process = self._process
        if process is not None and process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), grace_s)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)
