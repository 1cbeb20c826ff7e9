"""Gates: may this version go where the other is? Each is decided by the end of an interval, never by a lucky value.

A limit passes where the figure's 95 % interval lies on the right side of it. A baseline gate is a test of
non-inferiority: the lower 95 % bound of the paired difference (or ratio) to an earlier run on the same items stays
within the margin. McNemar's exact p (right or wrong items) or the bootstrap's is told beside it, adjusted by Holm over
all baseline gates of the suite. A gate that can't be decided is not a gate that failed: `undetermined` wants more
items, `error` a figure that was not measured; both block as long as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from evaluation.metrics.paired import Estimate, holm, mcnemar, paired_bootstrap
from evaluation.quality.figures import paired_shares
from evaluation.quality.results import Figure, GateResult, QualityResult, Sample, TaskResult
from evaluation.quality.suite import AnyGate, Baseline, Limit
from evaluation.schema import ResultDoc, read_result

LOWER_IS_BETTER = (
    "nll", "perplexity", "kl_mean", "kl_p99", "perplexity_ratio", "cut_answers",
    "word_perplexity", "byte_perplexity", "bits_per_byte",
)  # fmt: skip


class GateError(Exception):
    """`code` is stable."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Paired:
    """Scores of the same items in both runs, in one order; items of one group are drawn together."""

    before: list[float]
    now: list[float]
    groups: list[str]

    @property
    def flips(self) -> tuple[int, int] | None:
        """(wrong to right, right to wrong), of scores that are 0 or 1."""
        if not {*self.before, *self.now} <= {0.0, 1.0}:
            return None
        gained = sum(a < b for a, b in zip(self.before, self.now, strict=True))
        return gained, sum(a > b for a, b in zip(self.before, self.now, strict=True))


def decide(gates: list[AnyGate], found: QualityResult, out: Path, folder: Path, baseline: str) -> list[GateResult]:
    """out: of this run; folder: that a baseline's path starts from."""
    results = []
    for gate in gates:
        try:
            done = _limit(gate, found) if isinstance(gate, Limit) else _baseline(gate, found, out, folder, baseline)
            results.append(done)
        except GateError as error:
            results.append(_result(gate, _rule(gate), decision="error", reason=error.reason, code=error.code))
    tested = [each for each in results if each.p is not None]
    for each, adjusted in zip(tested, holm([each.p or 0.0 for each in tested]), strict=True):
        each.p_adjusted = adjusted
    for each in results:
        each.blocks = each.blocks and each.decision != "pass"
    return results


def _result(gate: AnyGate, rule: str, **fields: object) -> GateResult:
    name = f"{gate.metric} {'limit' if isinstance(gate, Limit) else 'baseline'}"
    return msgspec.convert(
        {"name": name, "metric": gate.metric, "rule": rule, "blocks": not gate.informative, **fields}, GateResult
    )


def _rule(gate: AnyGate) -> str:
    if isinstance(gate, Limit):
        least = gate.at_least is not None
        return f"{gate.metric} {'>=' if least else '<='} {gate.at_least if least else gate.at_most:g}"
    if gate.ratio is not None:
        return f"{gate.metric} at least {gate.ratio:g} of the baseline"
    return f"{gate.metric} not worse than the baseline by more than {gate.margin:g}"


def _task(metric: str, found: QualityResult) -> tuple[TaskResult, str, Figure]:
    """Raises GateError where there is no such figure, or the task did not end with an answer to each item."""
    name, _, figure = metric.rpartition(".")
    task = next((each for each in found.tasks if each.name == name), None)
    if task is None:
        raise GateError("not_measured", f"{name} was not measured")
    if task.state != "complete":
        missing = task.items - task.measured
        raise GateError("incomplete", f"{name} is incomplete: {missing} of {task.items} items have no answer")
    if figure not in task.figures or task.figures[figure].value is None:
        known = ", ".join(sorted(task.figures)) or "none"
        raise GateError("no_figure", f"{name} has no figure {figure!r}; it has {known}")
    return task, figure, task.figures[figure]


def _limit(gate: Limit, found: QualityResult) -> GateResult:
    _, _, figure = _task(gate.metric, found)
    value = figure.value
    assert value is not None
    limit = gate.at_least if gate.at_least is not None else gate.at_most
    assert limit is not None
    sign = 1.0 if gate.at_least is not None else -1.0
    exact = gate.by == "value" or figure.low is None or figure.high is None
    ends = (value, value) if exact else (figure.low, figure.high)
    least, most = sorted(sign * (end or 0.0) for end in ends)
    fields = {"value": value, "low": figure.low, "high": figure.high, "limit": limit, "n": figure.n}
    said = f"{value:.4g}" + ("" if figure.low is None else f" ({figure.low:.4g} to {figure.high:.4g})")
    if gate.by == "bound" and exact:
        told = f"{said} has no interval: set by to 'value', or measure more"
        return _result(gate, _rule(gate), decision="undetermined", reason=told, code="no_interval", **fields)
    if least >= sign * limit:
        return _result(gate, _rule(gate), decision="pass", reason=said, code="within", **fields)
    if most < sign * limit:
        return _result(gate, _rule(gate), decision="fail", reason=said, code="beyond", **fields)
    told = f"{said}: the interval holds {limit:g}; more items narrow it"
    return _result(gate, _rule(gate), decision="undetermined", reason=told, code="too_few", **fields)


def _baseline(gate: Baseline, found: QualityResult, out: Path, folder: Path, baseline: str) -> GateResult:
    task, figure, _ = _task(gate.metric, found)
    if figure != task.primary:
        raise GateError("not_paired", f"only {task.name}.{task.primary} is known item by item, not {figure}")
    pair = pairs(task, out, (folder / (gate.baseline or baseline)).resolve())
    better = Paired(pair.now, pair.before, pair.groups) if figure in LOWER_IS_BETTER else pair
    estimate = compared(better, ratio=gate.ratio is not None)
    limit = gate.ratio if gate.ratio is not None else -(gate.margin or 0.0)
    flips = pair.flips
    fields = {
        "value": sum(pair.now) / len(pair.now),
        "baseline": sum(pair.before) / len(pair.before),
        "low": estimate.low,
        "high": estimate.high,
        "limit": limit,
        "p": mcnemar(*flips) if flips else estimate.p,
        "n": len(pair.now),
        "wrong_to_right": flips[0] if flips else None,
        "right_to_wrong": flips[1] if flips else None,
    }
    of = "ratio" if gate.ratio is not None else "gain"
    told = f"{of} {estimate.value:+.4g} ({estimate.low:+.4g} to {estimate.high:+.4g}) over {len(pair.now)} items"
    if estimate.low >= limit:
        return _result(gate, _rule(gate), decision="pass", reason=told, code="not_inferior", **fields)
    if estimate.high < limit:
        return _result(gate, _rule(gate), decision="fail", reason=told, code="inferior", **fields)
    told += ": neither shown nor refuted; more items narrow it"
    return _result(gate, _rule(gate), decision="undetermined", reason=told, code="too_few", **fields)


def compared(pair: Paired, *, ratio: bool = False) -> Estimate:
    """Now against before, drawn by group; of right and wrong items never narrower than Tango's interval, because a
    bootstrap of few flips, or none, is sure of what it did not see. Raises GateError where a ratio has no meaning."""
    try:
        found = paired_bootstrap(pair.before, pair.now, ratio=ratio, clusters=pair.groups)
    except ValueError as error:
        raise GateError("no_ratio", str(error)) from error
    if pair.flips is None:
        return found
    low, high = paired_shares(*pair.flips, len(pair.now))
    if ratio:
        base = sum(pair.before) / len(pair.before)
        low, high = 1 + low / base, 1 + high / base
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def pairs(task: TaskResult, out: Path, baseline: Path) -> Paired:
    """This run's items beside the baseline's of the same id and prompt. Raises GateError."""
    doc = _doc(baseline)
    before = next((each for each in (doc.quality.tasks if doc.quality else []) if each.name == task.name), None)
    if before is None:
        raise GateError("no_baseline", f"the run in {baseline} has no task {task.name}")
    if before.state != "complete":
        raise GateError("no_baseline", f"{task.name} of the run in {baseline} is incomplete")
    if before.dataset.get("sha256") != task.dataset.get("sha256"):
        raise GateError("other_items", f"{task.name} of the baseline was measured on another data set")
    old = {each.id: each for each in read_samples(baseline / before.samples)}
    now = read_samples(out / task.samples)
    other = [each.id for each in now if each.id not in old or not _same_question(old[each.id], each)]
    if other or len(old) != len(now):
        raise GateError("other_items", f"the baseline has other items of {task.name} ({len(old)} and {len(now)})")
    scored = [(old[each.id].score, each.score, each.group or each.id) for each in now]
    whole = [(a, b, group) for a, b, group in scored if a is not None and b is not None]
    if not whole:
        raise GateError("not_measured", f"no item of {task.name} has a score in both runs")
    return Paired(*(list(column) for column in zip(*whole, strict=True)))


def _same_question(one: Sample, other: Sample) -> bool:
    return one.prompt == other.prompt and one.expected == other.expected


def read_samples(path: Path) -> list[Sample]:
    """Raises GateError where there is no such file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise GateError("no_baseline", f"{path} can't be read: {error.strerror}") from error
    return [msgspec.json.decode(line, type=Sample) for line in lines]


def _doc(folder: Path) -> ResultDoc:
    try:
        return read_result((folder / "result.json").read_bytes())
    except OSError as error:
        raise GateError("no_baseline", f"{folder} has no result.json: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise GateError("no_baseline", f"result.json of {folder} is of another form: {error}") from error
