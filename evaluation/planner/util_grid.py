"""Measured utilization: how much of the least time (`roofline`) an op really takes, per device, op, format and shape.

A measurement is a whole step's time. Attention's utilization is what its points with different contexts have in common;
what a step takes beside it is the products', launches and host included, by the number of their rows: one curve of
steps that only decode, one of steps with prompts in them, which run other code. Between measured rows the time beyond
the least one is a straight line in rows: launches and what each row takes add up, and the least time has the knee.
Beyond the measured ends the nearest utilization holds, with a wider interval. A step of both kinds of rows takes what
its parts would, over the utilization that steps of both were measured to have beside them (`mixed`).
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from evaluation.planner.answers import Basis
from evaluation.planner.memory import Layout
from evaluation.planner.roofline import Need, Roof, Step, prefill

GRID_VERSION = 1
CALIBRATED = 0.06
"""Half-width of the interval, relative, between measured points; never less than the grid's own leave-one-out error."""
BEYOND = 0.15
"""Half-width outside of the measured rows."""
TRANSFERRED = 0.35
"""Half-width for another model on the same device."""
PRIOR = (0.30, 1.0)
"""Utilization where nothing was measured: no more than 1, and 0.30 as a guess of the least, which no claim rests on."""
ATTENTION_PRIOR = {"attention_decode": 0.8, "attention_prefill": 0.6}
"""Where no two measurements tell: on an H200 decodes reach 0.73 to 0.90 (docs/benchmarks/kernels_gpu.h200.json)."""
_LEAST, _MOST = 0.05, 1.0

Op = Literal["linear", "attention_decode", "attention_prefill", "mixed"]
Kind = Literal["decode", "prefill"]


class Measurement(Struct, kw_only=True, frozen=True):
    """One timed step. seconds: of a whole step, or of a prompt until its first token. prompts: pieces of `tokens`
    tokens that were computed together. mixed: one prompt beside rows that decode, in one step."""

    kind: Literal["decode", "prefill", "mixed"]
    rows: int = 0  # decode, mixed: requests at once
    context: float = 0.0  # decode, mixed: mean tokens of each
    guesses: float = 0.0  # decode: checked beside each row's token
    tokens: int = 0  # prefill, mixed: of one prompt
    prompts: int = 1
    seconds: float
    step_tokens: int = 8192  # prefill: the engine's budget of one step
    source: str = ""

    def steps(self) -> list[Step]:
        """What the engine did in this time."""
        if self.kind == "decode":
            return [Step(self.rows, self.rows * self.context, guesses=self.rows * self.guesses)]
        if self.kind == "mixed":
            return [Step(self.rows, self.rows * self.context, self.tokens, self.tokens * self.tokens / 2)]
        return prompt_steps(self.tokens, self.prompts, self.step_tokens)


class Point(Struct, kw_only=True, frozen=True):
    """util: least time over measured time, of `op` at `rows` rows; of `mixed`, the sum of its parts over measured time.
    kind: of the steps in which products were measured; empty: of either."""

    op: Op
    rows: float
    util: float
    source: str = ""
    kind: Literal["decode", "prefill", ""] = ""


class Grid(Struct, kw_only=True):
    """Of one model on one device by one engine. weight_bytes: of one step's products, by which grids of other models
    are compared. error: relative, median of the leave-one-out residuals; null where there are too few points."""

    gpu: str
    model: str
    scheme: str
    kv_dtype: str
    dimensions: str  # of the model: `ModelSpec.dimensions`
    weight_bytes: float
    points: list[Point]
    measurements: list[Measurement] = []
    engine: str = "native"
    tp: int = 1
    version: int = GRID_VERSION
    error: float | None = None
    overhead_s: float = 0.0  # of an HTTP request before its prompt is computed
    device_name: str = ""
    created_at: str = ""
    versions: dict[str, str] = {}


class Estimate(NamedTuple):
    """Seconds; low ≤ value ≤ high."""

    low: float
    value: float
    high: float


class Timing:
    """Step → seconds, for one model, layout and device, by a grid or without one."""

    def __init__(self, roof: Roof, grid: Grid | None) -> None:
        self.roof, self.grid = roof, grid
        self.basis: Basis = "bound_only" if grid is None else _basis(roof, grid)
        points = grid.points if grid else []
        self._decoding, self._filling = (_Curve.of(roof, points, kind) for kind in ("decode", "prefill"))
        measured: dict[str, float] = {point.op: point.util for point in points}
        self._attention = ATTENTION_PRIOR | measured
        self._mixed = measured.get("mixed", 1.0)
        rows = [point.rows for point in points if point.op == "linear"]
        self._ends = (min(rows), max(rows)) if rows else (math.inf, 0.0)
        self._width = max(CALIBRATED, grid.error or 0.0) if grid else 0.0
        self.overhead_s = grid.overhead_s if grid else 0.0

    def seconds(self, step: Step) -> float:
        """The most likely time; without a grid the middle of the prior, which is no prediction."""
        if self.grid is None:
            return self.roof.sol(step) / math.sqrt(PRIOR[0] * PRIOR[1])
        need = self.roof.need(step)
        curve = self._filling if step.chunk else self._decoding
        parts = need.linear * curve.slowness(step.tokens) + self._attending(need) + need.communication
        return parts / self._mixed if step.chunk and step.rows else parts

    def estimate(self, step: Step) -> Estimate:
        value = self.seconds(step)
        if self.grid is None:
            sol = self.roof.sol(step)
            return Estimate(sol / PRIOR[1], value, sol / PRIOR[0])
        width = self.width(step)
        return Estimate(max(value * (1 - width), 0.0), value, value * (1 + width))

    def width(self, step: Step) -> float:
        """Half of the interval, relative to the value."""
        if self.basis == "transferred":
            return TRANSFERRED
        beyond = not 0.9 * self._ends[0] <= max(step.tokens, 1.0) <= 1.1 * self._ends[1]
        return max(BEYOND, self._width) if beyond else self._width

    @property
    def factors(self) -> tuple[float, float]:
        """What multiplies a whole plan's step times for its (fast, slow) end."""
        if self.grid is None:
            middle = math.sqrt(PRIOR[0] * PRIOR[1])
            return middle / PRIOR[1], middle / PRIOR[0]
        width = TRANSFERRED if self.basis == "transferred" else self._width
        return 1 - width, 1 + width

    @property
    def source(self) -> str:
        if self.grid is None:
            return f"data sheet of {self.roof.device.name}; the slow end assumes {PRIOR[0]:.0%} utilization"
        of = "" if self.basis == "calibrated" else f", measured with {self.grid.model}"
        return f"grid of {len(self.grid.measurements)} steps on {self.grid.device_name or self.grid.gpu}{of}"

    def _attending(self, need: Need) -> float:
        decoding = need.attention_decode / self._attention["attention_decode"]
        return decoding + need.attention_prefill / self._attention["attention_prefill"]


class _Curve:
    """What products of so many rows take, over the least that they could."""

    def __init__(self, roof: Roof, rows: list[float], utils: list[float]) -> None:
        """rows: rising."""
        self._roof, self._rows, self._slow = roof, rows, [1 / util for util in utils]
        self._excess = [self._least(at) * (slow - 1) for at, slow in zip(rows, self._slow, strict=True)]

    @classmethod
    def of(cls, roof: Roof, points: Iterable[Point], kind: Kind) -> _Curve:
        """By steps of this kind; where none of them has so few or so many rows, by those of the other."""
        linear = sorted((point for point in points if point.op == "linear"), key=lambda point: point.rows)
        own = [point for point in linear if point.kind in (kind, "")]
        low, high = (own[0].rows, own[-1].rows) if own else (math.inf, math.inf)
        found = [point for point in linear if point in own or not low <= point.rows <= high]
        return cls(roof, [point.rows for point in found], [point.util for point in found])

    def slowness(self, rows: float) -> float:
        at = max(rows, 1.0)
        right = bisect(self._rows, at)
        if right == 0 or right == len(self._rows):
            return self._slow[min(right, len(self._rows) - 1)]
        left = right - 1
        part = (at - self._rows[left]) / (self._rows[right] - self._rows[left])
        excess = self._excess[left] + part * (self._excess[right] - self._excess[left])
        return 1 + excess / self._least(at)

    def _least(self, rows: float) -> float:
        """Seconds."""
        return self._roof.linear(rows, 1.0).seconds


def prompt_steps(tokens: int, prompts: int, step_tokens: int) -> list[Step]:
    """Prompts computed one after another in steps of at most `step_tokens`: short ones share a step."""
    if tokens <= step_tokens:
        each = max(1, step_tokens // tokens)
        whole, rest = divmod(prompts, each)
        return [prefill(tokens, 0, each)] * whole + ([prefill(tokens, 0, rest)] if rest else [])
    cuts = [(start, min(step_tokens, tokens - start)) for start in range(0, tokens, step_tokens)]
    return [prefill(count, start) for start, count in cuts] * prompts


def fit(roof: Roof, measurements: Sequence[Measurement], *, overhead_s: float = 0.0, **facts: Any) -> Grid:
    """A grid from timed steps. overhead_s: of each prefill measurement that is no computing. Raises ValueError where
    there is neither a decode nor a prefill among them."""
    if not any(each.kind != "mixed" for each in measurements):
        raise ValueError("measurements: none; a grid needs at least one timed decode or prefill step")
    points = _points(roof, measurements, overhead_s)
    grid = Grid(
        gpu=roof.device.key,
        model=roof.model.name,
        scheme=roof.scheme.name,
        kv_dtype=str(facts.pop("kv_dtype", "bfloat16")),
        dimensions=roof.model.dimensions,
        weight_bytes=roof.linear(1, 1).bytes,
        points=points,
        measurements=list(measurements),
        tp=roof.layout.tp,
        overhead_s=overhead_s,
        **facts,
    )
    grid.error = _leave_one_out(roof, measurements, overhead_s)
    return grid


def predict(roof: Roof, grid: Grid, measurement: Measurement) -> float:
    """Seconds of the same work by a grid."""
    timing = Timing(roof, grid)
    return sum(timing.seconds(step) for step in measurement.steps()) + (
        grid.overhead_s if measurement.kind == "prefill" else 0.0
    )


def choose(grids: Iterable[Grid], roof: Roof, engine: str = "native") -> Grid | None:
    """The grid of this model, format and TP on this device; else of the model whose weights are the most alike."""
    here = [each for each in grids if each.gpu == roof.device.key and each.engine == engine and each.points]
    exact = [each for each in here if _basis(roof, each) == "calibrated"]
    if exact:
        return max(exact, key=lambda each: each.created_at)
    size = roof.linear(1, 1).bytes
    return min(here, key=lambda each: abs(math.log(each.weight_bytes / size)), default=None)


def read(path: Path) -> Grid:
    """Raises ValueError, which names the file, where it is no grid of this version."""
    try:
        grid = msgspec.json.decode(path.read_bytes(), type=Grid)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}; a grid is written by `tursiops-eval plan calibrate`") from error
    if grid.version != GRID_VERSION:
        raise ValueError(f"{path}: version {grid.version}, this planner reads {GRID_VERSION}; calibrate again")
    return grid


def _basis(roof: Roof, grid: Grid) -> Basis:
    here = (roof.model.dimensions, roof.scheme.name, Layout(roof.layout.tp))
    same = here == (grid.dimensions, grid.scheme, Layout(grid.tp)) and roof.layout.pp == 1
    return "calibrated" if same else "transferred"


def _points(roof: Roof, measurements: Sequence[Measurement], overhead_s: float) -> list[Point]:
    kinds = {each.kind for each in measurements}
    ops: list[tuple[Op, Kind]] = [("attention_decode", "decode"), ("attention_prefill", "prefill")]
    attention: dict[str, float] = dict(ATTENTION_PRIOR)
    for op, kind in ops:
        own = [each for each in measurements if each.kind == kind]
        attention[op] = _attention_util(roof, own, op, overhead_s if kind == "prefill" else 0.0)
    by_rows: dict[tuple[Kind, int], list[tuple[float, str]]] = {}
    for each in measurements:
        if each.kind == "mixed":
            continue
        steps = each.steps()
        needs = [roof.need(step) for step in steps]
        spent = each.seconds - (overhead_s if each.kind == "prefill" else 0.0)
        beside = spent - sum(
            need.attention_decode / attention["attention_decode"]
            + need.attention_prefill / attention["attention_prefill"]
            + need.communication
            for need in needs
        )
        least = sum(need.linear for need in needs)
        rows = round(sum(step.tokens for step in steps) / len(steps))
        by_rows.setdefault((each.kind, rows), []).append((least / max(beside, 0.05 * spent), each.source))
    points = [
        Point(op="linear", rows=rows, util=median(util for util, _ in found), source=found[0][1], kind=kind)
        for (kind, rows), found in sorted(by_rows.items())
    ]
    points += [Point(op=op, rows=0, util=attention[op]) for op, kind in ops if kind in kinds]
    return [*points, *_mixed(roof, points, [each for each in measurements if each.kind == "mixed"])]


def _mixed(roof: Roof, points: list[Point], measurements: Sequence[Measurement]) -> list[Point]:
    """One utilization of all steps with prompts and decodes; none where nothing else was measured."""
    if not measurements or not points:
        return []
    timing = Timing(roof, _bare(roof, points))
    utils = [timing.seconds(each.steps()[0]) / each.seconds for each in measurements]
    source = f"live: {len(measurements)} steps with a prompt beside decodes"
    return [Point(op="mixed", rows=0, util=float(median(utils)), source=source)]


def _bare(roof: Roof, points: list[Point], overhead_s: float = 0.0) -> Grid:
    return Grid(
        gpu=roof.device.key, model="", scheme=roof.scheme.name, kv_dtype="", weight_bytes=0.0, dimensions="",
        points=points, tp=roof.layout.tp, overhead_s=overhead_s,
    )  # fmt: skip


def _attention_util(roof: Roof, measurements: Sequence[Measurement], op: Op, overhead_s: float) -> float:
    """From pairs of the same rows: what more context costs, against the least that it could; else `ATTENTION_PRIOR`.

    Prompts are compared by their time per token, so that one long and many short ones make a pair."""
    found = []
    for index, one in enumerate(measurements):
        for other in measurements[:index]:
            pair = _slope(roof, one, other, op, overhead_s)
            if pair is not None:
                found.append(pair)
    weights = sum(weight for _, weight in found)
    if not weights:
        return ATTENTION_PRIOR[op]
    slowness = sum(slow * weight for slow, weight in found) / weights
    return float(np.clip(1 / max(slowness, 1e-9), _LEAST, 1.5 if roof.device.kind == "cpu" else _MOST))


def _slope(roof: Roof, one: Measurement, other: Measurement, op: Op, overhead_s: float) -> tuple[float, float] | None:
    """(time over least time of attention, weight), or None where the two say nothing of it."""
    steps, others = one.steps(), other.steps()
    scale, other_scale = (sum(step.tokens for step in each) for each in (steps, others))
    rows, other_rows = scale / len(steps), other_scale / len(others)
    linear, other_linear = (
        sum(roof.need(step).linear for step in each) / size for each, size in ((steps, scale), (others, other_scale))
    )
    apart = abs(math.log(rows / other_rows))
    if apart > 0.2 and (apart > math.log(4.1) or abs(linear / other_linear - 1) > 0.03):  # their products differ
        return None
    least, other_least = (
        sum(getattr(roof.need(step), op) for step in each) / size
        for each, size in ((steps, scale), (others, other_scale))
    )
    away = overhead_s if one.kind == "prefill" else 0.0
    spent, other_spent = (one.seconds - away) / scale, (other.seconds - away) / other_scale
    share = abs(least - other_least) / max(spent, other_spent)
    if share < 0.02:
        return None
    return (spent - other_spent) / (least - other_least), share


def _rows(measurement: Measurement) -> float:
    steps = measurement.steps()
    return sum(step.tokens for step in steps) / len(steps)


def _leave_one_out(roof: Roof, measurements: Sequence[Measurement], overhead_s: float) -> float | None:
    """Median relative error over the points whose rows lie between others', each predicted without it."""
    found = []
    for index, each in enumerate(measurements):
        rest = [*measurements[:index], *measurements[index + 1 :]]
        rows = [_rows(other) for other in rest if other.kind == each.kind]
        if not rows or not min(rows) <= _rows(each) <= max(rows):
            continue
        kept = _bare(roof, _points(roof, rest, overhead_s), overhead_s)
        found.append(abs(predict(roof, kept, each) / each.seconds - 1))
    return median(found) if found else None
