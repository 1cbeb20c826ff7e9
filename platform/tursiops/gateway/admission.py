"""A bounded queue before each deployment: so many requests run on it as its ready instances take, others wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tursiops.gateway import metrics
from tursiops.gateway.config import Config
from tursiops.gateway.errors import GatewayError


class Line:
    """The requests of one deployment: how many run, and who waits, first come first served."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    def let_in(self, places: int) -> None:
        while self.waiting and self.running < places:
            ticket = self.waiting.popleft()
            if not ticket.done():  # a waiter that gave up leaves a cancelled ticket
                self.running += 1
                ticket.set_result(None)


class Admission:
    """`places(deployment)` says how many requests may run now; it follows the snapshot."""

    def __init__(self, config: Config, places: Callable[[str], int]) -> None:
        self._config = config
        self._places = places
        self._lines: dict[str, Line] = {}

    @asynccontextmanager
    async def place(self, deployment: str) -> AsyncIterator[None]:
        """A place on `deployment` for the block. Raises GatewayError (503) if the queue is full or too slow."""
        line = self._lines.setdefault(deployment, Line())
        if line.running < self._places(deployment) and not line.waiting:
            line.running += 1
        else:
            await self._wait(deployment, line)
        try:
            yield
        finally:
            line.running -= 1
            line.let_in(self._places(deployment))
            if not line.running and not line.waiting:
                self._lines.pop(deployment, None)

    def refresh(self) -> None:
        """Let waiters in after the number of places has changed."""
        for deployment, line in list(self._lines.items()):
            line.let_in(self._places(deployment))
            if not line.running and not line.waiting:
                del self._lines[deployment]

    async def _wait(self, deployment: str, line: Line) -> None:
        if len(line.waiting) >= self._config.queue_length:
            raise _full(f"The queue of this model is full ({self._config.queue_length} requests wait).")
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(ticket)
        metrics.queued.inc()
        try:
            async with asyncio.timeout(self._config.queue_deadline):
                await ticket
        except BaseException as error:
            if ticket in line.waiting:
                line.waiting.remove(ticket)
            elif ticket.done() and not ticket.cancelled():  # let in at the very moment of giving up: pass it on
                line.running -= 1
                line.let_in(self._places(deployment))
            if isinstance(error, TimeoutError):
                raise _full(f"No instance had room within {self._config.queue_deadline:.0f} s.") from None
            raise
        finally:
            metrics.queued.dec()


def _full(message: str) -> GatewayError:
    return GatewayError(503, "overloaded", f"{message} Try again later, or add replicas.", retry_after=5)
