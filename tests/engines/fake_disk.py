"""A disk tier on a real folder whose threads are replaced by a queue, so that a test says when they get to work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from engines.native.disk_store import BlockStore
from engines.native.disk_tier import DiskTier
from tests.engines.fake_runner import FakeRunner


class Queued(Executor):
    """Work waits until `work` is called."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(lambda: fn(*args, **kwargs))
        return Future()

    def work(self, most: int = 1 << 30) -> int:
        """Do what was waiting when this was called. How much that was."""
        count = min(most, len(self.waiting))
        for _ in range(count):
            self.waiting.popleft()()
        return count


class FakeDisk:
    """min_tokens, compute_s: as of `DiskTier`; a long compute_s makes requests wait for ever."""

    def __init__(
        self,
        folder: Path,
        runner: FakeRunner,
        *,
        identity: bytes = b"f" * 32,
        limit: int = 2**30,
        min_tokens: int = 1,
        compute_s: float = 1000.0,
    ) -> None:
        self.store = BlockStore(folder, identity, runner.host_view(1).nbytes, limit)
        self.readers, self.writer = Queued(), Queued()
        self.tier = DiskTier(
            self.store,
            identity,
            runner.host_view,
            min_tokens=min_tokens,
            compute_s=compute_s,
            readers=self.readers,
            writer=self.writer,
        )

    def work(self) -> None:
        self.readers.work()
        self.writer.work()
