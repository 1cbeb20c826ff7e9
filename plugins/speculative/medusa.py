"""Medusa heads (https://arxiv.org/abs/2401.10774): each guesses one token further ahead from the target's last hidden
state: residual blocks x + silu(W x + b), and a product with the vocabulary.

The head number i is right about token i, counted from the first that nobody knows, whatever the heads before it say:
so beside the likeliest token of each stand the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from engines.native.layers.linear import Linear, method_for
from engines.native.loader.hf_fields import Json, number
from engines.native.loader.tensors import TensorInfo
from engines.native.loader.weights import Weights
from engines.native.memory_table import Sizes
from engines.native.models.tensors import activation_dtype
from engines.native.runner import ModelRunner
from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree
from plugins.speculative.branches import branched
from plugins.speculative.eagle_head import probabilities
from plugins.speculative.head_files import Shape, as_files, checked, given, same_size, tensors_of

BRANCHES, LEAST_SURVIVAL = 4, 0.02


class MedusaHead:
    """x [t, hidden] → logits [t, vocab]."""

    def __init__(self, blocks: Sequence[Linear], out: Linear) -> None:
        self.blocks, self.out = blocks, out

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + F.silu(block(x))
        return self.out(x)


class Medusa:
    """options: branches (likeliest tokens of each head, 1 = a chain alone), least_survival."""

    def __init__(self, settings: ProposerSettings) -> None:
        """Raises ConfigError, with both numbers, for heads of another model; BadModel for their files."""
        target: ModelRunner = settings.runner
        self._history, self._target = settings.history, target
        self._heads = load_heads(settings)
        self._branches = min(int(settings.options.get("branches", BRANCHES)), settings.vocab) if settings.trees else 1
        self._least = float(settings.options.get("least_survival", LEAST_SURVIVAL))
        self._hidden = target.keep((target.config.layers,), target.config.hidden, lambda hidden: hidden)
        self._weights, self._kept = Sizes(), Sizes()
        self._weights.add([[*head.blocks, head.out] for head in self._heads])
        self._kept.add(self._hidden)

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        """What the target keeps of its tokens is all that is read."""

    def end(self, row: int) -> None:
        """Nothing is kept of a row."""

    def observe(self, rows: Int32, since: Int32) -> None:
        """The target has kept what it computed."""

    def stats(self) -> dict[str, float]:
        """Bytes of the heads, and of the hidden states."""
        return {"weights_bytes": self._weights.bytes + self._weights.packed, "features_bytes": self._kept.bytes}

    def close(self) -> None:
        """Nothing is kept."""

    @torch.inference_mode()
    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        known = self._history.known[rows]
        chosen, trees = np.flatnonzero((known >= 2) & (limit > 0)), [NOTHING] * len(rows)
        if not len(chosen):
            return trees
        # The last token is drawn and not computed: the state that it was drawn from is that of the one before.
        table, size = self._target.rows, self._target.block_size
        held, at = (table.send(each[chosen].astype(np.int64)) for each in (rows, known - 2))
        hidden = self._hidden[table.block_tables[held, at // size].long(), 0, at % size]
        depths = min(len(self._heads), int(limit[chosen].max()))
        found = [probabilities(head(hidden), self._branches) for head in self._heads[:depths]]
        chances = torch.stack([chance for chance, _ in found], 1).cpu().numpy()
        tokens = torch.stack([ids for _, ids in found], 1).cpu().numpy().astype(np.int32)
        for place, line in enumerate(chosen.tolist()):
            trees[line] = branched(tokens[place], chances[place], min(int(limit[line]), MAX_NODES), self._least)
        return trees


def load_heads(settings: ProposerSettings) -> list[MedusaHead]:
    """Of a folder in the form of the paper's authors (head.block.linear.weight), or of vLLM's (blocks, lm_heads).
    Raises ConfigError, BadModel."""
    target: ModelRunner = settings.runner
    said, paths = given(settings)
    hidden, vocab, device = target.config.hidden, settings.vocab, target.device
    same_size("hidden size", number(said, "hidden_size", hidden), hidden)
    same_size("vocabulary", number(said, "vocab_size", vocab), vocab)
    found = {name.removeprefix("medusa_head."): info for name, info in tensors_of(paths).items()}
    blocks, heads = number(said, "medusa_num_layers", 1), number(said, "medusa_num_heads", _heads_in(found, said))
    names = _names(heads, blocks, hidden, vocab, found)
    optional = frozenset(name for name in names if name.endswith(".bias"))
    tensors = checked(found, names, optional)
    dtype = "float32" if target.sizes.dtype == "int8" else target.sizes.dtype
    kind, method = activation_dtype(dtype), method_for(dtype, device.type)
    made = []
    with Weights(as_files(paths, target.config, tensors)) as weights, torch.inference_mode():
        for head in range(heads):
            products = []
            for block in range(blocks):
                weight, bias = f"heads.{head}.{block}.weight", f"heads.{head}.{block}.bias"
                own = weights.read(bias, kind, device) if bias in tensors else None
                products.append(method(weights.read(weight, kind, device), own))
            made.append(MedusaHead(products, method(weights.read(f"heads.{head}.out.weight", kind, device), None)))
    return made


def _heads_in(found: dict[str, TensorInfo], said: Json) -> int | None:
    """Counted, where config.json does not say."""
    numbers = [int(name.split(".")[0]) for name in found if name.split(".")[0].isdigit()]
    return max(numbers) + 1 if numbers else None


def _names(
    heads: int, blocks: int, hidden: int, vocab: int, found: dict[str, TensorInfo]
) -> dict[str, tuple[str, Shape]]:
    listed = any(name.startswith("lm_heads.") for name in found)
    block_name = "blocks.{}.layers.{}" if listed else "{}.{}.linear"
    out_name = "lm_heads.{0}" if listed else "{0}.{1}"
    names: dict[str, tuple[str, Shape]] = {}
    for head in range(heads):
        for block in range(blocks):
            theirs = block_name.format(head, block)
            names[f"heads.{head}.{block}.weight"] = (f"{theirs}.weight", (hidden, hidden))
            names[f"heads.{head}.{block}.bias"] = (f"{theirs}.bias", (hidden,))
        names[f"heads.{head}.out.weight"] = (f"{out_name.format(head, blocks)}.weight", (vocab, hidden))
    return names
