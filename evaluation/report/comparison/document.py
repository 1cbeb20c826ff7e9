"""What a comparison says; its JSON is this."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

THRESHOLD = 0.03  # relative change below which a difference does not matter in practice
SIGNIFICANT = 0.05  # of p after Holm
Verdict = Literal["better", "worse", "same", "undetermined", "not_comparable"]


class Note(Struct, kw_only=True):
    """Of two runs: what must be known before their figures are read. error: they are not compared."""

    code: str
    severity: Literal["info", "warning", "error"]
    cause: str
    remedy: str = ""
    evidence: dict[str, Any] = {}


class Compared(Struct, kw_only=True):
    """One figure of two runs. `change` is other / base, with its 95 % interval; null where there is none."""

    figure: str  # name.statistic: e2el_intended.p99, attainment, arc_easy.acc
    unit: str
    better: Literal["lower", "higher"]
    load: float | None = None  # the level's rate or concurrency
    base: float | None = None
    other: float | None = None
    base_n: int = 0
    other_n: int = 0
    base_failed: int = 0
    other_failed: int = 0
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None  # Holm, over all figures of this pair of runs
    method: str = ""  # block_bootstrap, permutation, mcnemar, paired_bootstrap, certified_intervals
    verdict: Verdict = "undetermined"
    reason: str = ""  # code: below_threshold, too_few, no_requests, overloaded, objectives_differ, refused …
    regressed: int | None = None  # items that were right and are wrong (quality)
    improved: int | None = None


class RunName(Struct, kw_only=True):
    name: str
    id: str
    kind: str
    source: str = "tursiops"  # or the tool whose result was imported
    runs: int = 1  # repeats in its folder
    model: str = ""
    url: str = ""
    seed: int = 0
    started_at: str = ""
    definitions: int = 0
    verdict: str = ""


class Pair(Struct, kw_only=True):
    """`other` against the first run."""

    other: RunName
    comparable: bool
    notes: list[Note] = []
    figures: list[Compared] = []


class Comparison(Struct, kw_only=True):
    base: RunName
    pairs: list[Pair] = field(default_factory=list)
    threshold: float = THRESHOLD
    schema_version: int = 1

    @property
    def worse(self) -> bool:
        return any(figure.verdict == "worse" for pair in self.pairs for figure in pair.figures)

    @property
    def refused(self) -> bool:
        return any(not pair.comparable for pair in self.pairs)
