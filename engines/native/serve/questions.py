"""What the API process asks the core, and waits for, besides tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from engines.native.ipc import MemoryAsked, MemoryFound, ToCore, Trace, Traced
from engines.native.serve.errors import ApiError

Answer = TypeVar("Answer", Traced, MemoryFound)


class Questions:
    """One open question of each kind. Its answer, the core's end or a time-out closes it: nobody waits for ever."""

    def __init__(self, send: Callable[[ToCore], None]) -> None:
        self._send = send
        self._open: dict[type[Traced] | type[MemoryFound], asyncio.Future[Traced | MemoryFound]] = {}

    async def trace(self, question: Trace, seconds: float) -> Traced:
        """Raises ApiError: 409 while another is asked, 503 if the core is lost meanwhile, 504 without an answer within
        `seconds`."""
        return await self._ask(question, Traced, "trace", seconds)

    async def memory(self, seconds: float) -> MemoryFound:
        """Raises ApiError, as `trace` does."""
        return await self._ask(MemoryAsked(), MemoryFound, "look at the memory", seconds)

    async def _ask(self, question: ToCore, kind: type[Answer], what: str, seconds: float) -> Answer:
        if kind in self._open:
            raise ApiError(409, f"another {what} runs on this engine; wait for its end", code="already_running")
        self._open[kind] = waiting = asyncio.get_running_loop().create_future()
        try:
            self._send(question)
            answer = await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            message = f"the core did not answer within {seconds:g} s; its log says what it does"
            raise ApiError(504, message, code="no_answer") from None
        finally:
            del self._open[kind]
        assert isinstance(answer, kind)
        return answer

    def answer(self, message: Traced | MemoryFound) -> None:
        waiting = self._open.get(type(message))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def lost(self, reason: str) -> None:
        """The core is gone, and with it what it was asked."""
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ApiError(503, reason, code="core_lost", retry_after=2))
