"""Of what rows lack, how much is computed now: a long prompt must not keep all other rows waiting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engines.native.step import Int32


def shares(lacking: Int32, budget: int) -> tuple[Int32, NDArray[np.int64]]:
    """lacking: int32 [n], tokens, at least one of each row → int32 [n], those computed now, at most `budget` in all,
    the row that lacks the least first; and int64 [k], the places of rows that then lack none."""
    order = np.argsort(lacking, kind="stable")
    before = np.cumsum(lacking[order]) - lacking[order]
    count = np.zeros_like(lacking)
    count[order] = np.clip(budget - before, 0, lacking[order])
    return count, np.flatnonzero(count == lacking)
