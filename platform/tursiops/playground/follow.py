"""Reading an answer while it is written, from any process, as slowly as the reader likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tursiops.playground import answers
from tursiops.playground.answers import Answer, ends

_WAIT_MS = 5_000


async def follow(answer: Answer, after: int) -> AsyncIterator[dict[str, Any]]:
    """Frames after number `after` to the answer's end. Raises RedisError or OSError while the broker is away.

    The reader pulls: one that is slow holds back nobody, and loses frames only past `MAX_FRAMES`, which it is told.
    """
    wait_ms = 1  # what there is, or that there is nothing, is told at once
    while True:
        frames = await answers.read(answer, after, wait_ms)
        wait_ms = _WAIT_MS
        for frame in frames:
            if frame["seq"] != after + 1:
                yield answer.frame(
                    "error",
                    0,
                    code="resync",
                    message="Part of this answer is no longer kept.",
                    hint="Resume from 0, or ask again.",
                )
                return
            yield frame
            after = frame["seq"]
            if ends(frame):
                return
        if not frames and (last := await _without_news(answer, after)) is not None:
            if last:
                yield last
            return


async def _without_news(answer: Answer, after: int) -> dict[str, Any] | None:
    """None: wait on. Else the reader is done, after this frame (empty: it has all)."""
    newest = await answers.last(answer)
    if newest is not None and ends(newest):
        return {} if newest["seq"] <= after else None
    if await answers.is_owned(answer):
        return None
    if newest is None:
        return answer.frame(
            "error",
            0,
            code="not_found",
            message="This answer is unknown or older than ten minutes.",
            hint="Ask again.",
        )
    # Its process died. Written down, so that all who follow, now or later, read the same end.
    end = answer.frame(
        "error",
        newest["seq"] + 1,
        code="interrupted",
        message="The process that wrote this answer has ended.",
        hint="Ask again; the deployment itself is not concerned.",
    )
    await answers.append(answer, end)
    return None
