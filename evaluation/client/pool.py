"""The front of the client: one schedule, owned here, sent by one or several processes.

The processes get their parts of the one sequence (every n-th arrival) some seconds ahead and keep its times on the
monotonic clock, which processes of a machine share: what leaves them together is the sequence, whatever their number.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from evaluation.client.health import judge
from evaluation.client.messages import Begin, End, Halt, More, Ready, Records, Start, Vitals, pack, read_for_parent
from evaluation.client.target import EndpointError, Target
from evaluation.schema import Endpoint, Health, RequestRecord
from evaluation.workload.item import Planned

HORIZON_NS = 2_000_000_000  # how far ahead of its time a request goes to its process
LEAD_NS = 50_000_000  # between the last preparation and the schedule's zero
BATCH = 64  # requests in one message, at most
BATCH_S = 0.1  # and of so much of the schedule
URGENT_S = 1.0
ROOT = Path(__file__).parents[2]

__all__ = ["EndpointError", "SenderDied", "Sent", "Stop", "send"]


class SenderDied(Exception):
    """A sending process ended before its work; the records handed out until then hold."""


class Stop:
    """How the caller ends a run from outside, also from `on_record`. What was measured is kept either way."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._cut = False

    def drain(self) -> None:
        """Nothing new is sent; what is in flight is read to its end."""
        self._asked.set()

    def cut(self) -> None:
        """What is in flight ends at once, with status "cancelled" and the chunks it had."""
        self._cut = True
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def cutting(self) -> bool:
        return self._cut

    async def wait(self) -> None:
        await self._asked.wait()


class Sent(Struct, kw_only=True):
    """`start_ns`: the schedule's zero on the monotonic clock, so intended = start + offset."""

    start_ns: int
    end_ns: int
    records: int
    health: Health


async def send(
    planned: Iterable[Planned] | AsyncIterable[Planned],
    endpoint: Endpoint,
    *,
    on_record: Callable[[RequestRecord], None],
    processes: int = 1,
    concurrency: int | None = None,
    stop: Stop | None = None,
    api_key: str = "",
    level: int = 0,
) -> Sent:
    """Send what is planned and hand back each request's record as it ends (within 50 ms, in no order).

    planned: by rising offset, may be endless (it is drawn 2 s ahead). concurrency: closed loop with that many requests
    (or sessions) at once over all processes; offsets are ignored. `Sent.health` is the client's verdict of itself.
    Raises `EndpointError` only where nothing can be sent at all (a URL that is none); an endpoint that is down is a
    status of each record. Cancelled from outside, it ends its processes.
    """
    target = Target(endpoint, api_key)
    await target.look_up()
    if concurrency is not None:
        processes = min(processes, concurrency)
    senders = [
        _Sender(
            Begin(
                endpoint=endpoint,
                address=target.connect_to,
                api_key=api_key,
                process=number,
                level=level,
                slots=None if concurrency is None else len(range(number, concurrency, processes)),
            )
        )
        for number in range(processes)
    ]
    run = _Run(senders, on_record, stop or Stop(), open_loop=concurrency is None)
    try:
        await asyncio.gather(*(sender.begin() for sender in senders))
        return await run.carry_out(planned)
    finally:
        await asyncio.gather(*(sender.end() for sender in senders))


class _Sender:
    """A sending process, as the parent sees it."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self.slots = begin.slots
        self.unfinished = 0  # requests, or whole sessions, that it has got
        self.less = asyncio.Event()  # some of them have ended
        self._process: asyncio.subprocess.Process | None = None
        self._batch: list[Planned] = []

    async def begin(self) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "evaluation.client.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a signal to the run's group is the parent's affair, which ends them in order
        )  # fmt: skip
        self.write(self._begin)
        if not isinstance(await self.read(), Ready):
            raise SenderDied("a sending process spoke before it was ready")

    def write(self, message: Begin | Start | More | End | Halt) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(pack(message))

    async def drained(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise self._died() from error

    async def read(self) -> Ready | Records | Vitals:
        """Raises SenderDied."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return await read_for_parent(self._process.stdout)
        except asyncio.IncompleteReadError as error:
            raise self._died() from error

    def _died(self) -> SenderDied:
        return SenderDied(f"sending process {self._begin.process} ended before its work; its standard error says why")

    def add(self, planned: Planned) -> None:
        self.unfinished += 1
        self._batch.append(planned)
        if len(self._batch) >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._batch:
            self.write(More(self._batch))
            self._batch = []

    async def end(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()  # a process whose parent has gone ends
            try:
                await asyncio.wait_for(self._process.wait(), 2.0)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


class _Run:
    def __init__(
        self, senders: list[_Sender], on_record: Callable[[RequestRecord], None], stop: Stop, open_loop: bool
    ) -> None:
        self._senders = senders
        self._on_record = on_record
        self._stop = stop
        self._open = open_loop
        self._start_ns = 0
        self._records = 0
        self._lags_ms: list[float] = []
        self._ttft_ms: list[float] = []

    async def carry_out(self, planned: Iterable[Planned] | AsyncIterable[Planned]) -> Sent:
        feeding = asyncio.create_task(self._feed(planned))
        stopping = asyncio.create_task(self._await_stop())
        reading = [asyncio.create_task(self._read(sender)) for sender in self._senders]
        helpers = {feeding, stopping}
        try:
            waiting: set[asyncio.Task[Vitals | None]] = {*reading, feeding}
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # what broke one of them ends all
            vitals = [result for task in reading if (result := task.result()) is not None]
        finally:
            for task in (*helpers, *reading):
                task.cancel()
            await asyncio.gather(*helpers, *reading, return_exceptions=True)
        return Sent(
            start_ns=self._start_ns,
            end_ns=time.monotonic_ns(),
            records=self._records,
            health=judge(self._lags_ms, self._ttft_ms, vitals),
        )

    async def _feed(self, planned: Iterable[Planned] | AsyncIterable[Planned]) -> None:
        turn = 0
        async for one in _each(planned):
            await self._until_wanted(one, self._senders[turn])
            if self._stop.asked:
                return
            self._senders[turn].add(one)
            if self._start_ns and self._early_s(one) < URGENT_S:  # who plans is slow: no waiting for company
                self._senders[turn].flush()
            turn = (turn + 1) % len(self._senders)
        await self._begin_schedule()
        for sender in self._senders:
            sender.flush()
            sender.write(End())

    async def _until_wanted(self, one: Planned, sender: _Sender) -> None:
        """Open loop: until its time is near. Closed loop: until its process has few left."""
        if self._open:
            offset = one.offset_ns or 0
            if not self._start_ns and offset <= HORIZON_NS:
                return
            await self._begin_schedule()
            early_s = self._early_s(one) - HORIZON_NS / 1e9
            if early_s > 0:
                await self._pause(early_s + BATCH_S)
            return
        most = 2 * (sender.slots or 1) + 8
        if sender.unfinished >= most:
            await self._begin_schedule()
        while sender.unfinished >= most and not self._stop.asked:
            sender.less.clear()
            await self._pause(0.1, sender.less)

    def _early_s(self, one: Planned) -> float:
        return (self._start_ns + (one.offset_ns or 0) - time.monotonic_ns()) / 1e9

    async def _pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        """What is ready goes out first. Ends early when the caller stops, or at the event."""
        for sender in self._senders:
            sender.flush()
            await sender.drained()
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._stop.wait())]
        if event is not None:
            waiting.append(asyncio.create_task(event.wait()))
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _begin_schedule(self) -> None:
        if self._start_ns:
            return
        for sender in self._senders:
            sender.flush()
            await sender.drained()
        self._start_ns = time.monotonic_ns() + LEAD_NS
        for sender in self._senders:
            sender.write(Start(self._start_ns))

    async def _await_stop(self) -> None:
        await self._stop.wait()
        if not self._stop.cutting:
            for sender in self._senders:
                sender.write(Halt(cut=False))
        while not self._stop.cutting:  # draining may still be cut
            await asyncio.sleep(0.05)
        for sender in self._senders:
            sender.write(Halt(cut=True))

    async def _read(self, sender: _Sender) -> Vitals | None:
        while True:
            message = await sender.read()
            if isinstance(message, Vitals):
                return message
            assert isinstance(message, Records)
            sender.unfinished -= message.items
            sender.less.set()
            for record in message.records:
                self._take(record)

    def _take(self, record: RequestRecord) -> None:
        self._records += 1
        if record.sent_ns is not None and not record.warm_up:
            self._lags_ms.append((record.sent_ns - record.intended_ns) / 1e6)
            if record.first_ns is not None:
                self._ttft_ms.append((record.first_ns - record.sent_ns) / 1e6)
        self._on_record(record)


async def _each(planned: Iterable[Planned] | AsyncIterable[Planned]) -> AsyncIterator[Planned]:
    if isinstance(planned, AsyncIterable):
        async for one in planned:
            yield one
        return
    for number, one in enumerate(planned):
        yield one
        if number % BATCH == BATCH - 1:
            await asyncio.sleep(0)  # records are taken in between
