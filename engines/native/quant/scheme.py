"""What quantized means for one linear layer, whoever made the checkpoint. Plain data, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

Kind = str
"""Of numbers: "int", or "float" (8 bits: e4m3fn)."""


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """strategy: what shares one scale: "tensor", "channel" (an output), "group" (`group` inputs of one output), "block"
    (`block`: outputs × inputs). actorder: "" or "static" (groups lie in the order of the inputs), "group" (the inputs
    name their groups: QuantizedWeight.groups_of)."""

    kind: Kind = "int"
    bits: int = 8
    strategy: str = "channel"
    group: int = 0
    block: tuple[int, int] | None = None
    symmetric: bool = True
    actorder: str = ""

    def __str__(self) -> str:
        """As people write it: int4 group 128 asymmetric, fp8 per channel, fp8 block 128 × 128."""
        sharing = {"group": f"group {self.group}", "tensor": "per tensor", "channel": "per channel"}
        if self.block is not None:
            sharing["block"] = f"block {self.block[0]} × {self.block[1]}"
        parts = [f"{'fp' if self.kind == 'float' else 'int'}{self.bits}", sharing[self.strategy]]
        if not self.symmetric:
            parts.append("asymmetric")
        if self.actorder == "group":
            parts.append("act-order")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class ActivationScheme:
    """dynamic: scales come from the values at run time; else from the checkpoint (QuantizedWeight.input_scale).
    strategy: "token", "tensor", or "group" (`group` inputs of one token). Symmetric always."""

    kind: Kind = "int"
    bits: int = 8
    dynamic: bool = True
    strategy: str = "token"
    group: int = 0


@dataclass(frozen=True, slots=True)
class LinearScheme:
    """activations: None where they stay in 16 bits."""

    weight: WeightScheme
    activations: ActivationScheme | None = None

    def __str__(self) -> str:
        """As people write it: int8 per channel, int8 activations."""
        if self.activations is None:
            return str(self.weight)
        kind = "fp" if self.activations.kind == "float" else "int"
        return f"{self.weight}, {kind}{self.activations.bits} activations"


@dataclass(frozen=True, slots=True)
class KvScheme:
    """strategy: "tensor" (one scale a layer for keys and one for values) or "head". Symmetric, from the checkpoint."""

    kind: Kind = "float"
    bits: int = 8
    strategy: str = "tensor"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which modules get `scheme` (None: stay as they are). targets: names, `re:` patterns, or class names of Hugging
    Face's modules ("Linear", "Embedding"). layout: how their tensors are stored, a key of packing.LAYOUTS."""

    targets: tuple[str, ...]
    scheme: LinearScheme | None
    layout: str


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """method: "compressed-tensors", "gptq", "awq", "fp8" or "gguf". rules: an exact name goes before a pattern, a
    pattern before a class; among equals the first. ignore: targets that no rule applies to."""

    method: str
    rules: tuple[Rule, ...] = ()
    ignore: tuple[str, ...] = ()
    kv: KvScheme | None = None

    def of(self, module: str) -> LinearScheme | None:
        """module: as in the checkpoint ("model.layers.0.self_attn.q_proj"). None: kept in 16 bits."""
        rule = self.rule(module)
        return None if rule is None else rule.scheme

    def rule(self, module: str) -> Rule | None:
        """The rule that gives the module its scheme."""
        if any(_rank(target, module) is not None for target in self.ignore):
            return None
        best: tuple[int, Rule] | None = None
        for rule in self.rules:
            for target in rule.targets:
                rank = _rank(target, module)
                if rank is not None and (best is None or rank < best[0]):
                    best = rank, rule
        return None if best is None or best[1].scheme is None else best[1]


def _rank(target: str, module: str) -> int | None:
    """How exactly the target means the module: 0 by name, 1 by pattern, 2 by class; None: not at all."""
    if target == module:
        return 0
    if target.startswith("re:"):
        return 1 if re.match(target.removeprefix("re:"), module) else None
    return 2 if target == class_of(module) else None


def class_of(module: str) -> str:
    """The class that Hugging Face's code has for the module: checkpoints name classes, and hold tensors only."""
    return "Embedding" if module.rpartition(".")[2] in ("embed_tokens", "word_embeddings") else "Linear"
