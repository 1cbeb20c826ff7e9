"""Two runs of one lm-eval task, sample by sample: what the served engine said beside what the peer said."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Sample = dict[str, Any]
"""A line that lm-eval's --log_samples wrote."""

TARGET_DELTA = 0.05
"""Nats: how far one request's log-likelihood may lie from the peer's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One task. `ours`, `peer`: the metric; `stderr`: the peer's standard error. Log-likelihoods (in nats, `None` where
    the task has none): how many requests, the largest |Δ|, and how many differ in whether the continuation is greedy.
    Texts (`None` where the task has none): how many of the rows came out the same, character for character."""

    task: str
    metric: str
    rows: int
    ours: float
    peer: float
    stderr: float
    requests: int | None = None
    max_delta: float | None = None
    greedy_differs: int | None = None
    same_text: int | None = None

    @property
    def within(self) -> bool:
        """Within one standard error, and every log-likelihood within TARGET_DELTA."""
        return abs(self.ours - self.peer) <= self.stderr and (self.max_delta or 0.0) <= TARGET_DELTA


def read_samples(folder: Path, task: str) -> list[Sample]:
    """In the order of the rows. Raises FileNotFoundError where lm-eval left none, ValueError for several runs."""
    found = sorted(folder.rglob(f"samples_{task}_*.jsonl"))
    if not found:
        raise FileNotFoundError(f"lm-eval left no samples of {task} under {folder}")
    if len(found) > 1:
        raise ValueError(f"{folder} has the samples of {len(found)} runs of {task}; one is wanted")
    samples = [json.loads(line) for line in found[0].read_text(encoding="utf-8").splitlines()]
    return sorted(samples, key=lambda sample: int(sample["doc_id"]))


def compare(task: str, metric: str, ours: list[Sample], peer: list[Sample], generates: bool) -> Comparison:
    """generates: the responses are texts, and no log-likelihoods (which lm-eval writes as text, too). Raises ValueError
    where the two were not asked the same."""
    if [each["prompt_hash"] for each in ours] != [each["prompt_hash"] for each in peer]:
        raise ValueError(f"{task}: the two runs have other rows or other prompts")
    figures = (metric, len(ours), value(metric, ours), value(metric, peer), stderr(metric, peer))
    if generates:
        same = sum(text(left) == text(right) for left, right in zip(ours, peer, strict=True))
        return Comparison(task, *figures, same_text=same)
    pairs = [
        pair
        for left, right in zip(ours, peer, strict=True)
        for pair in zip(likelihoods(left), likelihoods(right), strict=True)
    ]
    return Comparison(
        task,
        *figures,
        requests=len(pairs),
        max_delta=max(abs(left - right) for (left, _), (right, _) in pairs),
        greedy_differs=sum(left != right for (_, left), (_, right) in pairs),
    )


def text(sample: Sample) -> str:
    """The answer, of a task that generates."""
    answer: str = sample["resps"][0][0]
    return answer


def likelihoods(sample: Sample) -> list[tuple[float, bool]]:
    """(log-likelihood in nats, whether greedy) of each request; a rolling one's is never called greedy."""
    found = []
    for (response,) in sample["resps"]:
        score, greedy = response if isinstance(response, list | tuple) else (response, False)
        found.append((float(score), greedy in (True, "True")))
    return found


def value(metric: str, samples: Sequence[Sample]) -> float:
    """The metric over all samples: a mean, or exp(−Σ log-likelihood / Σ words) for a perplexity."""
    measured = [sample[metric] for sample in samples]
    if metric.endswith("perplexity"):
        return math.exp(-sum(score for score, _ in measured) / sum(weight for _, weight in measured))
    return sum(map(float, measured)) / len(measured)


def stderr(metric: str, samples: Sequence[Sample]) -> float:
    """Standard error of `value` over the rows. A perplexity's by the delta method for a ratio of sums. 0 of one row."""
    count = len(samples)
    if count < 2:
        return 0.0
    whole = value(metric, samples)
    if metric.endswith("perplexity"):
        rate = math.log(whole)
        off = [score + rate * weight for score, weight in (sample[metric] for sample in samples)]
        mean_weight = sum(sample[metric][1] for sample in samples) / count
        spread: float = math.sqrt(sum(each * each for each in off) / (count - 1) / count)
        return whole * spread / float(mean_weight)
    squares = sum((float(sample[metric]) - whole) ** 2 for sample in samples)
    return math.sqrt(squares / (count - 1) / count)


def table(comparisons: Sequence[Comparison], peer: str = "hf") -> str:
    """Markdown, one line per task."""
    lines = [
        f"| task | metric | rows | ours | {peer} | standard error | largest \\|Δ log-likelihood\\| | same text | ok |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in comparisons:
        delta = "" if each.max_delta is None else f"{each.max_delta:.5f} of {each.requests} requests"
        same = "" if each.same_text is None else f"{each.same_text} of {each.rows}"
        figures = f"{each.ours:.4f} | {each.peer:.4f} | {each.stderr:.4f} | {delta} | {same}"
        verdict = "yes" if each.within else "NO"
        lines.append(f"| {each.task} | {each.metric} | {each.rows} | {figures} | {verdict} |")
    return "\n".join(lines)
