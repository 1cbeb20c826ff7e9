"""What speculation brings, as Prometheus metrics and as plain values for live pages; docs/speculation.md defines each.

The core counts from its start. Rates of metrics are over the last minute; live pages have those since the start, too.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from engines.native.ipc import SpeculationCounts

WINDOW_S = 60.0
_EVERY_S = 1.0
"""Between two moments that are kept."""


@dataclass(frozen=True, slots=True)
class Moment:
    """at: time.monotonic(), s; tokens: drawn since the core started; told: of them those that were guessed."""

    at: float
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    tokens: int = 0
    told: int = 0


class SourceFigures(msgspec.Struct, frozen=True):
    source: str
    drafted: int
    accepted: int
    hit_rate: float | None


class Figures(msgspec.Struct, frozen=True):
    """Between two moments. Rates are None where there was nothing to measure them by."""

    window_s: float
    steps: int
    verified_steps: int
    rows: int
    drafted_tokens: int
    accepted_tokens: int
    tokens: int
    guessed_tokens: int
    acceptance_length: float | None  # tokens that a request gets of a pass that checks guesses
    hit_rate: float | None
    tokens_per_step: float | None  # that a request gets of a pass, whether it checks guesses or not
    share_speculated: float | None  # of passes
    saved_s: float
    speedup: float | None
    width: int
    sources: list[SourceFigures]


def figures(now: Moment, before: Moment) -> Figures:
    counts, past = now.counts, before.counts
    steps, verified, rows = counts.steps - past.steps, counts.verified - past.verified, counts.rows - past.rows
    drafted, accepted = counts.drafted - past.drafted, counts.accepted - past.accepted
    tokens, told = now.tokens - before.tokens, now.told - before.told
    sources = []
    for name, (guessed, stood) in counts.by_source.items():
        guessed_before, stood_before = past.by_source.get(name, (0, 0))
        guessed, stood = guessed - guessed_before, stood - stood_before
        sources.append(SourceFigures(name, guessed, stood, _rate(stood, guessed)))
    return Figures(
        window_s=now.at - before.at,
        steps=steps,
        verified_steps=verified,
        rows=rows,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        tokens=tokens,
        guessed_tokens=told,
        acceptance_length=1 + accepted / rows if rows else None,
        hit_rate=_rate(accepted, drafted),
        tokens_per_step=_rate(tokens, tokens - told),  # each pass of a request draws one token that nobody guessed
        share_speculated=_rate(verified, steps),
        saved_s=counts.saved_s - past.saved_s,
        speedup=counts.speedup if verified else None,
        width=counts.width,
        sources=sources,
    )


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class SpeculationMetrics:
    """prefix: of every name. Made with the first counts that come: an engine that does not speculate has none."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{prefix}speculation_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{prefix}speculation_{name}", text, labels, registry=registry)

        self._steps = counter("steps", "Passes, by whether they checked guesses", "kind")
        self._rows = counter("rows", "Requests in passes that checked guesses, each counted in each pass")
        self._tokens = counter("guessed_tokens", "Guessed tokens that were checked", "source", "result")
        self._length = gauge("acceptance_length", "Tokens that a request gets of a pass that checks guesses")
        self._hit_rate = gauge("hit_rate", "Share of a proposer's guesses that stood", "source")
        self._per_step = gauge("tokens_per_step", "Tokens that a request gets of a pass, with guesses or without")
        self._share = gauge("step_share", "Share of passes that checked guesses")
        self._saved = gauge("saved_seconds", "Seconds less than plain passes would have taken, since the core started")
        self._speedup = gauge("speedup", "(1 + accepted guesses per request and pass) / cost ratio; 1 without guesses")
        self._width = gauge("width", "Guesses for each request that pay just now")
        self._now = Moment(time.monotonic())
        self._first = self._now
        self._moments: deque[Moment] = deque([self._now])

    def restarted(self) -> None:
        """Another core counts from nought."""
        self._now = self._first = Moment(time.monotonic())
        self._moments = deque([self._now])

    def update(self, counts: SpeculationCounts, tokens: int, guessed: int) -> None:
        """tokens: drawn in this step; guessed: of them those that were guessed."""
        seen, at = self._now, time.monotonic()
        self._now = Moment(at, counts, seen.tokens + tokens, seen.told + guessed)
        self._count(counts, seen.counts)
        if at - self._moments[-1].at >= _EVERY_S:
            self._moments.append(self._now)
        self._forget(at)

    def _count(self, counts: SpeculationCounts, seen: SpeculationCounts) -> None:
        verified = counts.verified - seen.verified
        self._steps.labels("verify").inc(verified)
        self._steps.labels("plain").inc(counts.steps - seen.steps - verified)
        self._rows.inc(counts.rows - seen.rows)
        for name, (drafted, accepted) in counts.by_source.items():
            drafted_before, accepted_before = seen.by_source.get(name, (0, 0))
            accepted -= accepted_before
            self._tokens.labels(name, "accepted").inc(accepted)
            self._tokens.labels(name, "rejected").inc(drafted - drafted_before - accepted)

    def _forget(self, at: float) -> None:
        """The window begins at the last moment that is old enough."""
        while len(self._moments) > 1 and at - self._moments[1].at >= WINDOW_S:
            self._moments.popleft()

    @property
    def since_start(self) -> Figures:
        return figures(self._at(time.monotonic()), self._first)

    @property
    def recent(self) -> Figures:
        now = time.monotonic()
        self._forget(now)
        if now - self._now.at >= WINDOW_S:  # nothing has come since
            return figures(self._at(now), self._at(now - WINDOW_S))
        return figures(self._at(now), self._moments[0])

    def _at(self, moment: float) -> Moment:
        return Moment(moment, self._now.counts, self._now.tokens, self._now.told)

    def refresh(self) -> None:
        """Before the metrics are read."""
        recent = self.recent
        self._length.set(recent.acceptance_length or 1)
        self._per_step.set(recent.tokens_per_step or 1)
        self._share.set(recent.share_speculated or 0)
        self._speedup.set(recent.speedup or 1)
        self._saved.set(self._now.counts.saved_s)
        self._width.set(recent.width)
        for source in recent.sources:
            self._hit_rate.labels(source.source).set(source.hit_rate or 0)
