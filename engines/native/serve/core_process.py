"""The core as a child process: started, spoken to, watched, started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import zmq

from engines.native.ipc import FromCore, ToCore, decode_from_core, encode

CORE_MODULE = "engines.native.core"
QUIET = ("-W", "ignore:torch.quantize_per_tensor, torch.quantize_per_channel and other quantized:UserWarning")
"""torch announces the end of the functions that pack int8 weights. Its version is pinned, and who serves a model can do
nothing about it: that one warning stays out of the log of every start."""
_FOLDER = "ts-core-"
LAST_WORDS_S = 0.1
"""How long after its death what the core sent may still be on its way."""


class CoreProcess:
    """One life of the core. Its sockets lie in a folder of its own, so no message of an earlier life gets in."""

    def __init__(self, run_dir: Path, module: str = CORE_MODULE) -> None:
        self._run_dir, self._module = run_dir, module
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir="/tmp"))  # short: a socket's path is ≤ 107 bytes
        self._link = run_dir / "sockets"
        _remove_leftover(self._link)
        self._link.symlink_to(self._folder)
        self._context = zmq.Context()
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
        """Once. It stays in our process group, but ignores signals to the group: we end it when we have drained."""
        if self._process is not None:
            return
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *QUIET,
            "-m",
            self._module,
            *("--run-dir", str(self._run_dir), "--sockets", str(self._folder), "--parent", str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
        )

    def send(self, message: ToCore) -> None:
        """Never blocks. To a core that died it is dropped with the core."""
        with contextlib.suppress(zmq.ZMQError):
            self._outbox.send(encode(message), zmq.NOBLOCK)

    async def messages(self) -> AsyncIterator[FromCore]:
        """Until the core is dead and all that it sent was read.

        Reads the socket itself when its descriptor wakes the loop: zmq.asyncio costs several times as much per
        message, and there is one for every step.
        """
        assert self._process is not None
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        descriptor = int(self._inbox.getsockopt(zmq.FD))
        loop.add_reader(descriptor, wake.set)
        dead = asyncio.create_task(self._process.wait())
        dead.add_done_callback(lambda _: wake.set())
        try:
            while True:
                wake.clear()  # before reading: the descriptor tells of changes, not of what lies there
                if was_dead := dead.done():
                    await asyncio.sleep(LAST_WORDS_S)
                for frame in self._frames():
                    yield decode_from_core(frame)
                if was_dead:
                    return
                await wake.wait()
        finally:
            loop.remove_reader(descriptor)
            dead.cancel()

    def _frames(self) -> Iterator[bytes]:
        with contextlib.suppress(zmq.Again):
            while True:
                yield self._inbox.recv(zmq.NOBLOCK)

    def last_words(self) -> str:
        """How it ended, for a reason sentence."""
        code = self._process.returncode if self._process else None
        if code is None:
            return "is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self, grace_s: float = 5.0) -> None:
        """Wait for the process, kill it if it does not end, and remove the sockets."""
        if self._process is not None and self._process.returncode is None:
            try:
                await asyncio.wait_for(self._process.wait(), grace_s)
            except TimeoutError:
                self.kill()
                await self._process.wait()
        self._link.unlink(missing_ok=True)
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_leftover(link: Path) -> None:
    """The sockets of an earlier process of this instance that was killed."""
    if link.is_symlink():
        folder = link.readlink()
        if folder.name.startswith(_FOLDER):
            shutil.rmtree(folder, ignore_errors=True)
        link.unlink()
