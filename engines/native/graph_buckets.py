"""What sizes of a step are rounded up to, so that a few captured graphs do for all."""

from __future__ import annotations

SMALLEST_KEYS = 512


def rows_bucket(rows: int) -> int:
    """1, 2, 4, 8, then multiples of 8 to 64, of 16 to 256, of 32 beyond."""
    if rows <= 8:
        return 1 << (rows - 1).bit_length()
    step = 8 if rows <= 64 else 16 if rows <= 256 else 32
    return -(-rows // step) * step


def keys_bucket(keys: int, longest: int) -> int:
    """Quarters of powers of two: a bound on keys sets the length of attention's splits, and a loose one unbalances."""
    if keys <= SMALLEST_KEYS:
        return min(SMALLEST_KEYS, longest)
    step = 1 << ((keys - 1).bit_length() - 3)
    return min(-(-keys // step) * step, longest)


def wide_keys_bucket(keys: int, longest: int) -> int:
    """Powers of two, where steps of a kind are so few that each finer bucket would be captured for a handful."""
    return min(max(SMALLEST_KEYS, 1 << (keys - 1).bit_length()), longest)


def width_bucket(nodes: int) -> int:
    """Nodes of a row that verifies guesses: with its last token they fill a power of two, 2 to 32."""
    return (1 << max(nodes, 1).bit_length()) - 1
