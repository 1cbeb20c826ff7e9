"""What rounding loses, and how much of it a training won back: perplexities of text that neither has seen. No torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.protocol import ChildError
from plugins.quantization.qat_options import LEAST_RECOVERY, LEAST_TEXTS, LEAST_TOKENS, held_out

LEAST = 0.002
"""Of the model's perplexity: a smaller gap is within what other text would have."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Perplexities by tokens: of the model, of its rounded version, of the trained one. tokens: that were scored;
    texts: that they are of."""

    model: float
    rounded: float
    trained: float
    tokens: int
    texts: int

    @property
    def recovery(self) -> float:
        """1: all of the gap; 0: nothing; negative: the training made it worse."""
        return (self.rounded - self.trained) / (self.rounded - self.model)

    def rule(self) -> dict[str, Any]:
        """As gates have them."""
        value = self.recovery
        return {
            "metric": "gap_recovery",
            "value": value,
            "limit": LEAST_RECOVERY,
            "better": "higher",
            "passed": value >= LEAST_RECOVERY,
        }

    def about(self) -> dict[str, Any]:
        return {**asdict(self), "recovery": self.recovery}


@dataclass(frozen=True, slots=True)
class Split:
    """Rows before `trained` are trained on, rows from `measured` on are measured by; what lies between begins in a text
    that is trained on. texts: of those that are measured by."""

    trained: int
    measured: int
    texts: int


def split(texts: npt.NDArray[np.int32], tokens: int) -> Split:
    """texts: as Calibration has them. The last rows are held out, as many as `held_out` says or as hold enough texts
    that no other row has a part of. Raises ChildError where even half of the rows don't."""
    rows = len(texts)
    least = held_out(rows, tokens)
    found = Split(rows, rows, 0)
    for count in range(least, max(least, rows // 2) + 1):
        trained = rows - count
        seen = int(texts[trained - 1, 1])
        measured = trained + int(np.searchsorted(texts[trained:, 0], seen, side="right"))
        unseen = 0 if measured == rows else int(texts[-1, 1] - texts[measured, 0]) + 1
        found = Split(trained, measured, unseen)
        if (rows - measured) * (tokens - 1) >= LEAST_TOKENS and unseen >= LEAST_TEXTS:
            return found
    scored = (rows - found.measured) * (tokens - 1)
    raise ChildError(
        "bad_calibration",
        f"calibration: of {rows:,} rows of {tokens:,} tokens, half kept to measure by, {scored:,} tokens of "
        f"{found.texts:,} texts are left that the training does not see; {LEAST_TOKENS:,} of {LEAST_TEXTS} are needed",
        "Give more texts and not longer ones, or ask for more rows.",
    )


def require(model: float, rounded: float) -> None:
    """Raises ChildError where there is nothing that a training could win back."""
    if not rounded > model * (1 + LEAST):
        raise ChildError(
            "nothing_to_recover",
            f"on the held-out rows the rounded version's perplexity is {rounded:.4g}, the model's {model:.4g}: there "
            "is no gap to close",
            "Take the version that the back end native makes.",
        )


def perplexity(loss: float, what: str) -> float:
    """loss: nats per token. Raises ChildError for one that is no number."""
    if not math.isfinite(loss):
        raise ChildError(
            "bad_weights", f"{what}: its perplexity on the held-out rows is no number", "Lower qat_learning_rate."
        )
    return math.exp(min(loss, 700.0))
