"""What rounding loses, and how much of it a training won back: perplexities of text that neither has seen. No torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from engines.protocol import ChildError
from plugins.quantization.qat_options import LEAST_RECOVERY

LEAST = 0.002
"""Of the model's perplexity: a smaller gap is within what other text would have."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Perplexities by tokens: of the model, of its rounded version, of the trained one. tokens: that were scored."""

    model: float
    rounded: float
    trained: float
    tokens: int

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
