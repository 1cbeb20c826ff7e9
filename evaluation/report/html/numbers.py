"""Numbers as people read them: three figures that count, thin groups, and a dash for what was not measured."""

from __future__ import annotations

import math
from collections.abc import Callable

NONE = "–"


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits, never an exponent below 10^9: 0.0123, 12.3, 1,234."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= 9:
        return f"{value:.{digits - 1}e}"
    places = max(0, min(digits - 1 - size, 6))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 0…1; a full digit is never rounded up to 100 % or down to 0 %."""
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value * 100:.{digits}f}"
    if value < 1 and float(text) == 100:
        return f">{100 - 10**-digits:.{digits}f} %"
    if value > 0 and float(text) == 0:
        return f"<{10**-digits:.{digits}f} %"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def duration(ms: float | None) -> str:
    """Milliseconds below 10 s, seconds above."""
    if ms is None or not math.isfinite(ms):
        return NONE
    return f"{number(ms)} ms" if abs(ms) < 10_000 else f"{number(ms / 1000)} s"


def durations(highest_ms: float) -> Callable[[float], str]:
    """Of an axis: one unit for all its marks."""
    if highest_ms < 2_000:
        return duration
    return lambda ms: f"{number(ms / 1000)} s"


def probability(p: float | None) -> str:
    """A p value; below 0.001 its exact size says nothing."""
    if p is None:
        return NONE
    return "<0.001" if p < 0.001 else number(p, 2)


def in_unit(value: float | None, unit: str) -> str:
    """A value with its unit, where the unit is one of a result's."""
    if unit == "ms":
        return duration(value)
    if unit == "share":
        return percent(value)
    if unit == "per_s":
        return f"{number(value)}/s"
    return number(value)


def change(ratio: float | None) -> str:
    """+3.2 % of a ratio 1.032."""
    if ratio is None or not math.isfinite(ratio):
        return NONE
    return f"{(ratio - 1) * 100:+.1f} %".replace("-", "−")


def plain(value: object) -> str:
    """Any value of an evidence or an environment, on one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: NONE}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value, 4)
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {plain(one)}" for name, one in value.items())
    return str(value)
