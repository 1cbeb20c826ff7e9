"""An answer of the playground, and what Redis keeps of it for ten minutes.

<key>          stream of frames; the id of frame n is `n-0`, so that Redis itself refuses gaps and repeats
<key>:owner    lease of the process that runs it; gone while frames have no end: the process died
<key>:wanted   somebody followed it within the last minute
<key>:stop     somebody asked to stop it
"""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ResponseError

KEPT_S = 600
OWNER_S = 10
WANTED_S = 60
MAX_FRAMES = 20_000  # at one per 50 ms: more than a quarter of an hour of writing
_BATCH = 20  # frames that a reader holds at once: about a second of text
_FRAME = b"frame"
_TIMEOUT_S = 5.0

_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Redis] = weakref.WeakKeyDictionary()


def redis() -> Redis:
    """The client of the running loop; connections belong to one."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients[loop] = Redis.from_url(
            settings.REDIS_URL,
            socket_connect_timeout=2,
            socket_timeout=None,  # it uses wait_for, which loses cancellations on Python 3.11
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        )
    return _clients[loop]


@dataclass(frozen=True)
class Answer:
    """`user` is in the key: nobody reads another's chat by its id."""

    user: str
    chat: str
    lane: str

    @property
    def key(self) -> str:
        return f"tursiops:chat:{self.user}:{self.chat}:{self.lane}"

    def frame(self, kind: str, seq: int, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "chat": self.chat, "lane": self.lane, "seq": seq, **fields}


def ends(frame: dict[str, Any]) -> bool:
    return frame["type"] in ("done", "error")


async def claim(answer: Answer, run: str) -> bool:
    """Become the one that runs `answer`, from its first frame; False while another run of it goes on."""
    if not await redis().set(f"{answer.key}:owner", run, nx=True, ex=OWNER_S):
        return False
    async with redis().pipeline(transaction=True) as pipe:
        pipe.delete(answer.key, f"{answer.key}:stop")
        pipe.set(f"{answer.key}:wanted", 1, ex=WANTED_S)
        await pipe.execute()
    return True


async def release(answer: Answer) -> None:
    await redis().delete(f"{answer.key}:owner")


async def append(answer: Answer, frame: dict[str, Any]) -> bool:
    """Store a frame; False if there is one with its number already."""
    try:
        async with asyncio.timeout(_TIMEOUT_S), redis().pipeline(transaction=False) as pipe:
            pipe.xadd(
                answer.key, {_FRAME: orjson.dumps(frame)}, id=f"{frame['seq']}-0", maxlen=MAX_FRAMES, approximate=True
            )
            pipe.expire(answer.key, KEPT_S)
            await pipe.execute()
    except ResponseError as error:
        if "equal or smaller" in str(error):
            return False
        raise
    return True


async def orders(answer: Answer, run: str) -> str:
    """What the running process is to do: "go on", "stop", or "give up" for want of a follower. Renews its lease."""
    async with asyncio.timeout(_TIMEOUT_S), redis().pipeline(transaction=False) as pipe:
        pipe.set(f"{answer.key}:owner", run, ex=OWNER_S)
        pipe.exists(f"{answer.key}:stop")
        pipe.exists(f"{answer.key}:wanted")
        _, stop, wanted = await pipe.execute()
    return "stop" if stop else "go on" if wanted else "give up"


async def ask_to_stop(answer: Answer) -> None:
    await redis().set(f"{answer.key}:stop", 1, ex=KEPT_S)


async def read(answer: Answer, after: int, wait_ms: int) -> list[dict[str, Any]]:
    """Frames above number `after`, waiting for the first; says that somebody follows."""
    await redis().set(f"{answer.key}:wanted", 1, ex=WANTED_S)
    found: Any = await redis().xread({answer.key: f"{after}-0"}, count=_BATCH, block=wait_ms)
    return [orjson.loads(fields[_FRAME]) for _, fields in found[0][1]] if found else []


async def last(answer: Answer) -> dict[str, Any] | None:
    found: Any = await redis().xrevrange(answer.key, count=1)
    return orjson.loads(found[0][1][_FRAME]) if found else None


async def is_owned(answer: Answer) -> bool:
    return bool(await redis().exists(f"{answer.key}:owner"))
