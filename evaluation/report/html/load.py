"""Sections of a load test or search: answer, sweep, levels, percentiles, course of a level."""

from __future__ import annotations

from collections.abc import Iterable

from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.numbers import NONE, duration, in_unit, number, percent
from evaluation.report.html.parts import card, hint, pill, table, tile
from evaluation.report.html.texts import metric_name, quantile, say, word
from evaluation.report.reading import (
    QUANTILES,
    best_level,
    failed,
    in_order,
    load_of,
    objective_value,
    shown_level,
)
from evaluation.report.reading import metric_name as judged_metric
from evaluation.schema import LevelResult, Objective, ObjectiveResult, ResultDoc, RunSpec, Summary


def confidence_of(result: ResultDoc) -> float:
    return result.spec.confidence if isinstance(result.spec, RunSpec) else 0.95


def objective_text(objective: Objective | ObjectiveResult) -> Markup:
    """P99 TTFT ≤ 2,000 ms."""
    return h(
        "span",
        quantile(objective.quantile),
        " ",
        metric_name(judged_metric(objective)),
        " ≤ ",
        duration(objective.limit_ms),
        class_="nowrap",
    )


def answer(result: ResultDoc) -> Markup:
    """The one sentence that the run was made for, with what it rests on."""
    capacity, share = result.capacity, percent(confidence_of(result))
    lines: list[Child] = []
    if capacity is not None:
        low, high = number(capacity.low), number(capacity.high)
        lines.append(h("p", say(f"capacity.{capacity.decision}", low=low, high=high), class_="answer"))
        lines.append(h("p", say(f"capacity.{capacity.decision}.next", share=share, levels=capacity.levels)))
    elif result.levels:
        first, several = result.levels[0], len(result.levels) > 1
        if first.rate is None:
            told = say("held.closed")
        else:
            told = (
                say("held.rates", levels=len(result.levels)) if several else say("held.rate", load=number(first.rate))
            )
        lines.append(h("p", told, class_="answer"))
    for item in _objectives(result):
        lines.append(h("p", item, class_="objective"))
    return h("div", lines, class_="answer-box")


def _objectives(result: ResultDoc) -> Iterable[Markup]:
    level = best_level(result)
    for judged in (level or shown_level(result) or _EMPTY).objectives:
        bound = say(
            "objective.bound",
            k=f"{judged.k:,}",
            n=f"{judged.n:,}",
            failed=f"{judged.failed:,}",
            upper=percent(judged.upper, 2),
            lower=percent(judged.lower, 2),
            allowed=percent(1 - judged.quantile, 2),
        )
        yield h("span", pill(judged.decision), " ", objective_text(judged), " ", h("small", bound, class_="muted"))


_EMPTY = LevelResult(index=0, rate=None, verdict="undetermined")


def tiles(result: ResultDoc) -> Markup:
    """The figures of the shown level, each with its requests and failures."""
    level = shown_level(result)
    if level is None:
        return h("p", say("no_levels"))
    beside = say("beside", n=f"{level.counts.offered:,}", failed=f"{failed(level):,}")
    load = say("at_concurrency" if level.rate is None else "at_rate", load=number(load_of(level)))
    made = [tile(say("tile.done"), number(level.done_rate), say("per_s"), beside)]
    if level.goodput is not None:
        made.append(tile(say("tile.goodput"), number(level.goodput), say("per_s"), beside))
        made.append(tile(say("tile.attainment"), percent(level.attainment), "", beside))
    elif (tokens := level.metrics.get("output_tokens_per_s")) is not None:
        made.append(tile(say("tile.tokens"), number(tokens.mean), say("tokens_per_s"), beside))
    for name in ("ttft", "e2el", "tpot"):
        name = name if f"{name}_intended" not in level.metrics else f"{name}_intended"
        summary = level.metrics.get(name)
        if summary is not None:
            value, _, unit = duration(summary.p99).partition(" ")
            made.append(tile(h("span", "P99 ", metric_name(name)), value, unit, beside))
    title = say("tiles.best" if best_level(result) is level else "tiles.shown", load=load)
    return h("section", h("h2", title), h("div", made, class_="tiles"))


def levels_table(result: ResultDoc) -> Markup:
    """Every level with its verdict, its reasons, and what the objectives rest on."""
    closed = any(level.rate is None for level in result.levels)
    judged = next((level.objectives for level in result.levels if level.objectives), [])
    heads: list[Child] = [
        hint("level.concurrency") if closed else hint("level.rate"),
        hint("level.verdict"),
        hint("level.offered"),
        hint("level.done"),
        hint("level.goodput"),
        hint("level.attainment"),
        hint("level.requests"),
        hint("level.failed"),
        *(objective_text(objective) for objective in judged),
    ]
    best = best_level(result)
    rows = []
    for level in in_order(result):
        reasons = [h("small", word("reason", reason), class_="muted block") for reason in level.reasons]
        star = h("span", "★", class_="star", title="best point / 最佳点") if level is best else None
        rows.append(
            [
                [number(load_of(level)), " ", star],
                [pill(level.verdict), *reasons],
                number(level.offered_rate),
                number(level.done_rate),
                number(level.goodput),
                percent(level.attainment),
                f"{level.counts.offered:,}",
                h("span", f"{failed(level):,}", class_="bad" if failed(level) else None),
                *(_judged(objective, level) for objective in judged),
            ]
        )
    return card(say("levels.title"), table(heads, rows, numeric_from=2), note=say("levels.note"))


def _judged(objective: ObjectiveResult, level: LevelResult) -> list[Child]:
    """The measured quantile, its decision, and the misses with their bounds."""
    same = (objective.metric, objective.quantile, objective.start, objective.limit_ms)
    for one in level.objectives:
        if (one.metric, one.quantile, one.start, one.limit_ms) == same:
            bounds = f"{one.k:,} / {one.n:,} · {percent(one.lower, 2)} – {percent(one.upper, 2)}"
            value = duration(objective_value(one, level))
            return [pill(one.decision), " ", value, h("small", bounds, class_="muted block")]
    return [NONE]


def percentiles(result: ResultDoc) -> Markup:
    """One fold per level, the shown one open; failures stand beside every figure."""
    shown = shown_level(result)
    folds = []
    for level in in_order(result):
        load = say("at_concurrency" if level.rate is None else "at_rate", load=number(load_of(level)))
        seconds = number(level.window.seconds if level.window else None)
        about = say("window", seconds=seconds, cut=number(level.window.truncated_s if level.window else None))
        head = h("summary", h("strong", load), " ", pill(level.verdict), " ", h("small", about, class_="muted"))
        folds.append(h("details", head, _percentiles(level), open=level is shown))
    return card(say("percentiles.title"), *folds, note=say("percentiles.note", version=result.definitions))


def _percentiles(level: LevelResult) -> Markup:
    if not level.metrics:
        return h("p", say("percentiles.none"), class_="muted")
    heads = [say("col.metric"), say("col.n"), say("col.failed"), say("col.mean"), "P50", "P90", "P95", "P99"]
    rows = [
        [
            metric_name(name, long=True),
            f"{summary.n:,}",
            h("span", f"{failed(level):,}", class_="bad" if failed(level) else None),
            [in_unit(summary.mean, summary.unit), interval(summary.low, summary.high, summary.unit)],
            *([in_unit(getattr(summary, q), summary.unit), _bounds(summary, q)] for q in QUANTILES),
            in_unit(summary.max, summary.unit),
        ]
        for name, summary in level.metrics.items()
    ]
    return table([*heads, say("col.max")], rows, numeric_from=1)


def interval(low: float | None, high: float | None, unit: str) -> Child:
    if low is None and high is None:
        return None
    both = f"{in_unit(low, unit) if low is not None else '−∞'} … {in_unit(high, unit) if high is not None else '∞'}"
    return h("small", both, class_="muted block nowrap")


def _bounds(summary: Summary, name: str) -> Child:
    low, high = summary.bounds.get(name, (None, None))
    return interval(low, high, summary.unit)
