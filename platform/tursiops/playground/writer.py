"""One answer: a streamed request to the gateway, turned into frames of about 50 ms of text each."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import aiohttp
import orjson
import structlog
from django.conf import settings

from tursiops import secrets
from tursiops.gateway.events import data_of, split
from tursiops.playground import answers
from tursiops.playground.answers import Answer
from tursiops.playground.messages import Start

log = structlog.get_logger(__name__)

FRAME_EVERY_S = 0.05
_CONNECT_S = 5.0
_SILENCE_S = 620.0  # the gateway gives up on engines a little earlier, and says why


class Writer:
    """Writes frames 1, 2, … of `answer` to Redis. Used once."""

    def __init__(self, answer: Answer, request: Start, team: str) -> None:
        self.answer = answer
        self._request = request
        self._team = team
        self._seq = 0
        self._text: list[str] = []
        self._pieces: list[tuple[str, str | None]] = []  # of the same text: (text, who guessed it)
        self._told = False  # the engine says who did
        self._has_text = asyncio.Event()
        self._storing = asyncio.Lock()
        self._ended = ""
        self._reading: asyncio.Task[dict[str, Any]] | None = None
        self._started = time.perf_counter()
        self._first: float | None = None
        self._events = 0
        self._usage: dict[str, Any] | None = None
        self._finish = ""

    def end(self, why: str) -> None:
        """ "stop" (somebody asked) or "give up" (nobody follows)."""
        self._ended = self._ended or why
        if self._reading is not None:
            self._reading.cancel()

    async def write(self) -> None:
        """To the last frame, which is `done` or `error`. Raises RedisError or OSError while the broker is away."""
        self._reading = asyncio.create_task(self._read())
        flushing = asyncio.create_task(self._flush_often())
        try:
            await asyncio.wait((self._reading, flushing), return_when=asyncio.FIRST_COMPLETED)
            if flushing.done():  # it ends only by failing
                flushing.result()
            last = self._last_of(self._reading)
        finally:
            self._reading.cancel()
            flushing.cancel()
            await asyncio.gather(self._reading, flushing, return_exceptions=True)
        await self._flush()
        await self._frame(last.pop("type"), **last)

    def _last_of(self, reading: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
        if not reading.cancelled():
            try:
                return reading.result()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                return _error("gateway_unreachable", f"The connection to the gateway failed: {reason}.")
            except ValueError as error:
                return _error("bad_answer", f"The engine sent what is no event: {error}.")
        if self._ended == "give up":
            return _error("abandoned", "Nobody followed this answer for a minute, so it was stopped.", "Ask again.")
        return self._done("cancelled")

    async def _read(self) -> dict[str, Any]:
        """The request to its end; returns the last frame. Its limits and its bill are the gateway's, as for anyone."""
        if self._ended:
            raise asyncio.CancelledError
        token = secrets.sign_internal(self._team, self.answer.user)
        url = f"http://{_gateway_host()}:{settings.GATEWAY_PORT}/v1/chat/completions"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers={"Authorization": f"Bearer {token}"}) as session,
            session.post(url, json=self._request.body()) as response,
        ):
            if response.status != 200:
                return _refusal(response.status, await response.read())
            request_id = response.headers.get("x-request-id", "")
            await self._frame("started", request_id=request_id, model=self._request.model)
            rest = b""
            while data := await response.content.readany():
                rest += data
                cut = rest.rfind(b"\n\n") + 2
                if cut > 1:
                    whole, rest = rest[:cut], rest[cut:]
                    for event in split(whole):
                        if (last := self._take(data_of(event))) is not None:
                            return last
        return _error("interrupted", "The answer broke off.", "Ask again.")

    def _take(self, data: bytes) -> dict[str, Any] | None:
        """Account for one event; the last frame if it was the end."""
        if not data:
            return None
        if data == b"[DONE]":
            return self._done(self._finish or "stop")
        chunk = orjson.loads(data)
        if "error" in chunk:
            error = chunk["error"]
            return _error(str(error.get("code") or "engine_error"), str(error.get("message")), "Ask again.")
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", ()):
            self._finish = choice.get("finish_reason") or self._finish
            if text := choice.get("delta", {}).get("content"):
                self._events += 1
                self._first = self._first or time.perf_counter()
                self._text.append(text)
                if self._request.sources:
                    self._take_pieces(choice, text)
                self._has_text.set()
        return None

    def _take_pieces(self, choice: dict[str, Any], text: str) -> None:
        """What an engine does not say of a chunk has been drawn plainly, for all that is known."""
        found = [(piece["text"], piece["source"]) for piece in (choice.get("tursiops") or {}).get("pieces", ())]
        if "".join(piece for piece, _ in found) == text:
            self._told = True
            self._pieces += found
        else:
            self._pieces.append((text, None))

    def _done(self, finish: str) -> dict[str, Any]:
        now = time.perf_counter()
        first = self._first or now
        tokens = (self._usage or {}).get("completion_tokens", self._events)
        writing = now - first
        timing = {
            "ttft_ms": round((first - self._started) * 1000, 1) if self._first else None,
            "duration_ms": round((now - self._started) * 1000, 1),
            "tokens_per_s": round((tokens - 1) / writing, 2) if tokens > 1 and writing > 0 else None,
        }
        return {"type": "done", "finish_reason": finish, "usage": self._usage, "timing": timing}

    async def _flush_often(self) -> None:
        """The first text at once, then a frame each FRAME_EVERY_S while there is any."""
        while True:
            await self._has_text.wait()
            await self._flush()
            await asyncio.sleep(FRAME_EVERY_S)

    async def _flush(self) -> None:
        if self._text:
            text, pieces = "".join(self._text), _merged(self._pieces)
            self._text.clear()
            self._pieces.clear()
            self._has_text.clear()
            await self._frame("delta", text=text, **({"pieces": pieces} if self._told else {}))

    async def _frame(self, kind: str, **fields: Any) -> None:
        """A frame that was begun is stored even if its task is cancelled meanwhile: numbers have no gaps."""
        self._seq += 1
        await asyncio.shield(asyncio.create_task(self._store(self.answer.frame(kind, self._seq, **fields))))

    async def _store(self, frame: dict[str, Any]) -> None:
        async with self._storing:  # in the order of their numbers
            await answers.append(self.answer, frame)


def _merged(pieces: list[tuple[str, str | None]]) -> list[dict[str, Any]]:
    """Neighbours of one source are one."""
    runs = itertools.groupby(pieces, key=lambda piece: piece[1])
    return [{"text": "".join(text for text, _ in run), "source": source} for source, run in runs]


def _gateway_host() -> str:
    host: str = settings.GATEWAY_HOST
    return "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host


def _error(code: str, message: str, hint: str = "") -> dict[str, Any]:
    return {"type": "error", "code": code, "message": message, "hint": hint or "Ask again in a moment."}


def _refusal(status: int, body: bytes) -> dict[str, Any]:
    """The gateway's refusal before the first byte, with what to do about it."""
    try:
        error = orjson.loads(body)["error"]
        code, message = str(error.get("code") or status), str(error.get("message"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        code, message = str(status), f"The gateway answered {status}."
    hints = {
        400: "Correct the field named and ask again.",
        404: "Choose a deployed model.",
        429: "Wait a moment; a limit was reached.",
        503: "See the deployment's page for what it waits for.",
    }
    return _error(code, message, hints.get(status, ""))
