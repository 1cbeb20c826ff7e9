"""Random streams that share nothing: each is a run's seed and a path of labels, never a copy of another's state."""

from __future__ import annotations

import secrets
from zlib import crc32

import numpy as np


def rng(seed: int, *path: str | int) -> np.random.Generator:
    """The stream of this path, always the same: `rng(seed, "measured", "prompt", 17)`."""
    key = tuple(part if isinstance(part, int) else crc32(part.encode()) for part in path)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def fresh() -> int:
    """A seed that no run had before; it is recorded in the result."""
    return secrets.randbits(48)
