"""What a run is told and what it leaves behind: every part of `evaluation` and the platform codes against this file.

Times of a request are nanoseconds of one monotonic clock (`time.monotonic_ns`), which processes of one machine share;
wall clock appears once, in `ResultDoc.started_at`. Fields whose name ends in `_ms`, `_s`, `_tokens` have that unit;
rates are requests per second. A value that could not be measured is null, never 0.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from evaluation.quality.results import QualityResult

SCHEMA_VERSION = 1
DEFINITIONS = 1  # version of the metric definitions in evaluation/metrics/definitions.py and docs/evaluation.md

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveInt = Annotated[int, Meta(ge=1)]
Decision = Literal["pass", "fail", "undetermined"]
Latency = Literal["ttft", "e2el", "tpot", "itl"]
Arrivals = Literal["constant", "poisson", "gamma", "mmpp", "trace"]


class Spec(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Base of all that people write: an unknown field is an error that names its path."""


# ---- what a run is told ----------------------------------------------------------------------------------------------


class Endpoint(Spec, kw_only=True, frozen=True):
    url: Annotated[str, Meta(pattern=r"^https?://")]  # up to and without /v1
    model: str = ""  # empty: the only one that /v1/models names
    api: Literal["chat", "completions"] = "chat"
    api_key_env: str = ""  # name of the environment variable that holds the key; the key itself is never in a spec
    timeout_s: Positive = 120.0  # from the intended start to the last byte
    extra_body: dict[str, Any] = {}  # merged into each request (temperature, ignore_eos …)
    metrics_url: str = ""  # Prometheus text; empty: `url` + /metrics where that answers
    tokenizer: str = ""  # folder or tokenizer.json; empty: the endpoint's /tokenize


class Length(Spec, kw_only=True, frozen=True):
    """Tokens, drawn per request. `values` with `weights` is a histogram; else mean and stdev, cut to [low, high]."""

    distribution: Literal["fixed", "uniform", "normal", "lognormal", "histogram"] = "fixed"
    mean: Positive = 256.0
    stdev: NotNegative = 0.0
    low: PositiveInt = 1
    high: PositiveInt | None = None
    values: list[PositiveInt] = []
    weights: list[NotNegative] = []


class Dataset(Spec, kw_only=True, frozen=True):
    """Fields of all data sets."""

    requests: PositiveInt | None = None  # distinct items; null: as many as the run needs
    allow_duplicates: bool = False  # identical prompts refuse the set unless this says that they are meant
    block_tokens: PositiveInt = 16  # of the engine's prefix cache, for the expected hit rate


class Synthetic(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="synthetic"):
    prompt: Length = Length(mean=512.0)
    output: Length = Length(mean=128.0)
    after_template: bool = True  # a target length means after the chat template


class SharedPrefix(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="shared_prefix"):
    prefix_tokens: PositiveInt = 1024
    groups: PositiveInt = 1  # distinct prefixes
    prompt: Length = Length(mean=128.0)  # the user's own part
    output: Length = Length(mean=128.0)
    after_template: bool = True


class Jsonl(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="jsonl"):
    path: str
    prompt_field: str = "prompt"  # a string, or a list of chat messages
    output_field: str = ""  # tokens to generate; empty: `output`
    output: Length = Length(mean=128.0)


class ShareGpt(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="sharegpt"):
    path: str
    max_prompt_tokens: PositiveInt = 4096
    output: Length | None = None  # null: as long as the recorded answer


class Trace(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="trace"):
    path: str
    format: Literal["azure", "burstgpt", "mooncake"]
    time_scale: Positive = 1.0  # 2 = twice as fast
    start_s: NotNegative = 0.0
    duration_s: Positive | None = None
    max_prompt_tokens: PositiveInt | None = None


class Sessions(Dataset, kw_only=True, frozen=True, tag_field="kind", tag="sessions"):
    """Conversations: each turn's prompt holds the turns before it."""

    turns: Length = Length(mean=4.0)
    think_s: NotNegative = 2.0  # mean of an exponential between an answer's end and the next turn
    system_tokens: Annotated[int, Meta(ge=0)] = 0  # the same for all sessions
    prompt: Length = Length(mean=128.0)
    output: Length = Length(mean=128.0)


AnyDataset = Synthetic | SharedPrefix | Jsonl | ShareGpt | Trace | Sessions


class MmppState(Spec, kw_only=True, frozen=True):
    """One state of a Markov-modulated Poisson process."""

    factor: NotNegative  # of the level's rate
    mean_s: Positive  # mean stay


class Shape(Spec, kw_only=True, frozen=True):
    """How arrivals lie in time at a given rate."""

    arrivals: Arrivals = "poisson"
    burstiness: Positive = 1.0  # shape of the gamma gaps: 1 = Poisson, less = burstier
    states: list[MmppState] = []  # of mmpp; empty: factors 0.5 and 2 for 10 s and 5 s


class Rate(Shape, kw_only=True, frozen=True, tag_field="kind", tag="rate"):
    rate: Positive | None = None  # null only with arrivals "trace"
    ramp_s: NotNegative = 0.0  # linear from 0 to `rate`; never part of a window


class Concurrency(Spec, kw_only=True, frozen=True, tag_field="kind", tag="concurrency"):
    """Closed loop: a new request when one ends. Its figures are never called capacity."""

    concurrency: PositiveInt


class Sweep(Shape, kw_only=True, frozen=True, tag_field="kind", tag="sweep"):
    rates: Annotated[list[Positive], Meta(min_length=1)]


class Search(Shape, kw_only=True, frozen=True, tag_field="kind", tag="search"):
    low: Positive = 0.5  # first rate tried
    high: Positive | None = None  # never go beyond
    growth: Annotated[float, Meta(gt=1)] = 2.0
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 0.05  # width of the answer, relative
    max_levels: PositiveInt = 12


AnyLoad = Rate | Concurrency | Sweep | Search


class Objective(Spec, kw_only=True, frozen=True):
    """`quantile` of the metric is at most `limit_ms`."""

    metric: Latency
    limit_ms: Positive
    quantile: Annotated[float, Meta(gt=0, lt=1)] = 0.99
    start: Literal["intended", "actual"] = "intended"  # of ttft and e2el; in closed loop there is only "actual"


class Steady(Spec, kw_only=True, frozen=True):
    """When a level counts as steady (docs/evaluation.md)."""

    min_s: NotNegative = 20.0  # shortest window; also at least 3 x the median E2EL
    max_s: Positive = 600.0  # a level is never extended beyond
    windows: PositiveInt = 3
    window_tolerance: Positive = 0.10
    balance: Positive = 0.02
    little: Positive = 0.05


class RunSpec(Spec, kw_only=True, frozen=True):
    endpoint: Endpoint
    dataset: AnyDataset
    load: AnyLoad
    name: str = ""
    slo: list[Objective] = []
    min_requests: PositiveInt = 1000  # in a level's window; P99 needs 299 to certify anything
    scenario: str = ""  # a name of evaluation/scenarios.py; its SLO where `slo` is empty
    seed: Annotated[int, Meta(ge=0)] | None = None  # null: drawn fresh and recorded
    processes: PositiveInt = 1
    warm_up_s: NotNegative = 5.0  # with prompts of a stream that shares nothing with the measured one
    cool_down_s: NotNegative = 60.0  # longest wait between levels until nothing is in flight
    steady: Steady = Steady()
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95  # of each one-sided bound


# ---- what was measured -----------------------------------------------------------------------------------------------


class RequestRecord(Struct, kw_only=True):
    index: int  # in the level's arrival sequence
    intended_ns: int  # the schedule's start
    sent_ns: int | None = None  # just before the first byte was written; null: never sent
    first_ns: int | None = None  # first event with a token of content, reasoning or tool-call arguments
    chunks: list[tuple[int, int]] = []  # (arrival ns, tokens) of each such event; tokens sum to output_tokens
    end_ns: int | None = None  # of the answer, or of its failure
    status: Literal["ok", "error", "timeout", "cut", "cancelled"] = "ok"  # cut: ended without [DONE] or finish
    error: str = ""  # code first: "connection_reset: …", "http_503: …", "invalid_sse: …"
    session: int | None = None
    turn: int = 0
    level: int = 0
    process: int = 0
    warm_up: bool = False
    prompt_tokens: int | None = None  # by the server's usage
    cached_tokens: int | None = None  # by the server's usage
    output_tokens: int | None = None  # by the server's usage
    accepted_tokens: int | None = None  # of them, those that had been guessed; null: the server does not say
    rejected_tokens: int | None = None  # guesses that were checked in vain
    planned_prompt_tokens: int | None = None  # by the data set
    planned_output_tokens: int | None = None  # asked for
    finish_reason: str | None = None
    connect_ns: int | None = None  # spent on a new connection; null: one was kept
    headers_ns: int | None = None  # arrival of the answer's head
    server_ms: dict[str, float] = {}  # what the server says in headers: "queue", "overhead"


class Window(Struct, kw_only=True):
    start_ns: int
    end_ns: int
    seconds: float
    truncated_s: float = 0.0  # left out before it: ramp, warm-up transient by MSER-5


class Counts(Struct, kw_only=True):
    """Requests whose intended start lies in the window; `done` are completions in it, whenever they began."""

    offered: int = 0
    done: int = 0
    ok: int = 0
    error: int = 0
    timeout: int = 0
    cut: int = 0
    cancelled: int = 0
    warm_up: int = 0  # before the window
    in_flight_start: int = 0
    in_flight_end: int = 0


class Summary(Struct, kw_only=True):
    """Of one metric over the window's successful requests; a failed one has no latency and is counted in Counts."""

    unit: str
    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    low: float | None = None  # 95 % interval of the mean, autocorrelation corrected
    high: float | None = None
    min: float | None = None
    max: float | None = None
    bounds: dict[str, tuple[float | None, float | None]] = {}  # 95 % order-statistic interval of "p50" … "p99"


class ObjectiveResult(Struct, kw_only=True):
    metric: Latency
    limit_ms: float
    quantile: float
    start: Literal["intended", "actual"]
    k: int  # misses, failed requests among them
    n: int
    failed: int = 0
    n_eff: float = 0.0  # independent requests that tell as much: misses of a queue come in clusters
    lower: float = 0.0  # Clopper-Pearson bounds of k / n, each one-sided at the spec's confidence
    upper: float = 1.0
    decision: Decision = "undetermined"


class Health(Struct, kw_only=True):
    """Of the client itself. An unhealthy one makes the level invalid."""

    healthy: bool = True
    reasons: list[str] = []  # codes: pacing_lag, loop_lag, cpu, file_descriptors, null_server
    tolerated: list[str] = []  # codes of lags beyond their bounds, yet below 1 % of every objective's limit
    pacing_p50_ms: float | None = None  # sent - intended
    pacing_p99_ms: float | None = None
    loop_p99_ms: float | None = None
    cpu_share: float | None = None  # of the busiest process: 1 = one core
    processes: int = 1
    null_server_rate: float | None = None  # requests/s that this client reached against a null server
    chunks_per_s: float | None = None


class Prefix(Struct, kw_only=True):
    """Share of prompt tokens that came from the prefix cache."""

    expected: float | None = None  # from the data set's own block trie
    measured: float | None = None
    source: Literal["", "usage", "metrics"] = ""
    verified: bool = True  # `expected` is by the served model's tokenizer, its chat template included


class Finding(Struct, kw_only=True):
    code: str  # stable; the console and the HTML report translate it with the evidence's values
    severity: Literal["info", "warning", "error"]  # error: the figures must not be used
    cause: str  # one English sentence
    remedy: str
    evidence: dict[str, Any] = {}
    level: int | None = None


class LevelResult(Struct, kw_only=True):
    index: int
    rate: float | None  # requests/s asked; null in closed loop
    verdict: Literal["steady", "overloaded", "undetermined", "invalid"]
    concurrency: int | None = None
    seed: int = 0
    window: Window | None = None
    counts: Counts = field(default_factory=Counts)
    offered_rate: float | None = None
    done_rate: float | None = None
    goodput: float | None = None  # requests/s that met every objective
    attainment: float | None = None  # share of the offered that did
    metrics: dict[str, Summary] = {}
    objectives: list[ObjectiveResult] = []
    decision: Decision = "undetermined"  # steady and every objective passes; overloaded or one fails
    checks: dict[str, float | None] = {}  # what the verdict rests on: slopes, margins, balance, little, drift
    reasons: list[str] = []  # codes of the checks that did not hold
    health: Health = field(default_factory=Health)
    prefix: Prefix = field(default_factory=Prefix)
    server: dict[str, float] = {}  # change of the engine's counters over the level
    series: dict[str, list[float | None]] = {}  # per second: t_s, offered, done, in_flight, ttft_ms
    findings: list[Finding] = []
    items: int = 0  # of a data set in a file that were taken: the next level begins after them


class DatasetInfo(Struct, kw_only=True):
    sha256: str = ""
    requests: int = 0
    lengths: dict[str, Summary] = {}  # prompt, output: tokens
    expected_hit_rate: float | None = None
    duplicates: int = 0
    after_template: bool = True


class Capacity(Struct, kw_only=True):
    """Largest rate that meets the objectives: between `low` (certified) and `high` (certified not to)."""

    low: float | None = None
    high: float | None = None
    decision: Literal["certified", "open_above", "unreachable", "undetermined"] = "undetermined"
    levels: int = 0


class ResultDoc(Struct, kw_only=True):
    id: str
    kind: Literal["load", "search", "quality", "plan"]
    schema_version: int = SCHEMA_VERSION
    definitions: int = DEFINITIONS
    state: Literal["running", "complete", "incomplete"] = "running"
    spec: RunSpec | None = None  # of kinds load and search
    seed: int = 0
    resumed: int = 0  # how often the run was taken up again; levels after it draw other prompts
    started_at: str = ""  # ISO 8601, UTC
    ended_at: str = ""
    environment: dict[str, Any] = {}
    dataset: DatasetInfo = field(default_factory=DatasetInfo)
    levels: list[LevelResult] = []
    capacity: Capacity | None = None
    score: dict[str, Any] = {}  # scenario, weights, value: beside the verdict, never instead of it
    request: dict[str, Any] = {}  # what kinds quality and plan were told
    quality: QualityResult | None = None  # of kind "quality"
    plan: dict[str, Any] = {}
    findings: list[Finding] = []
    verdict: Literal["pass", "fail", "undetermined", "invalid"] = "undetermined"


def encode(value: Any) -> bytes:
    """Compact JSON of any struct here."""
    return msgspec.json.encode(value)


def read_result(data: bytes) -> ResultDoc:
    """Raises msgspec.ValidationError, which names the path of what is wrong."""
    return msgspec.json.decode(data, type=ResultDoc)
