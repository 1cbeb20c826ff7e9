"""/ws/live: the team's events in order, and the progress of its jobs.

Announcements through the channel layer only say that there is news. What is sent is read from the rows, so that a
lost or doubled announcement loses or doubles nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from typing import Any
from urllib.parse import parse_qs

import redis.exceptions
import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from tursiops.core import selectors, sockets
from tursiops.core.events import group_name
from tursiops.core.models import Event

log = structlog.get_logger(__name__)

MAX_GAP = 500  # events; beyond, a page is quicker to load anew
LOOK_EVERY_S = 15.0  # heals a lost announcement; also how soon a lost membership closes a silent socket
LOOK_WITHOUT_BROKER_S = 2.0
JOB_EVERY_S = 0.5


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc] # channels has no types
    """One task per socket reads and sends; announcements only wake it, so a slow socket delays nobody."""

    _pump: asyncio.Task[None] | None = None
    _group = ""

    async def connect(self) -> None:
        await self.accept()  # first, because a browser sees close codes of accepted sockets only
        who = await sockets.visitor(self.scope)
        after = _after(self.scope["query_string"])
        if isinstance(who, int) or after is None:
            await self.close(who if isinstance(who, int) else sockets.BAD_REQUEST)
            return
        self._news = asyncio.Event()
        self._jobs = JobProgress()
        look_every = LOOK_EVERY_S
        try:
            await self.channel_layer.group_add(group_name(who.team.pk), self.channel_name)
            self._group = group_name(who.team.pk)
        except (OSError, redis.exceptions.RedisError) as error:
            log.warning("live.without_announcements", error=str(error))
            look_every = LOOK_WITHOUT_BROKER_S
        self._pump = asyncio.create_task(self._run(who, after, look_every))

    async def disconnect(self, code: int) -> None:
        if self._pump is not None:
            self._pump.cancel()
        if self._group:
            await self.channel_layer.group_discard(self._group, self.channel_name)

    async def events_new(self, message: dict[str, Any]) -> None:
        self._news.set()

    async def job_progress(self, message: dict[str, Any]) -> None:
        self._jobs.put(message)
        self._news.set()

    async def _run(self, who: sockets.Visitor, after: int, look_every: float) -> None:
        try:
            await self.close(await self._follow(who, after, look_every))
        except TimeoutError:
            await self.close(sockets.TOO_SLOW)
        except Exception:
            log.exception("live.failed", user=who.user.get_username())
            await self.close(1011)

    async def _follow(self, who: sockets.Visitor, after: int, look_every: float) -> int:
        """Send until there is a reason to close; returns its code."""
        last = await database_sync_to_async(selectors.last_event_id)(who.team)
        await self._tell({"type": "hello", "last_event_id": last})
        after = last if after < 0 else after
        if after > last:  # the database was set back: what the page knows is not what is
            await self._tell({"type": "resync"})
            return 1000
        while True:
            self._news.clear()
            refusal: int
            events: list[Event]
            refusal, events = await database_sync_to_async(_read)(who, after)
            if refusal:
                return refusal
            if len(events) > MAX_GAP:
                await self._tell({"type": "resync"})
                return 1000
            for event in events:
                await self._tell({"type": "event", "event": selectors.event_row(event)})
                after = event.sequence
            for progress in self._jobs.due(time.monotonic()):
                await self._tell(progress)
            await self._wait(min(look_every, self._jobs.next_in(time.monotonic())))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        await asyncio.sleep(0.02)  # a burst of changes is read in one query

    async def _tell(self, message: dict[str, Any]) -> None:
        """Raises TimeoutError where the client takes nothing."""
        async with asyncio.timeout(sockets.SEND_TIMEOUT_S):
            await self.send(json.dumps(message))


class JobProgress:
    """The last progress of each running job, given out at most every JOB_EVERY_S per job, with the points that were
    measured since the last time."""

    _JOBS = 200
    _POINTS = 1000  # of one job, in one message; who needs more asks by REST

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._sent_at: OrderedDict[str, float] = OrderedDict()

    def put(self, message: dict[str, Any]) -> None:
        fields = {name: message.get(name) for name in ("id", "progress", "progress_text", "state")}
        waiting = self._waiting.get(str(message.get("id")), {})
        points = [*waiting.get("points", []), *message.get("points", [])]
        self._waiting[str(message.get("id"))] = {"type": "job", **fields, "points": points[-self._POINTS :]}
        while len(self._waiting) > self._JOBS:
            self._waiting.popitem(last=False)

    def due(self, now: float) -> list[dict[str, Any]]:
        ready = [job for job in self._waiting if now - self._sent_at.get(job, float("-inf")) >= JOB_EVERY_S]
        for job in ready:
            self._sent_at.pop(job, None)
            self._sent_at[job] = now
        while len(self._sent_at) > self._JOBS:
            self._sent_at.popitem(last=False)
        return [self._waiting.pop(job) for job in ready]

    def next_in(self, now: float) -> float:
        """Seconds until something is due; infinite where nothing waits."""
        return min(
            (max(0.0, self._sent_at[job] + JOB_EVERY_S - now) for job in self._waiting if job in self._sent_at),
            default=float("inf"),
        )


def _read(who: sockets.Visitor, after: int) -> tuple[int, list[Event]]:
    """The code to close with where membership is lost, else the events that came."""
    refusal = sockets.still_allowed(who)
    if refusal:
        return refusal, []
    return 0, selectors.events_after(user=who.user, team=who.team, after=after, limit=MAX_GAP + 1)


def _after(query: bytes) -> int | None:
    """`?after=`; -1 where it is not given, None where it is no event id or beside something that nothing reads."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    values = given.pop("after", [])
    if given:
        return None
    if not values:
        return -1
    return int(values[0]) if values[0].isascii() and values[0].isdigit() and len(values[0]) < 19 else None
