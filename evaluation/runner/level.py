"""One level, live: send until it is steady and its objectives are decided, or surely overloaded, or time is up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from evaluation.client.pool import Sent, Stop, send
from evaluation.metrics.goodput import judge, together
from evaluation.runner.figures import level_result, tolerate
from evaluation.runner.steady import Assessment, Columns, Log, S, assess, closed_loop, transient_end
from evaluation.schema import Decision, Health, LevelResult, Objective, RequestRecord, RunSpec, Window
from evaluation.workload.item import Planned

LOOK_S = 1.0
KNOWN_AFTER_NS = S // 4  # records arrive so much later than they end, at most
OVERLOAD_S = 10.0  # shortest look at rising slopes, and two looks must agree
ALL_FAILED = 20  # requests, none of which was answered, end a level
MEDIANS = 3  # a window lasts at least so many median E2EL
SURE = 0.9999  # confidence at which a failure ends a level early
MOST = 4  # x min_requests: how far a level goes on to decide an objective
PROGRESS = Callable[[float, str], None]


@dataclass
class LevelPlan:
    """What one level sends. `planned`: warm-up first, endless where the data set is; open loop: by rising offset."""

    index: int
    rate: float | None
    planned: AsyncIterator[Planned]
    warm_up_s: float  # of the schedule's beginning, a ramp included
    concurrency: int | None = None
    seed: int = 0
    drop_backlog: bool = False  # of an overloaded level


@dataclass
class _State:
    """Where the level stands. Window times in ns."""

    begin: int = 0
    end: int = 0  # of the window that is being closed; 0: none
    overloads: int = 0  # looks in a row
    wanted: int = 0
    closing_since: float = 0.0
    assessment: Assessment = field(default_factory=lambda: Assessment("undetermined", reasons=["no_answers"]))


class Level:
    """`run` sends and looks once a second; `interrupt` ends it early, with what was measured."""

    def __init__(
        self, plan: LevelPlan, spec: RunSpec, objectives: list[Objective], *, api_key: str = "", progress: PROGRESS
    ) -> None:
        self._plan = plan
        self._spec = spec
        self._objectives = objectives
        self._api_key = api_key
        self._progress = progress
        self._open = plan.concurrency is None
        self._offsets: list[int] = []
        self._log = Log(self._offsets if self._open else None)
        self._stop = Stop()
        self._interrupted = False
        self._cut_at = math.inf  # monotonic seconds
        self._state = _State(wanted=spec.min_requests)
        self.records: list[RequestRecord] = []

    def interrupt(self) -> None:
        self._interrupted = True
        self._stop.cut()

    async def run(self) -> LevelResult:
        """Raises EndpointError where nothing can be sent, SenderDied where a process of the client was killed."""
        sending = asyncio.create_task(
            send(
                self._announced(),
                self._spec.endpoint,
                on_record=self._take,
                processes=self._spec.processes,
                concurrency=self._plan.concurrency,
                stop=self._stop,
                api_key=self._api_key,
                level=self._plan.index,
            )
        )
        began = time.monotonic()
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=LOOK_S)
                if not self._stop.asked:
                    self._look(time.monotonic() - began)
                elif time.monotonic() > self._cut_at:
                    self._stop.cut()
        except BaseException:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            raise
        return self._result(sending.result())

    async def _announced(self) -> AsyncIterator[Planned]:
        """Keeps the times of what is planned: what was not answered yet has arrived all the same."""
        async for one in self._plan.planned:
            if self._open:
                self._offsets.append(one.offset_ns or 0)
            yield one

    def broken_off(self) -> LevelResult:
        """What there was when `run` raised: as of a level that was interrupted."""
        self._interrupted = True
        now = time.monotonic_ns()
        return self._result(Sent(start_ns=now, end_ns=now, records=len(self.records), health=Health()))

    def _take(self, record: RequestRecord) -> None:
        self.records.append(record)
        self._log.add(record)

    def _look(self, elapsed_s: float) -> None:
        """Once a second: is the level decided?"""
        state, start = self._state, self._log.start_ns
        if start is None:
            if elapsed_s > self._spec.endpoint.timeout_s + self._plan.warm_up_s + 30:
                self._stop.cut()
            return
        now = time.monotonic_ns() - KNOWN_AFTER_NS
        warm = start + round(self._plan.warm_up_s * S)
        columns = self._log.columns()
        if len(columns.ok) >= ALL_FAILED and not columns.ok.any():
            state.begin, state.end = min(start, now), now
            state.assessment = Assessment("undetermined", reasons=["all_failed"])
            self._stop.cut()
            return
        if now - warm < 2 * S:
            return
        out_of_time = elapsed_s >= self._spec.steady.max_s + self._plan.warm_up_s
        if state.end:
            self._close(columns, now, out_of_time)
            return
        state.begin = transient_end(columns, warm, now)
        state.assessment = self._assess(columns, state.begin, now)
        offered = len(columns.within(state.begin, now).arrivals)
        self._tell(offered, now)
        long_enough = now - state.begin >= min(OVERLOAD_S, max(self._spec.steady.min_s, 2.0)) * S
        state.overloads = state.overloads + 1 if state.assessment.verdict == "overloaded" and long_enough else 0
        if state.overloads >= 2:
            state.end = now
            self._end_overload()
        elif out_of_time or (
            state.assessment.verdict == "steady" and offered >= state.wanted and self._long(columns, state.begin, now)
        ):
            state.end, state.closing_since = now, time.monotonic()
            if out_of_time:
                self._close(columns, now, out_of_time)
        elif self._fails_surely(now):
            state.end = now
            self._stop.drain()

    def _end_overload(self) -> None:
        """Where the engine tells when it is idle, the backlog is dropped; else it is read, as it would burden the next
        level unseen."""
        if self._plan.drop_backlog:
            self._stop.cut()
        else:
            self._stop.drain()
            self._cut_at = time.monotonic() + self._spec.cool_down_s

    def _long(self, columns: Columns, begin: int, end: int) -> bool:
        """At least `min_s`, and so many median E2EL."""
        seen = columns.within(begin, end)
        stays = sorted((seen.end - seen.intended)[seen.ok].tolist())
        median = stays[len(stays) // 2] if stays else 0
        return end - begin >= max(self._spec.steady.min_s * S, MEDIANS * median)

    def _close(self, columns: Columns, now: int, out_of_time: bool) -> None:
        """The load goes on until the window's requests have ended: they are served as they came."""
        state = self._state
        seen = columns.within(state.begin, state.end)
        waited = time.monotonic() - state.closing_since
        if len(seen.intended) < len(seen.arrivals) and not out_of_time and waited < self._spec.endpoint.timeout_s + 5:
            return
        state.assessment = self._assess(columns, state.begin, state.end)
        if out_of_time:
            self._stop.drain()
        elif state.assessment.verdict == "undetermined":
            state.end = 0
        elif self._undecided() and 2 * state.wanted <= MOST * self._spec.min_requests:
            state.end = 0
            state.wanted *= 2
        else:
            self._stop.drain()

    def _undecided(self) -> bool:
        decisions = self._judged(self._state.end, self._spec.confidence)
        return bool(decisions) and together(decisions) == "undetermined"

    def _fails_surely(self, now: int) -> bool:
        """So many misses that a look each second can't have picked out a chance: no more requests are needed."""
        checks = self._state.assessment.checks
        filling = (checks.get("in_flight_slope") or 0.0) > 0 and (checks.get("in_flight_moe") or math.inf) < 1
        if filling or now - self._state.begin < self._spec.steady.min_s * S:
            return False  # where the queue grows, the level goes on until it is surely overloaded or not
        return together(self._judged(now, SURE)) == "fail"

    def _judged(self, end: int, confidence: float) -> list[Decision]:
        """By what has ended of the window: late requests are missing among them, so a failure is none the less one."""
        chosen = sorted(
            (one for one in self.records if self._state.begin <= one.intended_ns < end),
            key=lambda one: one.intended_ns,
        )
        return [judge(chosen, objective, confidence).decision for objective in self._objectives]

    def _assess(self, columns: Columns, begin: int, end: int) -> Assessment:
        return (assess if self._open else closed_loop)(columns, begin, end, self._spec.steady)

    def _result(self, sent: Sent) -> LevelResult:
        """Also where the data set ended, or the run was interrupted, before the level was decided."""
        state = self._state
        columns = self._log.columns()
        start = self._log.start_ns if self._log.start_ns is not None else sent.start_ns
        warm = start + round(self._plan.warm_up_s * S)
        begin, end, assessment = state.begin or warm, state.end, state.assessment
        if not end:  # no window was being closed: the data set has ended, or the run was interrupted
            last = int(columns.arrivals[-1]) + 1 if len(columns.arrivals) else begin
            end = max(begin, min(last, sent.end_ns))
            begin = transient_end(columns, warm, end) if end > warm else begin
            assessment = self._assess(columns, begin, end)
            enough = len(columns.within(begin, end).arrivals) >= self._spec.min_requests
            short = not (enough and self._long(columns, begin, end))
            if assessment.verdict == "steady" and short and not self._interrupted:
                assessment = Assessment("undetermined", assessment.checks, ["data_ended"])
        elif assessment.verdict != "overloaded" and "all_failed" not in assessment.reasons:
            assessment = self._assess(columns, begin, end)  # all of its requests have ended by now
        if self._interrupted:
            assessment = Assessment("undetermined", assessment.checks, [*assessment.reasons, "interrupted"])
        truncated = max(0.0, (begin - start) / S)
        result = level_result(
            self.records,
            Window(start_ns=begin, end_ns=end, seconds=(end - begin) / S, truncated_s=truncated),
            assessment,
            index=self._plan.index,
            rate=self._plan.rate,
            objectives=self._objectives,
            concurrency=self._plan.concurrency,
            seed=self._plan.seed,
            confidence=self._spec.confidence,
            health=tolerate(sent.health, self._objectives),
            arrivals=columns,
        )
        if self._interrupted:
            result.decision = "undetermined"
        return result

    def _tell(self, offered: int, now: int) -> None:
        share = min(offered / max(1, self._state.wanted), (now - self._state.begin) / S / self._spec.steady.min_s) \
            if self._spec.steady.min_s else offered / max(1, self._state.wanted)  # fmt: skip
        reasons = ", ".join(self._state.assessment.reasons) or self._state.assessment.verdict
        self._progress(min(share, 0.99), f"{offered} of {self._state.wanted} requests, {reasons}")
