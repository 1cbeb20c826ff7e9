"""/ws/chat: start, stop and follow answers. Every answer is followed by a task of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from tursiops.core import sockets
from tursiops.playground import runs
from tursiops.playground.answers import Answer
from tursiops.playground.follow import follow
from tursiops.playground.messages import MAX_LANES, Refused, Resume, Start, Stop, parse

log = structlog.get_logger(__name__)

MAX_FOLLOWED = 4 * MAX_LANES
BROKER_AWAY = Refused("broker_away", "The broker is restarting; answers can't be kept.", "Try again in a moment.", 503)


class ChatConsumer(AsyncWebsocketConsumer):  # type: ignore[misc] # channels has no types
    channel_layer_alias = "none"  # not configured, so there is none: frames never pass through a channel layer
    _who: sockets.Visitor | None = None

    async def connect(self) -> None:
        await self.accept()  # first, because a browser sees close codes of accepted sockets only
        self._following: dict[Answer, asyncio.Task[None]] = {}
        who = await sockets.visitor(self.scope)
        if isinstance(who, int):
            await self.close(who)
            return
        self._who = who

    async def disconnect(self, code: int) -> None:
        """Answers go on without their follower, for a minute: the page may come back."""
        for task in self._following.values():
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._who is None:
            return
        place = {"chat": "", "lane": ""}
        try:
            message = parse(text_data if text_data is not None else bytes_data or b"")
            place = {"chat": message.chat, "lane": message.lane}
            await self._obey(message)
        except Refused as refused:
            await self._refuse(place, refused)
        except (RedisError, OSError) as error:
            log.warning("playground.broker_away", error=str(error))
            await self._refuse(place, BROKER_AWAY)

    async def _obey(self, message: Start | Stop | Resume) -> None:
        assert self._who is not None
        if closing := await database_sync_to_async(sockets.still_allowed)(self._who):
            await self.close(closing)
            return
        answer = Answer(str(self._who.user.pk), message.chat, message.lane)
        if isinstance(message, Stop):
            await runs.stop(answer)
            return
        if isinstance(message, Start):
            lanes = {other.lane for other in self._following if other.chat == answer.chat} | {answer.lane}
            if len(lanes) > MAX_LANES:
                raise Refused("too_many", f"A chat compares at most {MAX_LANES} lanes.", "Close one of them.")
            await runs.start(answer, message, str(self._who.team.pk))
        self._follow(answer, message.after if isinstance(message, Resume) else 0)

    def _follow(self, answer: Answer, after: int) -> None:
        if old := self._following.pop(answer, None):
            old.cancel()
        if len(self._following) >= MAX_FOLLOWED:
            raise Refused("too_many", f"One connection follows at most {MAX_FOLLOWED} answers.", "Close some of them.")
        task = asyncio.create_task(self._pass_on(answer, after))
        self._following[answer] = task
        task.add_done_callback(lambda task: self._forget(answer, task))

    def _forget(self, answer: Answer, task: asyncio.Task[None]) -> None:
        if self._following.get(answer) is task:
            del self._following[answer]

    async def _pass_on(self, answer: Answer, after: int) -> None:
        try:
            async for frame in follow(answer, after):
                await self._tell(frame)
        except TimeoutError:
            await self.close(sockets.TOO_SLOW)
        except (RedisError, OSError) as error:
            log.warning("playground.broker_away", error=str(error))
            await self._refuse({"chat": answer.chat, "lane": answer.lane}, BROKER_AWAY)

    async def _refuse(self, place: dict[str, str], refused: Refused) -> None:
        fields = {"code": refused.code, "message": refused.message, "hint": refused.hint}
        await self._tell({"type": "error", **place, "seq": 0, **fields})

    async def _tell(self, frame: dict[str, Any]) -> None:
        """Raises TimeoutError where the client takes nothing. Other sockets are not concerned by its slowness."""
        try:
            async with asyncio.timeout(sockets.SEND_TIMEOUT_S):
                await self.send(orjson.dumps(frame).decode())
        except TimeoutError:
            raise
        except OSError:  # the client has left; disconnect() follows and ends what was for it
            return
