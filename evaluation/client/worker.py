"""One sending process: `python -m evaluation.client.worker`, told what to do on stdin, records on stdout.

Ends when all is sent and answered, or when its parent has gone.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from evaluation.client.http import Client, Exchange
from evaluation.client.messages import (
    Begin,
    End,
    Halt,
    More,
    Ready,
    Records,
    Start,
    Vitals,
    pack,
    read_for_child,
)
from evaluation.client.target import Target
from evaluation.client.timer import Timer
from evaluation.schema import RequestRecord
from evaluation.workload.item import Planned

PROBE_NS = 10_000_000  # between two looks at how late the loop is
FLUSH_PROBES = 5  # records go out, and time-outs are looked for, at every so many of them


class Conversation:
    """One arrival on its way: its turns follow one another."""

    __slots__ = ("body", "history", "planned", "turn")

    def __init__(self, planned: Planned, body: bytes) -> None:
        self.planned = planned
        self.body = body  # of the first turn, written before it is due
        self.turn = 0
        self.history: list[dict[str, Any]] = []


class Worker:
    """`write` takes bytes for the parent, without waiting."""

    def __init__(self, begin: Begin, write: Callable[[bytes], None]) -> None:
        self._begin = begin
        self._write = write
        self._target = Target(begin.endpoint, begin.api_key)
        self._target.connect_to = begin.address
        self._client = Client(self._target)
        self._timer = Timer()
        self._timeout_ns = int(begin.endpoint.timeout_s * 1e9)
        self._start_ns: int | None = None
        self._unscheduled: list[Conversation] = []  # came before the schedule's zero
        self._queue: deque[Conversation] = deque()  # closed loop: waits for a slot
        self._free = begin.slots or 0
        self._waiting = 0  # conversations that a timer will send
        self._running: dict[Exchange, Conversation] = {}
        self._records: list[RequestRecord] = []
        self._items = 0
        self._ending = self._halted = False
        self._done = asyncio.Event()
        self._lags_ms: list[float] = []
        self._chunks = 0

    async def run(self, reader: asyncio.StreamReader) -> None:
        self._write(pack(Ready()))
        listening = asyncio.create_task(self._listen(reader))
        finished = asyncio.create_task(self._done.wait())
        await asyncio.wait((listening, finished), return_when=asyncio.FIRST_COMPLETED)
        if not self._done.is_set():
            listening.result()  # raises what broke it; else the parent has gone
            return
        listening.cancel()
        self._flush()
        wall_s = (time.monotonic_ns() - (self._start_ns or time.monotonic_ns())) / 1e9
        self._write(
            pack(
                Vitals(
                    process=self._begin.process,
                    wall_s=wall_s,
                    cpu_s=time.process_time() - self._cpu_s if self._start_ns else 0.0,
                    loop_lags_ms=self._lags_ms,
                    chunks=self._chunks,
                    files_open=_open_files(),
                    files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                )
            )
        )
        self._timer.close()
        await self._client.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                message = await read_for_child(reader)
            except asyncio.IncompleteReadError:
                return
            if isinstance(message, More):
                for planned in message.planned:
                    turn = planned.item.turns[0]
                    self._take(Conversation(planned, self._target.body(turn, [])))
            elif isinstance(message, Start):
                self._begin_schedule(message.start_ns)
            elif isinstance(message, Halt):
                self._halt(message.cut)
            elif isinstance(message, End):
                self._ending = True
            self._end_if_done()

    def _begin_schedule(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._cpu_s = time.process_time()
        early, self._unscheduled = self._unscheduled, []
        for conversation in early:
            self._take(conversation)
        self._timer.at(start_ns, partial(self._probe, start_ns))

    def _take(self, conversation: Conversation) -> None:
        if self._halted:
            return
        if self._start_ns is None:
            self._unscheduled.append(conversation)
        elif self._begin.slots is not None:
            self._queue.append(conversation)
            self._timer.at(self._start_ns, self._fill)
        else:
            self._later(conversation, self._start_ns + (conversation.planned.offset_ns or 0))

    def _fill(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            self._launch(self._queue.popleft(), time.monotonic_ns())

    def _later(self, conversation: Conversation, due_ns: int) -> None:
        self._waiting += 1
        self._timer.at(due_ns, partial(self._due, conversation, due_ns))

    def _due(self, conversation: Conversation, due_ns: int) -> None:
        self._waiting -= 1
        self._launch(conversation, due_ns)

    def _launch(self, conversation: Conversation, intended_ns: int) -> None:
        planned, number = conversation.planned, conversation.turn
        turn = planned.item.turns[number]
        record = RequestRecord(
            index=planned.index,
            intended_ns=intended_ns,
            session=planned.item.session,
            turn=number,
            level=self._begin.level,
            process=self._begin.process,
            warm_up=planned.warm_up,
            planned_prompt_tokens=turn.prompt_tokens if number == 0 else None,
            planned_output_tokens=turn.max_tokens,
        )
        body = conversation.body if number == 0 else self._target.body(turn, conversation.history)
        exchange = Exchange(record, self._target.stream_head, body, self._ended,
                            deadline_ns=intended_ns + self._timeout_ns,
                            keep_content=number + 1 < len(planned.item.turns))  # fmt: skip
        self._running[exchange] = conversation
        self._client.send(exchange)

    def _ended(self, exchange: Exchange) -> None:
        conversation = self._running.pop(exchange)
        record = exchange.record
        self._records.append(record)
        self._chunks += len(record.chunks)
        turns = conversation.planned.item.turns
        if record.status == "ok" and conversation.turn + 1 < len(turns) and not self._halted:
            answer = {"role": "assistant", "content": "".join(exchange.content)}
            conversation.history += [*turns[conversation.turn].messages, answer]
            conversation.turn += 1
            think_ns = int(turns[conversation.turn].think_s * 1e9)
            self._later(conversation, (record.end_ns or time.monotonic_ns()) + think_ns)
            return
        self._items += 1
        if self._begin.slots is not None:
            self._free += 1
            self._fill()
        self._end_if_done()

    def _halt(self, cut: bool) -> None:
        self._ending = self._halted = True
        self._timer.clear()  # the probe, too: begun again below, for what is in flight
        self._queue.clear()
        self._unscheduled.clear()
        self._waiting = 0
        if cut:
            for exchange in list(self._running):
                self._drop(exchange, "cancelled", "cancelled: the run was stopped")
        now = time.monotonic_ns()
        self._timer.at(now + PROBE_NS, partial(self._probe, now + PROBE_NS))

    def _drop(self, exchange: Exchange, status: Any, error: str) -> None:
        exchange.end(time.monotonic_ns(), status, error)
        if exchange.connection is not None:
            exchange.connection.abort()

    def _end_if_done(self) -> None:
        if self._ending and not (self._running or self._waiting or self._queue or self._unscheduled):
            self._done.set()

    def _probe(self, due_ns: int) -> None:
        now = time.monotonic_ns()
        self._lags_ms.append(round((now - due_ns) / 1e6, 3))
        if len(self._lags_ms) % FLUSH_PROBES == 0:
            for exchange in [exchange for exchange in self._running if exchange.deadline_ns < now]:
                limit = self._timeout_ns / 1e9
                self._drop(exchange, "timeout", f"timeout: not ended {limit:g} s after its intended start")
            self._flush()
        following = max(due_ns + PROBE_NS, now)
        self._timer.at(following, partial(self._probe, following))

    def _flush(self) -> None:
        if self._records or self._items:
            self._write(pack(Records(self._records, self._items)))
            self._records, self._items = [], 0


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # not Linux
        return 0


async def main() -> None:
    told = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not lie between the messages
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(told, "wb", buffering=0))
    begin = await read_for_child(reader)
    assert isinstance(begin, Begin)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # a collection in the middle of a read is lag; little here is cyclic
    await Worker(begin, transport.write).run(reader)
    while transport.get_write_buffer_size():
        await asyncio.sleep(0.001)
    transport.close()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:  # not on Windows, and not a dependency of this package alone
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
