"""A small event simulator of continuous batching: queue, chunked prefill beside decodes, one token per row and step.

The rules are those of `engines/native/scheduler.py`: decodes first; what the step's budget of tokens leaves goes to
prompts, in order of arrival; a request is admitted when a row is free and its tokens fit; a chunk that is not the last
ends at a block's end; beside prompts nothing is guessed. Steps between two events (arrival, end of an answer) are alike
but for their growing contexts, so they are taken in one leap: the cost is in the number of requests, not of tokens.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.planner.roofline import Step
from evaluation.profile import Guesses

Floats = NDArray[np.float64]
Seconds = Callable[[Step], float]
PLAIN = Guesses()


class Work(NamedTuple):
    """Requests in order of arrival. at: s; prompt: tokens to compute; cached: tokens of a prefix that the cache has,
    which take room and are read, but not computed; output: tokens, the first among them; guesses: of a pass without
    prompts."""

    at: Floats
    prompt: Floats
    cached: Floats
    output: Floats
    guesses: Guesses = PLAIN


class Limits(NamedTuple):
    """kv_tokens: of all running requests together; a prefix that is shared is counted once by the caller. depth: steps
    on their way at once; with 2, as on a GPU, a step is planned when the one before it starts, and misses who came
    since."""

    sequences: int
    step_tokens: int
    kv_tokens: float = math.inf
    block: int = 16
    depth: int = 1
    target_tpot_s: float = 0.0  # chunks beside decodes are cut to meet it; 0: they take the whole budget


class Outcome(NamedTuple):
    """Per request, seconds from its arrival; tpot is nan for one token. busy: of the device. span: first arrival to
    last end. longest_queue: requests."""

    ttft: Floats
    tpot: Floats
    e2el: Floats
    busy_s: float
    span_s: float
    longest_queue: int
    mean_rows: float  # of decoding requests, over the time that the device was busy

    @property
    def rate(self) -> float:
        """Requests/s completed."""
        return len(self.ttft) / self.span_s

    def quantile(self, metric: str, quantile: float, skip: float = 0.0) -> float:
        """Seconds; `skip`: share of the requests at the start and at the end that are left out."""
        values = getattr(self, metric)
        cut = int(len(values) * skip)
        values = values[cut : len(values) - cut]
        values = values[~np.isnan(values)]
        return float(np.quantile(values, quantile)) if len(values) else math.nan


class _Prompt:
    """One that is being computed: `done` of `size` tokens behind `cached`."""

    __slots__ = ("cached", "done", "index", "size")

    def __init__(self, index: int, size: float, cached: float) -> None:
        self.index, self.size, self.cached, self.done = index, size, cached, 0.0


class Pass(NamedTuple):
    """One in which no prompt has a part. tokens: that each row is told."""

    seconds: float
    tokens: float


def decode_pass(seconds: Seconds, rows: float, keys: float, guesses: Guesses = PLAIN) -> Pass:
    """With guesses where that is faster per token, as the engine's budget chooses, else a plain one."""
    plain = Pass(seconds(Step(rows, keys)), 1.0)
    if not guesses.checked:
        return plain
    tried = Pass(seconds(Step(rows, keys, guesses=rows * guesses.checked)), guesses.tokens)
    return tried if tried.seconds / tried.tokens < plain.seconds else plain


class _Machine:
    """State of one instance. Rows that decode are told the same number of tokens in a step, so they are counters: how
    many, their keys, and a heap of what will have been told when each ends."""

    def __init__(self, work: Work, limits: Limits, seconds: Seconds) -> None:
        self.work, self.limits, self.seconds = work, limits, seconds
        count = len(work.at)
        self.first, self.end = np.full(count, np.nan), np.full(count, np.nan)
        self.waiting: deque[int] = deque()
        self.prompts: deque[_Prompt] = deque()
        self.told = 0.0  # tokens that a row would have that decoded from the start
        self.begun = [0.0] * count  # `told` when a request began to decode
        self.ending: list[tuple[float, int]] = []  # (`told` with which it ends, request)
        self.rows, self.keys, self.held = 0, 0.0, 0.0
        self.now, self.busy, self.row_time = 0.0, 0.0, 0.0
        self.next, self.longest = 0, 0
        self.last = 0.0  # seconds of the newest step

    def run(self) -> Outcome:
        work = self.work
        while self.next < len(work.at) or self.waiting or self.prompts or self.rows:
            if not (self.waiting or self.prompts or self.rows):
                self.now = max(self.now, float(work.at[self.next]))
            self._arrive()
            self._admit()
            if self.prompts:
                self._mixed()
            else:
                self._leap()
        ttft, e2el = self.first - work.at, self.end - work.at
        tpot = np.where(work.output > 1, (self.end - self.first) / np.maximum(work.output - 1, 1), np.nan)
        span = float(np.max(self.end) - work.at[0])
        rows = self.row_time / self.busy if self.busy else 0.0
        return Outcome(ttft, tpot, e2el, self.busy, max(span, 1e-12), self.longest, rows)

    def _arrive(self) -> None:
        at, planned = self.work.at, self.now
        if self.limits.depth > 1 and (self.rows or self.prompts):
            planned -= self.last
        while self.next < len(at) and at[self.next] <= planned + 1e-12:
            self.waiting.append(self.next)
            self.next += 1
        self.longest = max(self.longest, len(self.waiting))

    def _admit(self) -> None:
        work, limits = self.work, self.limits
        while self.waiting and self.rows + len(self.prompts) < limits.sequences:
            index = self.waiting[0]
            need = float(work.prompt[index] + work.output[index])
            if self.held + need > limits.kv_tokens and (self.rows or self.prompts):
                break
            self.waiting.popleft()
            self.held += need
            self.prompts.append(_Prompt(index, float(work.prompt[index]), float(work.cached[index])))

    def _mixed(self) -> None:
        """One step with prompt tokens in it."""
        step, finished = self._fill(float(self.limits.step_tokens - self.rows))
        self._spend(self.seconds(step), 1)
        for prompt in finished:
            self.prompts.remove(prompt)
            self.first[prompt.index] = self.now
            self._begin_decode(prompt.index)

    def _fill(self, budget: float) -> tuple[Step, list[_Prompt]]:
        if self.limits.target_tpot_s and self.rows:
            budget = min(budget, self._paced(budget))
        chunk = pairs = 0.0
        finished = []
        for prompt in self.prompts:
            if budget < 1:
                break
            left = prompt.size - prompt.done
            count = left
            if left > budget:
                block = self.limits.block
                count = (prompt.done + budget) // block * block - prompt.done
                if count <= 0:
                    break
            pairs += count * (prompt.cached + prompt.done + count / 2)
            chunk += count
            budget -= count
            prompt.done += count
            if prompt.done >= prompt.size:
                finished.append(prompt)
        return Step(self.rows, self.keys, chunk, pairs), finished

    def _paced(self, budget: float) -> float:
        """Largest chunk whose step meets the target, to a block; never less than a block."""
        block = self.limits.block
        low, high = 1, max(1, int(budget // block))
        while low < high:
            middle = (low + high + 1) // 2
            chunk = middle * block
            if self.seconds(Step(self.rows, self.keys, chunk, chunk * chunk / 2)) <= self.limits.target_tpot_s:
                low = middle
            else:
                high = middle - 1
        return float(low * block)

    def _leap(self) -> None:
        """Decode steps until the next answer ends or the next request comes in. A request that waits for room can be
        let in by an ending only."""
        if not self.rows:
            return
        now = decode_pass(self.seconds, self.rows, self.keys, self.work.guesses)
        many = max(1, math.ceil((self.ending[0][0] - self.told) / now.tokens - 1e-9))
        if self.next < len(self.work.at) and len(self.waiting) == 0:
            until = float(self.work.at[self.next]) - self.now
            many = max(1, min(many, math.ceil(until / now.seconds)))
        middle = self.keys + self.rows * now.tokens * (many - 1) / 2
        each = decode_pass(self.seconds, self.rows, middle, self.work.guesses)
        self._spend(each.seconds * many, many, now.tokens)

    def _spend(self, seconds: float, steps: int, tokens: float = 1.0) -> None:
        """tokens: that a row is told in each step."""
        self.now += seconds
        self.busy += seconds
        self.last = seconds / steps
        self.row_time += self.rows * seconds
        self.told += tokens * steps
        self.keys += self.rows * tokens * steps
        while self.ending and self.ending[0][0] <= self.told + 1e-9:
            _, index = heapq.heappop(self.ending)
            self.rows -= 1
            self.keys -= self._keys_of(index) + self.told - self.begun[index]
            self._leave(index)
        if not self.rows:
            self.keys = 0.0  # what sums leave behind

    def _begin_decode(self, index: int) -> None:
        output = float(self.work.output[index])
        if output <= 1:
            self._leave(index)
            return
        self.rows += 1
        self.keys += self._keys_of(index)
        self.begun[index] = self.told
        heapq.heappush(self.ending, (self.told + output - 1, index))

    def _keys_of(self, index: int) -> float:
        """When it begins to decode."""
        return float(self.work.cached[index] + self.work.prompt[index])

    def _leave(self, index: int) -> None:
        self.end[index] = self.now
        self.held -= float(self.work.prompt[index] + self.work.output[index])


def simulate(work: Work, limits: Limits, seconds: Seconds) -> Outcome:
    """One instance. Raises ValueError where a single request can't fit."""
    if len(work.at) == 0:
        raise ValueError("work: no request to simulate")
    largest = float(np.max(work.prompt + work.output))
    if largest > limits.kv_tokens:
        raise ValueError(f"kv_tokens: {limits.kv_tokens:,.0f}, and one request needs {largest:,.0f}")
    return _Machine(work, limits, seconds).run()


def arrivals(chooser: np.random.Generator, rate: float, count: int, burstiness: float = 1.0) -> Floats:
    """Times in s, gamma gaps of shape `burstiness`."""
    gaps = chooser.gamma(burstiness, 1 / (burstiness * rate), count)
    return np.asarray(np.cumsum(gaps) - gaps[0], np.float64)
