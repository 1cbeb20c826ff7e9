"""What a person asks for, and the recipe that an optimizer gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tursiops.quantization.devices import Device
from tursiops.quantization.schemes import Scheme
from tursiops.registry.models import Corpus

HEAD = "lm_head"
MOST_KEPT, LONGEST_KEPT = 100, 200
"""Patterns of layers that stay, and characters of each: all are held against all layers while a person waits."""
SOURCES = ("builtin", "corpus", "gateway")
BETTER = {"perplexity_ratio": "lower", "same_top": "higher", "kl": "lower", "fallbacks": "lower"}
"""Figures that a limit can be set for → which side of it is good. kl: nats per token; same_top: a share."""


@dataclass(frozen=True)
class Calibration:
    """samples rows of `tokens` tokens each; `corpus` where the source is one."""

    source: str = "builtin"
    corpus: Corpus | None = None
    samples: int = 128
    tokens: int = 512

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "corpus": str(self.corpus.pk) if self.corpus else "",
            "samples": self.samples,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Choice:
    """gate: None = the scheme's own for a model of that size."""

    scheme: Scheme
    options: dict[str, Any] = field(default_factory=dict)
    gate: dict[str, float] | None = None
    keep: Sequence[str] = ()

    def recipe(self, calibration: Calibration) -> dict[str, Any]:
        """As the optimizer's spec_schema has it. `keep` joins what the options keep; scheme and rows are those that
        were asked for, whatever the options say."""
        known = self.scheme.maker.spec_schema().get("properties", {})
        rows = {"samples": calibration.samples, "tokens": calibration.tokens}
        fixed = {"scheme": self.scheme.name, **{name: rows[name] for name in rows if name in known}}
        made = {**self.options, **fixed}
        kept = self.options.get("keep", [HEAD])
        if self.keep and isinstance(kept, list):  # the schema refuses what is no list
            made["keep"] = [*kept, *(each for each in dict.fromkeys(self.keep) if each not in kept)]
        return made

    def limits(self, parameters: int) -> dict[str, float]:
        return self.scheme.gate(parameters) if self.gate is None else self.gate


@dataclass(frozen=True)
class Asked:
    choices: Sequence[Choice]
    device: Device
    tp: int = 1
    calibration: Calibration = Calibration()
