"""Rotary embedding from config.json: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (older)."""

from __future__ import annotations

import math
from dataclasses import replace

from engines.native.loader.hf_fields import Json, number, only, real, refused
from engines.native.models.config import Rope


def rope(
    config: Json,
    head_dim: int,
    *,
    theta: float = 10_000.0,
    partial: float | None = None,
    interleaved: bool = False,
    entry: Json | None = None,
) -> Rope:
    """`theta`, `partial`: what the architecture takes where the file says nothing; partial None: it turns whole heads.
    entry: what to read instead of the configuration's own scaling, for a model with several."""
    scaling = entry or config.get("rope_parameters") or config.get("rope_scaling") or {}
    share = 1.0
    if partial is None:
        only(config, "partial_rotary_factor", 1.0, None)
        only(scaling, "partial_rotary_factor", 1.0, None)
    else:
        share = real(scaling, "partial_rotary_factor", real(config, "partial_rotary_factor", partial))
    dims = int(head_dim * share)
    if dims % 2 or (head_dim - dims) % 2 or not 0 < dims <= head_dim:
        raise refused(f"partial_rotary_factor is {share}: of heads of {head_dim} an even part must be turned")
    base = Rope(
        theta=float(scaling.get("rope_theta") or config.get("rope_theta") or theta),
        dims=dims if dims < head_dim else 0,
        interleaved=interleaved,
    )
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in _KINDS:
        raise refused(
            f"rope_scaling is {kind!r}",
            f"the native engine knows {', '.join(_KINDS)}; remove the entry to serve the unscaled context",
        )
    return _KINDS[kind](base, scaling, config)


def _default(base: Rope, scaling: Json, config: Json) -> Rope:
    return base


def _linear(base: Rope, scaling: Json, config: Json) -> Rope:
    return _with(base, kind="linear", factor=_value(scaling, "factor"))


def _llama3(base: Rope, scaling: Json, config: Json) -> Rope:
    return _with(
        base,
        kind="llama3",
        factor=_value(scaling, "factor"),
        low=_value(scaling, "low_freq_factor"),
        high=_value(scaling, "high_freq_factor"),
        original_context=int(_value(scaling, "original_max_position_embeddings")),
    )


def _yarn(base: Rope, scaling: Json, config: Json) -> Rope:
    original = _original(scaling, config)
    factor = float(scaling.get("factor") or number(config, "max_position_embeddings") / original)
    share = scaling.get("attention_factor")
    if share is None:
        mscale, everywhere = (float(scaling.get(key) or 0) for key in ("mscale", "mscale_all_dim"))
        both = mscale and everywhere
        share = yarn_scale(factor, mscale) / yarn_scale(factor, everywhere) if both else yarn_scale(factor)
    return _with(
        base,
        kind="yarn",
        factor=factor,
        original_context=original,
        beta_fast=float(scaling.get("beta_fast") or 32),
        beta_slow=float(scaling.get("beta_slow") or 1),
        truncate=bool(scaling.get("truncate", True)),
        attention_factor=float(share),
    )


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """How much the attention's logits lose in sharpness when positions are slowed by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _longrope(base: Rope, scaling: Json, config: Json) -> Rope:
    original = _original(scaling, config)
    factor = float(scaling.get("factor") or number(config, "max_position_embeddings") / original)
    share = scaling.get("attention_factor")
    if share is None:
        share = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return _with(
        base,
        kind="longrope",
        original_context=original,
        short=_factors(scaling, "short_factor"),
        long=_factors(scaling, "long_factor"),
        attention_factor=float(share),
    )


_KINDS = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its first name, in early Phi-3 files
}


def _with(base: Rope, **changes: object) -> Rope:
    return replace(base, **changes)  # type: ignore[arg-type] # checked where they are made


def _value(scaling: Json, key: str) -> float:
    value = scaling.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise refused(f"rope_scaling: {key} is {value!r}, a positive number is needed")
    return float(value)


def _original(scaling: Json, config: Json) -> int:
    found = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    return int(found or number(config, "max_position_embeddings"))


def _factors(scaling: Json, key: str) -> tuple[float, ...]:
    values = scaling.get(key)
    if not isinstance(values, list) or not values:
        raise refused(f"rope_scaling: {key} is {str(values)[:60]}, a list of numbers is needed")
    return tuple(float(value) for value in values)
