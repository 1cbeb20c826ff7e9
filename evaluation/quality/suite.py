"""What a quality run is told: an endpoint, tasks, and gates over what they measure (docs/quality.md, "A suite")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from evaluation.schema import Endpoint, NotNegative, Positive, PositiveInt, Share, Spec
from evaluation.spec_errors import SpecError, check_endpoint, explain

SUITES = Path(__file__).parent / "suites"

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Rule = Literal["exact", "contains", "regex", "json_schema", "numeric"]


class Task(Spec, kw_only=True, frozen=True):
    """Fields of all tasks. `data`: a path beside the suite file, or "bundled:NAME" (suites/data/manifest.json)."""

    name: Name


class Rules(Task, kw_only=True, frozen=True, tag_field="kind", tag="rules"):
    """A business set: each row is a prompt and a rule that its answer must meet."""

    data: str
    rule: Rule | None = None  # of rows that name none
    system: str = ""
    rows: PositiveInt | None = None  # the first so many
    max_tokens: PositiveInt = 256
    temperature: NotNegative = 0.0
    chance: Share | None = None  # what guessing reaches; a score that is no better raises an alarm


class Choices(Task, kw_only=True, frozen=True, tag_field="kind", tag="choices"):
    """Multiple choice by log-likelihood: rows {prompt, choices, gold}; chance is 1 / choices."""

    data: str
    rows: PositiveInt | None = None
    bos: Literal["tokenizer", "never"] = "tokenizer"


class Perplexity(Task, kw_only=True, frozen=True, tag_field="kind", tag="perplexity"):
    """Of a text (whole, cut into windows), or of each `text` of a JSONL file."""

    data: str
    window: Annotated[int, Meta(ge=2)] = 512  # tokens; the first of each is not scored
    windows: PositiveInt | None = 20
    bos: Literal["tokenizer", "never"] = "never"  # never: as published figures for WikiText-2 have it


class Consistency(Task, kw_only=True, frozen=True, tag_field="kind", tag="consistency"):
    """The suite's endpoint beside its `reference`, on the same token ids."""

    data: str
    window: Annotated[int, Meta(ge=2)] = 512
    windows: PositiveInt | None = 20
    bos: Literal["tokenizer", "never"] = "never"
    top: Annotated[int, Meta(ge=-1, le=1000)] = 20  # most likely tokens asked for; -1: the whole vocabulary
    greedy_prompt: Annotated[int, Meta(ge=1)] = 64  # tokens of each window that both continue
    greedy_tokens: Annotated[int, Meta(ge=0)] = 64  # that they write; 0: not asked


class Judge(Task, kw_only=True, frozen=True, tag_field="kind", tag="judge"):
    """Answers of the suite's endpoint beside those of `reference` (or the rows' own), judged by the suite's `judge`."""

    data: str  # rows {prompt, answer?, reference_answer?}
    rows: PositiveInt | None = None
    votes: PositiveInt = 3  # each in both orders
    temperature: NotNegative = 0.7  # of the votes after the first, which is greedy
    max_tokens: PositiveInt = 512  # of an answer
    verdict_tokens: PositiveInt = 512
    criteria: str = ""  # what else counts, in the judge's words
    calibration: str = ""  # rows {prompt, answer_a, answer_b, label: a | b | tie}
    least_kappa: Annotated[float, Meta(ge=-1, le=1)] = 0.6
    least_labels: PositiveInt = 200


class LmEval(Task, kw_only=True, frozen=True, tag_field="kind", tag="lm_eval"):
    """Tasks of lm-eval, in its own environment, through the suite's endpoint."""

    tasks: Annotated[list[str], Meta(min_length=1)]
    rows: PositiveInt | None = None  # of each; null: all that the data hold
    data: str = "bundled:"  # a folder laid out as suites/data, for the tasks of evaluation/quality/tasks
    include_path: str = ""  # a folder with further task files
    fewshot: Annotated[int, Meta(ge=0)] | None = None
    chat: bool = False  # under the model's chat template; generating tasks only
    max_length: PositiveInt = 2048  # tokens of prompt and answer
    chance: Share | None = None


AnyTask = Rules | Choices | Perplexity | Consistency | Judge | LmEval


class Limit(Spec, kw_only=True, frozen=True, tag_field="kind", tag="limit"):
    """A figure against a number. by "bound": the end of its interval must hold, not only its value."""

    metric: str  # task.figure, as gsm8k.accuracy
    at_least: float | None = None
    at_most: float | None = None
    by: Literal["bound", "value"] = "bound"
    informative: bool = False  # told, but blocks nothing


class Baseline(Spec, kw_only=True, frozen=True, tag_field="kind", tag="baseline"):
    """Not worse than an earlier run on the same items, by more than `margin`, shown by the lower 95 % bound."""

    metric: str  # task.figure; the figure is the task's primary one
    margin: NotNegative | None = None  # in the figure's own unit
    ratio: Annotated[float, Meta(gt=0)] | None = None  # instead: at least so much of the baseline
    baseline: str = ""  # folder of the earlier run; empty: the suite's
    informative: bool = False


AnyGate = Limit | Baseline


class Suite(Spec, kw_only=True, frozen=True):
    tasks: Annotated[list[AnyTask], Meta(min_length=1)]
    name: str = ""
    endpoint: Endpoint | None = None  # that is measured; the command line can give it
    reference: Endpoint | None = None  # of consistency and judge
    judge: Endpoint | None = None
    baseline: str = ""  # folder of an earlier run
    gates: list[AnyGate] = []
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 4  # requests at a time, per endpoint
    seed: Annotated[int, Meta(ge=0)] = 0  # of votes and resampling
    most_errors: Positive = 20.0  # percent of a task's items; beyond, the task stops


def read_suite(data: bytes | str | dict[str, Any]) -> Suite:
    """Raises SpecError, which names the path, the reason and the fix."""
    try:
        raw = data if isinstance(data, dict) else json.loads(data)
    except ValueError as error:
        raise SpecError("$", f"this is not JSON: {error}", "Write the suite as one JSON object") from error
    try:
        suite = msgspec.convert(raw, Suite)
    except msgspec.ValidationError as error:
        raise explain(str(error), raw, Suite) from error
    _check(suite)
    return suite


def open_suite(ref: str) -> tuple[Suite, Path]:
    """A bundled suite by name, or a file; with the folder that its paths start from. Raises SpecError."""
    path = SUITES / f"{ref}.json" if ref in bundled() else Path(ref)
    if not path.is_file():
        raise SpecError("suite", f"there is no file {ref}", f"Bundled suites: {', '.join(bundled())}")
    return read_suite(path.read_bytes()), path.resolve().parent


def bundled() -> list[str]:
    return sorted(path.stem for path in SUITES.glob("*.json"))


def _check_endpoints(suite: Suite) -> None:
    for role in ("endpoint", "reference", "judge"):
        if (endpoint := getattr(suite, role)) is not None:
            check_endpoint(f"$.{role}", endpoint)


def _check(suite: Suite) -> None:
    _check_endpoints(suite)
    seen: dict[str, AnyTask] = {}
    for index, task in enumerate(suite.tasks):
        path = f"$.tasks[{index}]"
        if task.name in seen:
            raise SpecError(f"{path}.name", f"two tasks are called '{task.name}'", "Give each its own name")
        seen[task.name] = task
        if isinstance(task, Consistency) and task.greedy_prompt > task.window:
            raise SpecError(f"{path}.greedy_prompt", f"{task.greedy_prompt} is more than window = {task.window}")
    for index, gate in enumerate(suite.gates):
        _check_gate(f"$.gates[{index}]", gate, seen)


def check_ready(suite: Suite) -> None:
    """What may come from the command line as well as from the file is there by now. Raises SpecError."""
    if suite.endpoint is None:
        raise SpecError("$.endpoint", "is missing", 'Add {"url": …, "model": …}, or give --url')
    _check_endpoints(suite)
    for index, task in enumerate(suite.tasks):
        if isinstance(task, Consistency) and suite.reference is None:
            raise SpecError("$.reference", f"$.tasks[{index}] compares with it", "Add it, or give --reference-url")
        if isinstance(task, Judge) and suite.judge is None:
            raise SpecError("$.judge", f"$.tasks[{index}] asks it", "Add it, or give --judge-url")
    for index, gate in enumerate(suite.gates):
        if isinstance(gate, Baseline) and not gate.baseline and not suite.baseline:
            told = "no baseline is named"
            raise SpecError(f"$.gates[{index}].baseline", told, "Give the folder of an earlier run, or --baseline")


def _check_gate(path: str, gate: AnyGate, tasks: dict[str, AnyTask]) -> None:
    name, dot, _ = gate.metric.rpartition(".")
    if not dot or name.partition(":")[0] not in tasks:
        raise SpecError(f"{path}.metric", f"'{gate.metric}' is no task.figure", f"Tasks here: {', '.join(tasks)}")
    if isinstance(gate, Limit):
        if (gate.at_least is None) == (gate.at_most is None):
            raise SpecError(path, "a limit has either at_least or at_most", 'As {"at_least": 0.5}')
        return
    if (gate.margin is None) == (gate.ratio is None):
        raise SpecError(path, "a baseline gate has either margin or ratio", 'As {"margin": 0.02} or {"ratio": 0.9}')
