"""What the planner says: every line has a code and values, which the console translates, beside an English sentence."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

Value = str | int | float | bool | None
Basis = Literal["calibrated", "transferred", "bound_only", "computed"]
"""calibrated: measured for this model on this device. transferred: measured there for another model. bound_only: from
the device's data sheet, so that only what can't be beaten is known. computed: arithmetic, such as bytes."""


class Line(Struct, kw_only=True, frozen=True):
    """A reason, a source or a warning."""

    code: str
    text: str
    values: dict[str, Value] = {}
    severity: Literal["info", "warning", "error"] = "info"


class Figure(Struct, kw_only=True, frozen=True):
    """A prediction. Where `basis` is bound_only, `value` is null: there is no middle to rely on, and the end of the
    interval that hardware can't set (`high` of a latency, `low` of a rate) rests on a guess that `source` names."""

    metric: str  # ttft_p50, tpot_mean, e2el_p95, decode_step, requests_per_s …
    unit: str
    low: float
    value: float | None
    high: float
    basis: Basis
    source: str


class MemoryLine(Struct, kw_only=True, frozen=True):
    """One part of a device's memory; bytes of one rank (one GPU)."""

    part: Literal["weights", "kv_floor", "kv_cache", "activations", "graphs", "overhead", "communication", "reserve"]
    bytes: int
    source: str  # how it was found, in English
    code: str


class KvFloor(Struct, kw_only=True, frozen=True):
    """Least KV cache that the profile's peak needs, bytes over all ranks of one deployment.

    in_flight: requests at once by Little's law. `shared` counts each live prefix once; `unshared` is what it takes when
    the prefix cache evicts. The plan is held to `unshared` where `unshared` fits, and says so where it does not.
    """

    in_flight: int
    quantile: float
    tokens_shared: int
    tokens_unshared: int
    shared: int
    unshared: int
    fragmentation: int  # of both
    lookahead: int  # of both: slots of drafts
    samples: int
    seed: int
    bursty_in_flight: int = 0  # the same quantile of a Poisson number in flight
    bursty_unshared: int = 0


class PdAdvice(Struct, kw_only=True, frozen=True):
    """Prefill and decode apart. ttft_change, tpot_change: relative, of the means at the planned rate. ttft_change is
    never negative: a hand-over does not make a first token come sooner."""

    advised: bool
    prefill_instances: int
    decode_instances: int
    sequences_per_s: float  # that the pools serve together
    mixed_sequences_per_s: float  # of as many instances that do both
    transfer_ms: float
    ttft_change: float
    tpot_change: float
    reasons: list[Line] = []


class Choice(Struct, kw_only=True, frozen=True):
    """One way to serve the profile."""

    gpu: str
    gpu_name: str
    tp: int
    pp: int
    replicas: int
    scheme: str  # of the weights
    kv_dtype: str
    gpus: int  # tp × pp × replicas
    fits: bool
    meets: Literal["yes", "no", "unknown"]  # the SLOs at the peak rate; unknown: the interval holds the limit
    memory: list[MemoryLine]  # of the fullest rank
    usable: int  # bytes of that GPU
    kv_tokens: int  # that the rest of one instance's memory holds
    figures: list[Figure]
    reasons: list[Line]
    basis: Basis
    cost_per_hour: float | None = None
    pd: PdAdvice | None = None


class Plan(Struct, kw_only=True):
    """`choices` in order of preference; `recommended` is the index of the first that meets, null where none does."""

    model: str
    profile: str
    created_at: str
    recommended: int | None
    choices: list[Choice]
    kv_floor: dict[str, KvFloor] = field(default_factory=dict)  # by kv_dtype
    rejected: list[Line] = field(default_factory=list)
    findings: list[Line] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)  # model and profile in numbers
