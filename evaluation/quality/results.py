"""What a quality run leaves behind: `ResultDoc.quality`, and one line of `samples/<task>.jsonl` per item.

The structs here know nothing of the rest of `evaluation`, so that `evaluation/schema.py` can refer to them.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

Outcome = Literal["pass", "fail", "undetermined", "error"]


class Figure(Struct, kw_only=True):
    """One measured number. `low` and `high`: its interval of confidence 0.95, by `method`; null where there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = "share"  # share (0 … 1), nats, perplexity, ratio, tokens, count
    n: int = 0  # items that it rests on
    method: str = ""  # clopper_pearson, normal, bootstrap, cluster_bootstrap


class TaskResult(Struct, kw_only=True):
    """`figures` holds `primary` and what else the task measures; docs/quality.md defines each."""

    name: str
    kind: str
    primary: str = ""  # the name in `figures` that the task is known by
    figures: dict[str, Figure] = {}
    items: int = 0  # that the task has
    measured: int = 0
    errors: int = 0  # items without an answer: in no figure
    state: Literal["complete", "incomplete"] = "incomplete"  # incomplete: cancelled, or with errors
    chance: float | None = None  # what guessing reaches
    dataset: dict[str, Any] = {}  # name, sha256, rows, licence, source
    policy: dict[str, Any] = {}  # what the figures hang on: bos, template, window, temperature, notes
    samples: str = ""  # its file of Sample lines, relative to the result


class GateResult(Struct, kw_only=True):
    """A gate's decision, with the numbers that made it."""

    name: str
    metric: str  # task.figure
    rule: str  # as the person reads it: "gsm8k.accuracy >= 0.5"
    decision: Outcome
    blocks: bool  # a gate that doesn't pass, and isn't only informative
    value: float | None = None
    low: float | None = None  # 95 % interval of the figure; against a baseline: of the paired gain (or ratio), where
    high: float | None = None  # greater is better whatever the figure
    limit: float | None = None  # that `low` must reach (`high` must not pass, of at_most)
    baseline: float | None = None
    wrong_to_right: int | None = None  # against the baseline, item by item
    right_to_wrong: int | None = None
    p: float | None = None  # McNemar's exact, or of the paired bootstrap
    p_adjusted: float | None = None  # Holm, over all gates against a baseline
    n: int = 0
    reason: str = ""  # one English sentence
    code: str = ""  # stable, for translation


class QualityResult(Struct, kw_only=True):
    suite: str = ""
    tasks: list[TaskResult] = []
    gates: list[GateResult] = []


class Sample(Struct, kw_only=True):
    """One item as it was asked and judged. `fingerprint`: of all that its score hangs on; a resumed run keeps the
    samples whose fingerprint is still the same."""

    id: str
    fingerprint: str = ""
    group: str = ""  # items of one group are drawn together in a bootstrap
    prompt: str = ""
    expected: str = ""
    answer: str = ""
    score: float | None = None  # null: no answer, or nothing to score
    reason: str = ""  # why it is wrong
    error: str = ""  # code first: "endpoint_down: …"
    data: dict[str, Any] = field(default_factory=dict)
