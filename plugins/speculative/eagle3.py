"""EAGLE-3: one layer that goes on from the target's own hidden states, a token at a time.

The target keeps a feature of each token that it computes (`ModelRunner.keep`). The head's keys and values of tokens
that were said are always made of these: what it had made of its own guesses is written over when the next guess is
asked (vllm#14649), so nothing of a guess outlives it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.memory_table import Sizes
from engines.native.ops.base import Batch
from engines.native.ops.spans import spans_of
from engines.native.runner import ModelRunner
from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree
from engines.native.state import pinned
from plugins.speculative.branches import branched
from plugins.speculative.eagle_head import EagleHead, probabilities
from plugins.speculative.row_blocks import RowBlocks
from plugins.speculative.shares import shares

DRAFTS, BRANCHES, LEAST_SURVIVAL = 5, 3, 0.05
BATCHED = {"cpu": 512, "cuda": 4096}
"""Tokens of a pass over what was said, one at each asking; no more than of a scheduler's step."""


class Eagle3:
    """options: drafts (most tokens of a chain), branches (likeliest tokens at each, 1 = a chain alone), least_survival,
    kv_tokens (of its KV cache; 0 = as many as the target's)."""

    def __init__(self, settings: ProposerSettings) -> None:
        """Raises ConfigError, with both numbers, for a head of another model; BadModel for its files."""
        target: ModelRunner = settings.runner
        options, size, rows = settings.options, target.block_size, len(settings.history.known)
        asked = -(-int(options.get("kv_tokens", 0)) // size) + 1
        blocks = asked if asked > 1 else min(target.num_blocks, rows * -(-target.max_model_len // size) + 1)
        self._history, self._target = settings.history, target
        self._head = EagleHead(settings, blocks)
        config = self._head.config
        self._features = target.keep(config.streams, config.layer.hidden, self._head.fc)
        self._drafts = int(options.get("drafts", DRAFTS))
        self._branches = min(int(options.get("branches", BRANCHES)), config.draft_vocab) if settings.trees else 1
        self._least = float(options.get("least_survival", LEAST_SURVIVAL))
        self._blocks = RowBlocks(rows, blocks, size)
        self._table = np.zeros((rows, -(-self._head.positions // size)), np.int32)  # each row's blocks
        self._read = np.zeros(rows, np.int32)  # tokens whose keys and values come of the target's features
        self._budget = max(min(BATCHED[target.device.type], target.sizes.max_batched_tokens), rows)
        self.tokens_behind = 0  # that rows still lacked at the last asking
        self._bytes = {"weights": Sizes(), "kv_cache": Sizes(), "features": Sizes()}
        self._bytes["weights"].add(self._head.parts)
        self._bytes["kv_cache"].add(self._head.pools)
        self._bytes["features"].add(self._features)

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        self.end(row)

    def end(self, row: int) -> None:
        self._blocks.release(row)
        self._table[row], self._read[row] = 0, 0

    def observe(self, rows: Int32, since: Int32) -> None:
        """The history has grown by itself, and the target has kept its features."""

    def stats(self) -> dict[str, float]:
        """Bytes of its layer's weights, of its KV cache and of the features; free blocks; tokens that rows still lacked
        at the last asking."""
        found = {f"{name}_bytes": float(sizes.bytes + sizes.packed) for name, sizes in self._bytes.items()}
        return {**found, "kv_blocks_free": self._blocks.free, "tokens_behind": self.tokens_behind}

    def close(self) -> None:
        """Nothing is kept."""

    def check(self) -> list[str]:
        """What is wrong with its blocks; [] if nothing is."""
        return self._blocks.check()

    @torch.inference_mode()
    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        known = self._history.known[rows]
        # Of a chain of k tokens the head reads the k − 1 first, each beside the token before it.
        wanted = np.minimum(np.minimum(limit, self._drafts), self._head.positions + 2 - known)
        able = [
            tokens >= 2 and depth > 0 and self._grow(row, tokens + depth - 2)
            for row, tokens, depth in zip(rows.tolist(), known.tolist(), wanted.tolist(), strict=True)
        ]
        asked, trees = np.flatnonzero(able), [NOTHING] * len(rows)
        if not len(asked):
            return trees
        ready, first = self._catch_up(rows[asked], known[asked])
        if first is not None:
            chosen = asked[ready]
            tokens, chances = self._chains(rows[chosen], known[chosen], wanted[chosen], *first)
            for place, line in enumerate(chosen.tolist()):
                depth, most = int(wanted[line]), min(int(limit[line]), MAX_NODES)
                trees[line] = branched(tokens[place, :depth], chances[place, :depth], most, self._least)
        return trees

    def _grow(self, row: int, tokens: int) -> bool:
        new = self._blocks.grow(row, tokens)
        for _, first, ids in new or []:
            self._table[row, first : first + len(ids)] = ids
        return new is not None

    def _chains(
        self, rows: Int32, known: Int32, wanted: Int32, logits: torch.Tensor, feature: torch.Tensor
    ) -> tuple[Int32, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """logits, feature: behind the last token of each. int32 and float32 [n, depths, branches]; behind a row's
        wanted depth whatever."""
        every = np.arange(len(rows))
        live, depth = every, 0
        device, shape = self._target.device, (len(rows), int(wanted.max()), self._branches)
        tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        chances = torch.zeros(shape, device=device)
        while True:
            at = self._send(live)
            found, ids = probabilities(logits, self._branches)
            tokens[at, depth], chances[at, depth] = self._head.targets[ids], found
            depth += 1
            keep = np.flatnonzero(wanted[live] > depth)
            if not len(keep):
                break
            index = self._send(keep)
            live = live[keep]
            batch = self._batch(rows[live], known[live] + depth - 2, np.ones(len(live), np.int32), None)
            result = self._head(tokens[self._send(live), depth - 1, 0], feature[index], batch)
            assert result is not None  # all are asked for
            logits, feature = result
        return tokens.cpu().numpy().astype(np.int32), chances.cpu().numpy()

    def _catch_up(
        self, rows: Int32, known: Int32
    ) -> tuple[NDArray[np.int64], tuple[torch.Tensor, torch.Tensor] | None]:
        """Read what was said, at most `_budget` tokens of it: the places of the rows that have got all, and logits and
        feature behind the last token of each of these; None where there is none."""
        read = np.minimum(self._read[rows], known - 2)
        count, ready = shares(known - 1 - read, self._budget)
        self._read[rows] = read + count
        self.tokens_behind = int((known - 1 - read - count).sum())
        own = np.flatnonzero(count)
        last = (np.cumsum(count) - 1)[ready].astype(np.int64)
        return ready, self._said(rows[own], read[own], count[own], last)

    def _said(
        self, rows: Int32, start: Int32, count: Int32, index: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        owners, places = _flat(rows, start, count)
        ids = self._send(self._history.token_ids[owners, places + 1].astype(np.int64))
        held, at = self._send(owners), self._send(places)
        size = self._target.block_size
        blocks = self._target.rows.block_tables[held, at // size].long()
        feature = self._features[blocks, 0, at % size]
        return self._head(ids, feature, self._batch(rows, start, count, index))

    def _batch(
        self,
        rows: Int32,
        start: Int32,
        count: Int32,
        index: np.ndarray[tuple[int], np.dtype[np.int64]] | None,
    ) -> Batch:
        """Of the head's own KV cache. index: as `Batch.logits_index`."""
        size, longest = self._target.block_size, int((start + count).max())
        owners, places = _flat(rows, start, count)
        positions = self._send(places)
        ends = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(count, out=ends[1:])
        return Batch(
            token_ids=positions,  # read by nobody: the head has its embedding from elsewhere
            positions=positions,
            slots=self._send(self._table[owners, places // size].astype(np.int64) * size + places % size),
            cu_query=self._send(ends),
            seq_lens=self._send((start + count).astype(np.int32)),
            block_tables=self._send(self._table[rows, : -(-longest // size)]),
            logits_index=None if index is None else self._send(index),
            max_query=int(count.max()),
            max_seq=longest,
            spans=spans_of(start, count),
        )

    def _send(self, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
        device = self._target.device
        return pinned(np.ascontiguousarray(values), device).to(device, non_blocking=True)


def _flat(
    rows: Int32, start: Int32, count: Int32
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Of each token its row and its place in it, int64 [t]."""
    owners = np.repeat(rows, count).astype(np.int64)
    first = np.repeat(start - (np.cumsum(count) - count), count)
    return owners, (first + np.arange(len(owners))).astype(np.int64)
