"""Answers that this process writes. A run owns its stream from the gateway; followers come and go."""

from __future__ import annotations

import asyncio
import uuid

import structlog
from redis.exceptions import RedisError

from tursiops.playground import answers
from tursiops.playground.answers import Answer
from tursiops.playground.messages import MAX_LANES, Refused, Start
from tursiops.playground.writer import Writer

log = structlog.get_logger(__name__)

PER_USER = 4 * MAX_LANES  # answers written at once in one process

_running: dict[Answer, tuple[Writer, asyncio.Task[None]]] = {}


async def start(answer: Answer, request: Start, team: str) -> None:
    """Begin to write `answer`. Raises Refused, or RedisError and OSError while the broker is away."""
    if sum(other.user == answer.user for other in _running) >= PER_USER:
        raise Refused("too_many", f"{PER_USER} of your answers are being written.", "Stop one of them.", 429)
    run = uuid.uuid4().hex
    if not await answers.claim(answer, run):
        raise Refused("busy", "This lane is still answering.", "Stop it, or wait for its end.", 409)
    writer = Writer(answer, request, team)
    task = asyncio.create_task(_write(writer, run))
    _running[answer] = (writer, task)
    task.add_done_callback(lambda task: _forget(answer, task))


def _forget(answer: Answer, task: asyncio.Task[None]) -> None:
    if answer in _running and _running[answer][1] is task:  # it may be written anew already
        del _running[answer]


async def stop(answer: Answer) -> None:
    """Stop it wherever it is written. Raises RedisError and OSError while the broker is away."""
    here = _running.get(answer)
    if here is not None:
        here[0].end("stop")
    else:
        await answers.ask_to_stop(answer)


async def _write(writer: Writer, run: str) -> None:
    watch = asyncio.create_task(_obey(writer, run))
    try:
        await writer.write()
        await answers.release(writer.answer)
    except (RedisError, OSError) as error:  # nobody can read it; the lease ends by itself
        log.warning("playground.broker_away", answer=writer.answer.key, error=str(error))
    except Exception:
        log.exception("playground.run_failed", answer=writer.answer.key)
    finally:
        watch.cancel()


async def _obey(writer: Writer, run: str) -> None:
    """Renew the lease, and look whether somebody elsewhere stopped the answer or nobody wants it any more."""
    while True:
        try:
            order = await answers.orders(writer.answer, run)
        except (RedisError, OSError):
            order = "go on"
        if order != "go on":
            writer.end(order)
        await asyncio.sleep(0.5)
