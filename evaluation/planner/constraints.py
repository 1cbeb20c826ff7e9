"""What a person allows the planner to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evaluation.planner import hardware, schemes
from evaluation.planner.memory import Engine
from evaluation.schema import NotNegative, Positive, PositiveInt, Share, Spec


class ConstraintError(ValueError):
    """Names the field, the reason and the fix."""

    code = "invalid_constraints"


class Constraints(Spec, kw_only=True, frozen=True):
    """gpus: keys of hardware.toml, empty = all of them. memory_mib: what the drivers of own devices report, by key.
    prices: per GPU and hour, in any one currency. prefix_hits: share of shared prefixes that the cache holds. pp:
    stages. headroom: of an instance's rate that is kept free."""

    gpus: list[str] = []
    memory_mib: dict[str, PositiveInt] = {}
    max_gpus: PositiveInt = 64
    tp: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    pp: tuple[PositiveInt, ...] = (1,)
    schemes: list[str] = []  # empty: the model's own format
    kv_dtypes: list[str] = []  # empty: as the weights are computed
    prices: dict[str, Positive] = {}
    max_length: Annotated[int, Meta(ge=0)] = 0  # tokens of one request; 0: the longest that the profile holds
    sequences: Annotated[int, Meta(ge=0)] = 0  # rows of one instance; 0: the engine's choice
    step_tokens: Annotated[int, Meta(ge=0)] = 0
    target_tpot_ms: NotNegative = 0.0
    e2el_s: Positive | None = None  # target of Little's law; null: from the objectives
    quantile: Annotated[float, Meta(gt=0.5, lt=1)] = 0.99  # of the tokens held at once
    prefix_hits: Share = 1.0
    lookahead: Annotated[int, Meta(ge=0)] = 0  # tokens of drafts per request
    headroom: Annotated[float, Meta(ge=0, lt=0.9)] = 0.0
    reserve: Annotated[float, Meta(ge=0, le=0.05)] = 0.05
    link_gbps: Positive | None = None  # between instances, Gbit/s; null: the device's own link
    choices: PositiveInt = 5  # that are simulated and answered
    requests: Annotated[int, Meta(ge=100, le=20_000)] = 400  # of a simulation
    seed: Annotated[int, Meta(ge=0)] = 1


def read_constraints(data: Mapping[str, Any] | Constraints | None) -> Constraints:
    """Raises ConstraintError, which names the path of what is wrong."""
    block = Engine().block
    try:
        found = data if isinstance(data, Constraints) else msgspec.convert(data or {}, Constraints)
        for key in [*found.gpus, *found.memory_mib, *found.prices]:
            hardware.gpu(key)
        for name in found.schemes:
            schemes.scheme(name)
        for name in found.kv_dtypes:
            schemes.kv_bytes(name, 128)
    except (msgspec.ValidationError, hardware.UnknownGpu, schemes.UnknownScheme) as error:
        raise ConstraintError(f"constraints: {error}") from error
    if 0 < found.step_tokens < block:
        raise ConstraintError(
            f"constraints: a step of {found.step_tokens} tokens is less than a block of the KV cache, so no prompt "
            f"would ever be computed - at `$.step_tokens`; give at least {block}, or 0 for the engine's choice"
        )
    return found
