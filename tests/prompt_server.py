"""uvicorn in the loop of a test, ended without delay."""

from __future__ import annotations

import asyncio
from types import FrameType

import uvicorn


class PromptServer(uvicorn.Server):
    """uvicorn looks every tenth of a second whether it is to end and then lets another one pass: a fifth of a second in
    each test with a server of its own. This one ends when it is told to, with the same grace for what still runs."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def end(self) -> None:
        self.should_exit = True
        self._told.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._told.set)  # a signal's handler wakes no loop by itself

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told.wait()

    async def shutdown(self, sockets: object = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # those that are idle are gone with the loop's next turn
        try:
            await asyncio.wait_for(self._wait_tasks_to_complete(), self.config.timeout_graceful_shutdown)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel("Task cancelled, timeout graceful shutdown exceeded")
        if not self.force_exit:
            await self.lifespan.shutdown()
