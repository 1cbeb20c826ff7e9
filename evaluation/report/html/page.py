"""The page of one result, and the frame that comparisons share."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources

from evaluation.report.html import findings, load, quality, sweep
from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.numbers import NONE, duration, number, percent, plain
from evaluation.report.html.parts import card, facts, pill
from evaluation.report.html.texts import say, word
from evaluation.report.reading import load_of, model_of, shown_level
from evaluation.schema import LevelResult, ResultDoc, encode


def page(title: str, heading: Child, *sections: Child, language: str = "en") -> str:
    """A whole document. Its policy lets nothing load and no script run, whatever its text may hold."""
    style = resources.files("evaluation.report.html").joinpath("report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=policy),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("style", Markup(style)),
    )
    switches = [
        _switch("lang", "en", language == "en", "English"),
        _switch("lang", "zh", language == "zh", "中文"),
        _switch("theme", "auto", True, "Theme of the system / 跟随系统"),
        _switch("theme", "light", False, "Light / 浅色"),
        _switch("theme", "dark", False, "Dark / 深色"),
    ]
    labels = h(
        "div",
        h("div", _label("lang", "en", "EN"), _label("lang", "zh", "中文"), class_="segmented", aria_hidden="true"),
        h("div", [_label("theme", t, say(f"theme.{t}")) for t in ("auto", "light", "dark")], class_="segmented"),
        class_="switches",
    )
    top = h("header", h("div", "Tursiops", class_="brand"), heading, labels, class_="top")
    footer = h("footer", say("footer"))
    body = h("body", switches, h("div", top, h("main", sections), footer, class_="page"))
    return f"<!doctype html>\n{h('html', head, body, lang=language)}\n"


def _switch(group: str, value: str, chosen: bool, name: str) -> Markup:
    return h("input", type="radio", name=group, id=f"{group}-{value}", class_="switch", checked=chosen, aria_label=name)


def _label(group: str, value: str, text: Child) -> Markup:
    return h("label", text, for_=f"{group}-{value}", class_=f"for-{group}-{value}")


def report(result: ResultDoc, language: str = "en") -> str:
    """HTML of a result, finished or not."""
    name = _name(result)
    about: list[Child] = [say(f"kind.{result.kind}")]
    about += [text for text in (_endpoint(result), result.started_at) if text]
    heading = h(
        "div",
        h("h1", name, " ", pill(result.verdict)),
        h("p", *(h("span", one) for one in about), class_="muted crumbs"),
    )
    sections: list[Child] = [findings.alerts(result)]
    if result.levels or result.capacity is not None:
        sections += [
            h("section", load.answer(result), load.tiles(result), class_="hero"),
            sweep.sweep(result),
            load.levels_table(result),
            load.percentiles(result),
            _course(result),
        ]
    if result.quality is not None:
        sections += [quality.gates(result.quality.gates), quality.tasks(result.quality)]
    sections += [findings.section(result), _score(result), _trust(result), _data(result), _environment(result)]
    sections.append(_told(result))
    return page(f"{name} – Tursiops", heading, *sections, language=language)


def _name(result: ResultDoc) -> str:
    told = result.spec.name if result.spec is not None else str(result.request.get("name", ""))
    return told or (result.quality.suite if result.quality else "") or model_of(result) or result.id


def _endpoint(result: ResultDoc) -> str:
    if result.spec is None:
        return model_of(result)
    model = model_of(result)
    return f"{model} @ {result.spec.endpoint.url}" if model else result.spec.endpoint.url


def _course(result: ResultDoc) -> Markup | None:
    level = shown_level(result)
    charts = sweep.course(level) if level is not None else None
    return card(say("course.title"), charts) if charts is not None else None


def _score(result: ResultDoc) -> Markup | None:
    if not result.score:
        return None
    rows = [(name.replace("_", " "), plain(value)) for name, value in result.score.items()]
    return card(say("score.title"), facts(rows), note=say("score.note"))


def _trust(result: ResultDoc) -> Markup | None:
    level = shown_level(result)
    if level is None:
        return None
    health, prefix = level.health, level.prefix
    rows: list[tuple[Child, Child]] = [
        (say("trust.client"), [pill("pass" if health.healthy else "invalid"), _reasons(level)]),
        (say("trust.pacing"), f"{duration(health.pacing_p50_ms)} / {duration(health.pacing_p99_ms)}"),
        (say("trust.loop"), duration(health.loop_p99_ms)),
        (say("trust.cpu"), percent(health.cpu_share)),
        (say("trust.null"), [number(health.null_server_rate), " ", say("per_s")]),
        (say("trust.prefix"), f"{percent(prefix.expected)} / {percent(prefix.measured)}"),
    ]
    checks = [(name.replace("_", " "), number(value, 4)) for name, value in level.checks.items()]
    key = "at_concurrency" if level.rate is None else "at_rate"
    return card(say("trust.title"), facts([*rows, *checks]), note=say(key, load=number(load_of(level))))


def _reasons(level: LevelResult) -> list[Child]:
    return [[" ", word("reason", reason)] for reason in level.health.reasons]


def _data(result: ResultDoc) -> Markup | None:
    data = result.dataset
    if not data.sha256 and not data.requests:
        return None
    rows: list[tuple[Child, Child]] = [
        (say("data.sha"), h("code", data.sha256 or NONE)),
        (say("data.requests"), f"{data.requests:,}"),
        (say("data.duplicates"), h("span", f"{data.duplicates:,}", class_="bad" if data.duplicates else None)),
        (say("data.expected"), percent(data.expected_hit_rate)),
    ]
    for name in ("prompt", "output"):
        if (summary := data.lengths.get(name)) is not None:
            rows.append((say(f"data.{name}"), f"{number(summary.mean)} / {number(summary.p99)}"))
    return card(say("data.title"), facts(rows))


def _environment(result: ResultDoc) -> Markup:
    scenario = result.spec.scenario if result.spec is not None else ""
    rows: list[tuple[Child, Child]] = [
        (say("run.id"), h("code", result.id)),
        (say("run.started"), result.started_at or NONE),
        (say("run.ended"), result.ended_at or NONE),
        (say("run.seed"), str(result.seed)),
        (say("run.definitions"), str(result.definitions)),
        (say("run.scenario"), scenario or NONE),
    ]
    rows += [(name.replace("_", " "), plain(value)) for name, value in result.environment.items()]
    return card(say("environment.title"), facts(rows))


def _told(result: ResultDoc) -> Markup | None:
    told = json.loads(encode(result.spec)) if result.spec is not None else result.request
    if not told:
        return None
    text = json.dumps(told, ensure_ascii=False, indent=2)
    return h("section", h("details", h("summary", h("strong", say("spec.title"))), h("pre", text)), class_="card")
