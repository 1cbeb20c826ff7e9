"""Times the steps of a running engine over HTTP, and makes a grid of them.

    prefill   prompts one after another with one token of answer: TTFT by the prompt's length
    decode    as many requests at once as a step shall have rows, long enough that all of them answer at the same time:
              the time of a pass while they do, by rows and context
    mixed     prompts one after another beside such requests: how long these wait for the token of the step that a
              prompt is computed in

An engine that guesses tells more than one token in a pass, and checks more than one of a row: the answers' usage has
both, so that its passes are timed as what they are. Prompts are random token ids, so that no two share a prefix. The
engine should have nothing else to do; what it was doing is seen as noise in the repeats, and `spread` tells how much.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

import msgspec
import numpy as np
from msgspec import Struct

from evaluation.client.pool import send
from evaluation.planner.roofline import Roof
from evaluation.planner.util_grid import Grid, Measurement, fit
from evaluation.profile import guesses_in
from evaluation.schema import Endpoint, RequestRecord
from evaluation.workload.item import Item, Turn, plan

FEWEST_STEPS = 4
"""Tokens that every stream must have got while all answered, for a step's time to be told."""
BESIDE = 6
"""Prompts that are computed one after another beside rows that decode."""


class CalibrationError(RuntimeError):
    """The engine did not answer as it must: names what was asked, the reason and the fix."""

    code = "calibration_failed"


class Recipe(Struct, kw_only=True, frozen=True):
    """What is timed. beside: prompts that are computed beside rows that decode, as many as fit into one step with them;
    the most rows are left out, which may be all that the engine has. margin: output tokens beyond those that pass while
    other prompts are computed."""

    rows: tuple[int, ...] = (1, 4, 16)
    contexts: tuple[int, ...] = (128, 1024)
    prompts: tuple[int, ...] = (64, 256, 1024)
    beside: tuple[int, ...] = (128,)
    step_tokens: int = 8192  # the engine's budget of a step
    repeats: int = 3
    margin: int = 24
    first_id: int = 1_000  # ids of text lie between; the ends of a vocabulary hold special tokens
    last_id: int = 30_000
    seed: int = 0


class Timed(Struct, kw_only=True):
    """overhead_s: of a request before its prompt is computed. spread: relative, of the repeats."""

    measurements: list[Measurement]
    overhead_s: float
    spread: float


async def calibrate(
    endpoint: Endpoint,
    roof: Roof,
    recipe: Recipe,
    *,
    api_key: str = "",
    on_step: Callable[[str], None] = print,
    **facts: str,
) -> Grid:
    """Raises CalibrationError."""
    timed = await measure(endpoint, recipe, api_key=api_key, on_step=on_step)
    return fit(roof, timed.measurements, overhead_s=timed.overhead_s, **facts)


async def measure(
    endpoint: Endpoint, recipe: Recipe, *, api_key: str = "", on_step: Callable[[str], None] = print
) -> Timed:
    """Raises CalibrationError."""
    bench = _Bench(_completions(endpoint), recipe, api_key)
    await bench.prefill(8)  # the first request finds what is made once
    cells = [(rows, context) for rows in recipe.rows for context in recipe.contexts]
    fewer = sorted(recipe.rows)[:-1] or recipe.rows
    mixed = [(rows, tokens) for rows in fewer for tokens in recipe.beside if rows + tokens <= recipe.step_tokens]
    decodes: dict[tuple[int, int], list[Measurement]] = defaultdict(list)
    both: dict[tuple[int, int], list[Measurement]] = defaultdict(list)
    prefills: dict[int, list[float]] = defaultdict(list)
    for number in range(recipe.repeats):  # all cells in each round: what drifts meets them alike
        for rows, context in cells:
            decodes[rows, context].append(await bench.decode(rows, context))
        for tokens in (1, *recipe.prompts):
            prefills[tokens].append(await bench.prefill(tokens))
        for rows, tokens in mixed:
            both[rows, tokens].append(await bench.mixed(rows, tokens))
        on_step(f"round {number + 1} of {recipe.repeats}")
    alone = min(
        (median(each.seconds for each in times) for (rows, _), times in decodes.items() if rows == 1), default=math.inf
    )
    overhead = max(0.0, median(prefills.pop(1)) - alone)
    found = [_middle(times) for times in decodes.values()]
    found += [
        Measurement(
            kind="prefill", tokens=tokens, seconds=median(times), step_tokens=recipe.step_tokens,
            source=f"live: prefill {tokens}",
        )
        for tokens, times in prefills.items()
    ]  # fmt: skip
    found += [_middle(times) for times in both.values()]
    for each in found:
        on_step(f"{each.source.removeprefix('live: ')}: {each.seconds * 1e3:.2f} ms")
    on_step(f"a request takes {overhead * 1e3:.2f} ms beside its steps")
    spreads = [_spread([each.seconds for each in times]) for timed in (decodes, both) for times in timed.values()]
    spreads += [_spread(times) for times in prefills.values()]
    return Timed(measurements=found, overhead_s=overhead, spread=median(spreads))


class _Bench:
    """Sends what one measurement needs and reads its records."""

    def __init__(self, endpoint: Endpoint, recipe: Recipe, api_key: str) -> None:
        self._endpoint, self._recipe, self._api_key = endpoint, recipe, api_key
        self._chooser = np.random.default_rng(recipe.seed)

    async def prefill(self, tokens: int) -> float:
        """Seconds from sending to the first token."""
        record = (await self._send([self._item(tokens, 1)], 1))[0]
        assert record.first_ns is not None
        assert record.sent_ns is not None
        return (record.first_ns - record.sent_ns - (record.connect_ns or 0)) / 1e9

    async def decode(self, rows: int, context: int) -> Measurement:
        recipe = self._recipe
        outputs = recipe.margin + math.ceil(rows * context / recipe.step_tokens) + rows // 8
        records = await self._send([self._item(context, outputs) for _ in range(rows)], rows)
        guesses = guesses_in(records)
        begun = max(record.first_ns or 0 for record in records)
        ended = min(record.chunks[-1][0] for record in records)
        steps, done = [], []
        for record in records:
            times = [at for at, _ in record.chunks]
            inside = [index for index, at in enumerate(times) if begun <= at <= ended]
            tokens = sum(record.chunks[index][1] for index in inside[1:])
            if tokens >= FEWEST_STEPS:
                steps.append((times[inside[-1]] - times[inside[0]]) / 1e9 / tokens * guesses.tokens)
                done.append(sum(record.chunks[index][1] for index in range(inside[0] + 1)) + tokens / 2)
        if not steps:
            raise self._apart(f"decode {rows} × {context}", rows)
        return Measurement(
            kind="decode", rows=rows, context=context + float(np.mean(done)), guesses=guesses.checked,
            seconds=median(steps), source=f"live: decode {rows} × {context}",
        )  # fmt: skip

    async def mixed(self, rows: int, tokens: int) -> Measurement:
        """Each prompt is sent when the one before has its token, so that it finds rows that decode, and no prompt."""
        context = self._recipe.contexts[0]
        outputs = self._recipe.margin + 8 * BESIDE  # passes of their own between the prompts, and guesses, too
        streams = [self._item(context, outputs) for _ in range(rows)]
        records = await self._send([*streams, *(self._item(tokens, 1) for _ in range(BESIDE))], rows + 1)
        records.sort(key=lambda record: record.index)
        begun = max(record.first_ns or 0 for record in records[:rows])
        waits = [
            wait
            for prompt in records[rows:]
            if prompt.sent_ns is not None and prompt.sent_ns > begun
            for record in records[:rows]
            if (wait := _wait(record, prompt.first_ns or 0)) is not None
        ]
        if not waits:
            raise self._apart(f"mixed {rows} + {tokens}", rows)
        return Measurement(
            kind="mixed", rows=rows, context=context + outputs / 2, tokens=tokens, seconds=median(waits),
            source=f"live: {tokens} tokens beside {rows} rows",
        )  # fmt: skip

    @staticmethod
    def _apart(what: str, rows: int) -> CalibrationError:
        return CalibrationError(
            f"{what}: the {rows} streams did not answer at the same time for {FEWEST_STEPS} tokens; does the engine "
            "run so many at once (max_num_seqs), and is it idle otherwise?"
        )

    def _item(self, tokens: int, outputs: int) -> Item:
        ids = self._chooser.integers(self._recipe.first_id, self._recipe.last_id, tokens)
        return Item(turns=[Turn(prompt=[int(each) for each in ids], max_tokens=outputs)])

    async def _send(self, items: Sequence[Item], concurrency: int) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        await send(
            plan(items), self._endpoint, on_record=records.append, concurrency=concurrency, api_key=self._api_key
        )
        for record in records:
            if record.status != "ok" or record.first_ns is None or not record.chunks:
                raise CalibrationError(
                    f"{self._endpoint.url}: a request ended with {record.status} ({record.error or 'no token'}); it "
                    "must take token ids on /v1/completions and stream their answer"
                )
        return records


def _completions(endpoint: Endpoint) -> Endpoint:
    """Greedy, and never ended by the model."""
    extra = {"temperature": 0, "ignore_eos": True} | endpoint.extra_body
    return msgspec.structs.replace(endpoint, api="completions", extra_body=extra)


def _wait(record: RequestRecord, first_ns: int) -> float | None:
    """Seconds that a stream waited for what came with a prompt's first token, as both leave the engine in one step: the
    longer of two waits, since the token of a new answer can reach us behind the next one of an old."""
    times = [at for at, _ in record.chunks]
    last = min(range(len(times)), key=lambda index: abs(times[index] - first_ns))
    if not 0 < last < len(times) - 1:  # it had not begun, or has ended
        return None
    return max(after - before for before, after in itertools.pairwise(times[max(0, last - 2) : last + 1])) / 1e9


def _middle(times: list[Measurement]) -> Measurement:
    return sorted(times, key=lambda each: each.seconds)[len(times) // 2]


def _spread(times: list[float]) -> float:
    return (max(times) - min(times)) / median(times)
