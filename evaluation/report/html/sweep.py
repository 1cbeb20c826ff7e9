"""Charts of a run: latency and flow over the load, and one level in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.numbers import duration, durations, number, percent
from evaluation.report.html.parts import card, legend
from evaluation.report.html.plot import Plot
from evaluation.report.html.scales import Scale, fitting, linear
from evaluation.report.html.texts import metric_name, quantile, say, word
from evaluation.report.reading import best_level, failed, figure, in_order, knee, load_of, quantile_name
from evaluation.report.reading import metric_name as judged_metric
from evaluation.schema import LevelResult, ResultDoc

WIDE, HALF, THIRD = 1080, 528, 346
SHAPES = {"pass": ("circle", "ok"), "fail": ("square", "error"), "undetermined": ("ring", "warning")}


def sweep(result: ResultDoc) -> Markup | None:
    """Latency of each objective (first one wide) and throughput over the load; None below two levels."""
    levels = [level for level in in_order(result) if load_of(level) is not None]
    if len({load_of(level) for level in levels}) < 2:
        return None
    curves = _curves(levels)
    first = _latency(result, levels, curves[0], WIDE, 340)
    width = {1: WIDE, 2: HALF, 3: THIRD}.get(min(len(curves), 4), HALF)
    others = [_latency(result, levels, curve, width, 280) for curve in curves[1:4]]
    small = [chart for chart in [_flow(result, levels, width), *others] if chart is not None]
    marks = legend(
        ("ok circle", say("mark.pass")),
        ("error square", say("mark.fail")),
        ("error triangle", say("mark.overloaded")),
        ("warning ring", say("mark.undetermined")),
        ("error cross", say("mark.invalid")),
        ("certified", say("mark.certified")),
        ("slo", say("mark.slo")),
        ("knee", say("mark.knee")),
        ("best", say("mark.best")),
    )
    return card(
        say("sweep.title"),
        first,
        h("div", small, class_="triple" if width == THIRD else "pair"),
        marks,
        note=say("sweep.note"),
    )


@dataclass(frozen=True)
class Curve:
    """A quantile of a metric (by its name in `LevelResult.metrics`) over the load; `limit_ms` is its objective's."""

    metric: str
    quantile: float
    limit_ms: float | None = None

    def at(self, level: LevelResult) -> float | None:
        return figure(level.metrics.get(self.metric), self.quantile)

    @property
    def axis(self) -> str:
        return f"axis.{self.metric.removesuffix('_intended')}"


def _curves(levels: Sequence[LevelResult]) -> list[Curve]:
    """The objectives'; without any, P99 of E2EL and TTFT."""
    judged = next((level for level in levels if level.objectives), None)
    if judged is None:
        start = "_intended" if any("e2el_intended" in level.metrics for level in levels) else ""
        return [Curve(f"e2el{start}", 0.99), Curve(f"ttft{start}", 0.99)]
    return [Curve(judged_metric(one), one.quantile, one.limit_ms) for one in judged.objectives]


def mark_of(level: LevelResult) -> tuple[str, str]:
    if level.verdict == "invalid":
        return "cross", "error"
    if level.verdict == "overloaded":
        return "triangle", "error"
    return SHAPES[level.decision if level.verdict == "steady" else "undetermined"]


def _latency(result: ResultDoc, levels: Sequence[LevelResult], curve: Curve, width: int, height: int) -> Markup | None:
    """One quantile with its interval, P50 beside it, the limit, the knee and what was certified."""
    name, q, limit = curve.metric, quantile(curve.quantile), curve.limit_ms
    points = [(load_of(level) or 0.0, value, level) for level in levels if (value := curve.at(level))]
    if not points:
        return None
    medians = [(load_of(level) or 0.0, level.metrics[name].p50) for level in levels if name in level.metrics]
    values = [value for _, value, _ in points] + [y for _, y in medians if y] + ([limit] if limit is not None else [])
    plot = Plot(
        width,
        height,
        lambda start, end: fitting([x for x, _, _ in points], start, end, decades=0.9),
        lambda start, end: fitting(values, start, end),
    )
    plot.axes("axis.concurrency" if levels[0].rate is None else "axis.rate", curve.axis, durations(plot.y.high))
    rate = _certified(plot, result)
    bend = knee([(x, y) for x, y, level in points if level.verdict != "invalid"])
    if bend is not None:
        plot.vertical(bend, say("knee", rate=number(bend), svg=True), "knee", row=1 if rate else 0)
    bounds = [
        (x, low, high)
        for x, _, level in points
        for low, high in [level.metrics[name].bounds.get(quantile_name(curve.quantile), (None, None))]
        if low is not None and high is not None
    ]
    plot.ribbon(bounds, "ribbon")
    for x, low, high in bounds:
        plot.whisker(x, low, high, "main")
    plot.line([(x, y) if y else None for x, y in medians], "median")
    plot.line([(x, y) for x, y, _ in points], "main")
    if limit is not None:
        plot.limit(limit, h("tspan", q, " ≤ ", duration(limit)))
    best = best_level(result)
    for x, y, level in points:
        if level is best:
            plot.mark(x, y, "star", "best")
        plot.mark(x, y, *mark_of(level))
    plot.readouts([(x, _readout(level, q, y), f"{number(x)} requests/s: {duration(y)}") for x, y, level in points])
    head = h("h3", q, " ", metric_name(name, long=True))
    key = legend(("main", q), ("median", "P50"), ("ribbon", say("legend.bounds", q=q)))
    return h("figure", h("figcaption", head, key), plot.svg(f"{q} {name} over load"))


def _certified(plot: Plot, result: ResultDoc) -> bool:
    capacity = result.capacity
    if capacity is None or capacity.low is None or capacity.decision not in ("certified", "open_above"):
        return False
    high = capacity.high if capacity.high is not None else capacity.low
    if not (plot.x.low <= capacity.low <= plot.x.high):
        return False
    plot.band(capacity.low, high, "certified")
    both = f"{number(capacity.low)} – {number(capacity.high)}" if capacity.high else f"≥ {number(capacity.low)}"
    plot.vertical(capacity.low, h("tspan", say("certified", svg=True), " ", both), "interval")
    return True


def _readout(level: LevelResult, q: str, value: float) -> list[tuple[Child, Child]]:
    return [
        (say("readout.load", svg=True), number(load_of(level))),
        (say("readout.verdict", svg=True), word("verdict", level.verdict, svg=True)),
        (q, duration(value)),
        (say("level.done", svg=True), number(level.done_rate)),
        (say("level.goodput", svg=True), number(level.goodput)),
        (say("level.attainment", svg=True), percent(level.attainment)),
        (say("readout.counted", svg=True), f"{level.counts.offered:,} / {failed(level):,}"),
    ]


def _flow(result: ResultDoc, levels: Sequence[LevelResult], width: int) -> Markup:
    """Offered, done and goodput over the load: where they part, the server no longer follows."""
    loads = [load_of(level) or 0.0 for level in levels]
    flows = {
        name: [
            (x, y) if (y := getattr(level, field)) is not None else None for x, level in zip(loads, levels, strict=True)
        ]
        for name, field in (("offered", "offered_rate"), ("done", "done_rate"), ("goodput", "goodput"))
    }
    tops = [point[1] for line in flows.values() for point in line if point]
    plot = Plot(
        width,
        280,
        lambda start, end: fitting(loads, start, end, decades=0.9),
        lambda start, end: linear(tops, start, end),
    )
    plot.axes("axis.concurrency" if levels[0].rate is None else "axis.rate", "axis.flow", number)
    _certified(plot, result)
    for name, line in flows.items():
        plot.line(line, name)
    best = best_level(result)
    for x, level in zip(loads, levels, strict=True):
        at = level.goodput if level.goodput is not None else level.done_rate
        if at is None:
            continue
        if level is best:
            plot.mark(x, at, "star", "best")
        plot.mark(x, at, *mark_of(level))
    columns = []
    for x, level in zip(loads, levels, strict=True):
        rates = [
            ("level.offered", level.offered_rate),
            ("level.done", level.done_rate),
            ("level.goodput", level.goodput),
        ]
        lines: list[tuple[Child, Child]] = [(say(key, svg=True), number(value)) for key, value in rates]
        lines.append((say("readout.counted", svg=True), f"{level.counts.offered:,} / {failed(level):,}"))
        columns.append((x, lines, f"{number(x)}: {number(level.done_rate)} requests/s done"))
    plot.readouts(columns)
    key = legend(*((name, say(f"level.{name}")) for name in flows))
    return h("figure", h("figcaption", h("h3", say("flow.title")), key), plot.svg("throughput over load"))


def course(level: LevelResult) -> Markup | None:
    """Requests in flight, flow and TTFT of one level, second by second; None where there is no series."""
    seconds = [second for second in level.series.get("t_s", []) if second is not None]
    if len(seconds) < 3:
        return None
    charts = []
    for title, names, axis in (
        ("course.flow", ("offered", "done"), "axis.flow"),
        ("course.in_flight", ("in_flight",), "axis.requests"),
        ("course.ttft", ("ttft_ms",), "axis.ttft"),
    ):
        lines = {name: level.series[name] for name in names if name in level.series}
        if not lines:
            continue
        values = [value for line in lines.values() for value in line if value is not None]
        plot = Plot(
            THIRD,
            210,
            lambda start, end: Scale(seconds[0], seconds[-1], start, end),
            lambda start, end, v=values: linear(v, start, end),
        )
        if level.window is not None:  # times count from its start
            plot.band(0, level.window.seconds, "window")
        plot.axes("axis.seconds", axis, durations(plot.y.high) if axis == "axis.ttft" else number)
        for name, line in lines.items():
            drawn = [(x, y) if y is not None else None for x, y in zip(seconds, line, strict=False)]
            plot.line(drawn, {"in_flight": "main", "ttft_ms": "main"}.get(name, name))
        key = legend(*((name, say(f"level.{name}")) for name in lines)) if len(lines) > 1 else None
        charts.append(h("figure", h("figcaption", h("h3", say(title)), key), plot.svg(title)))
    return h("div", charts, class_="triple")
