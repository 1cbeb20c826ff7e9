"""Factors of input channels, folded into what makes the channels: a norm, the rows of v, the rows of up. The layer's
function in floating point stays what it is.

    input_norm → q, k, v      post_norm → gate, up      v → o (query heads of a group share their value head's factors)
    up → down                 one norm of a parallel block → q, k, v, gate, up
"""

from __future__ import annotations

import torch

from plugins.quantization.model import Parts, Source


class Folds:
    """Of one model's layers; changes the tensors of `parts` by replacing them."""

    def __init__(self, source: Source) -> None:
        self._source, self._config = source, source.config
        self.parallel = source.config.form == "parallel"

    def readers(self, group: str) -> tuple[str, ...]:
        """Products that read what `group` reads, so that they share its factors."""
        return ("qkv", "gate_up") if self.parallel and group in ("qkv", "gate_up") else (group,)

    def shared(self, group: str, channels: torch.Tensor, greatest: bool = False) -> torch.Tensor:
        """One value for each channel that has a factor of its own, of one for each input of the product: the mean, or
        the greatest, over the query heads that read one value head."""
        if group != "o":
            return channels
        heads = channels.view(self._config.kv_heads, -1, self._config.head_dim)
        return (heads.amax(1) if greatest else heads.mean(1)).flatten()

    def spread(self, group: str, factors: torch.Tensor) -> torch.Tensor:
        """The other way: one for each input of the product."""
        if group != "o":
            return factors
        heads = factors.view(self._config.kv_heads, 1, self._config.head_dim)
        return heads.expand(-1, self._config.heads // self._config.kv_heads, -1).flatten()

    def apply(self, parts: Parts, group: str, factors: torch.Tensor) -> None:
        """Divide the inputs of `group` by factors (as `shared` has them), multiply its weights by them."""
        if group in ("qkv", "gate_up"):
            norm = "input_norm" if group == "qkv" or self.parallel else "post_norm"
            offset = self._config.norm_offset
            parts[f"{norm}.weight"] = (parts[f"{norm}.weight"] + offset) / factors - offset
        elif group == "o":
            self._divide(parts, "v", "qkv", factors)
        else:
            self._divide(parts, "up", "gate_up", factors)
        wide = self.spread(group, factors)
        for reader in self.readers(group):
            for member in self._source.members(reader):
                parts[f"{member}.weight"] = parts[f"{member}.weight"] * wide

    @staticmethod
    def _divide(parts: Parts, own: str, whole: str, factors: torch.Tensor) -> None:
        """The rows that make the channels: of v and up, or the last of what holds them."""
        name = own if f"{own}.weight" in parts else whole
        for tensor in (f"{name}.weight", f"{name}.bias"):
            if tensor in parts:
                changed = parts[tensor].clone()
                rows = changed[-len(factors) :]
                rows.div_(factors[:, None] if rows.ndim == 2 else factors)
                parts[tensor] = changed
