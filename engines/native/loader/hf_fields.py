"""Reading config.json: a key that is absent, of another kind, or set to what the decoder does not do, is named."""

from __future__ import annotations

from typing import Any

from engines.native.loader.errors import BadModel

Json = dict[str, Any]


def refused(message: str, hint: str = "") -> BadModel:
    return BadModel("unknown_architecture", f"config.json: {message}", hint)


def number(config: Json, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise refused(f"{key} is {value!r}, a positive whole number is needed")
    return value


def real(config: Json, key: str, default: float | None = None) -> float:
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise refused(f"{key} is {value!r}, a number that is not negative is needed")
    return float(value)


def only(config: Json, key: str, *wanted: object) -> None:
    """The key is absent or one of `wanted`."""
    if key in config and config[key] not in wanted:
        raise refused(f"{key} is {config[key]!r}; only {' or '.join(repr(one) for one in wanted)} is served")


def layer_kinds(config: Json, layers: int, default: list[str]) -> list[str]:
    """`layer_types`, one for each layer: "sliding_attention" or "full_attention"."""
    kinds = config.get("layer_types") or default
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise refused(f"layer_types is {str(kinds)[:60]}; an entry for each of the {layers} layers is needed")
    for kind in kinds:
        if kind not in ("sliding_attention", "full_attention"):
            raise refused(f"layer_types has {kind!r}; only sliding_attention and full_attention are served")
    return kinds
