"""A smaller model with the same tokenizer goes ahead, one token at a time, and the large one checks what it says.

It has a runner of its own: the engine's loaders, layers, KV blocks and, on a GPU, captured decode steps. A row's
prompt is computed when guesses for it are asked, and the first guess comes when all of it is: an asking computes no
more tokens than a pass of either model may have, for a long prompt must not keep other rows waiting. What the draft
model computed for guesses that held stays valid; behind the first that did not, it goes on from the row's true tokens
(https://arxiv.org/abs/2211.17192, greedy drafts).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.config import ConfigError
from engines.native.memory_table import Sizes
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import NOTHING, Float32, Int32, Tree, chain
from engines.native.step import StepOutput, StepPlan
from plugins.speculative.depth import MOST, Depth
from plugins.speculative.draft_loading import draft_runner
from plugins.speculative.row_blocks import RowBlocks
from plugins.speculative.shares import shares

LEAST_SURVIVAL = 0.2
"""A chain ends at a token that, with all before it, is less likely to hold than this."""


class DraftModel:
    """options: drafts (tokens of a chain; 0 = by `Depth`), least_survival, dtype, kv_cache_bytes (`draft_loading`)."""

    def __init__(self, settings: ProposerSettings, runner: ModelRunner | None = None) -> None:
        """runner: of a draft model that is loaded already. Raises ConfigError for a model that can't draft for the
        target, BadModel for files that can't be read."""
        self._history = settings.history
        self._runner = runner or draft_runner(settings)
        self._drafts = int(settings.options.get("drafts", 0))
        self._depth, self._left = Depth(), 0.0  # when the newest guesses were handed over
        self._least = float(settings.options.get("least_survival", LEAST_SURVIVAL))
        count, sizes = len(settings.history.known), self._runner.sizes
        if sizes.max_num_seqs < count:
            raise ConfigError(f"the draft model has {sizes.max_num_seqs} rows and the engine {count}; give it as many")
        self._blocks = RowBlocks(count, sizes.num_blocks, sizes.block_size)
        target: ModelRunner | None = settings.runner
        self._budget = min(each.sizes.max_batched_tokens for each in (self._runner, target) if each is not None)
        self._entered = np.zeros(count, np.int32)  # true tokens of each row that the runner knows
        self._computed = np.zeros(count, np.int32)  # of them those that have keys and values
        self._guessed: list[Int32] = [_NONE] * count  # guesses behind them that it has computed
        self._proposed: list[Int32] = [_NONE] * count  # all of the newest, until they are judged
        self._seen = np.zeros(count, np.int32)  # tokens known at the last asking
        self._singly = self._runner.device.type == "cuda"  # where one token a row is a captured step
        self._weights = _bytes(self._runner.model.weights)
        self._kv = _bytes(self._runner.model.kv)
        self._steps, self._seconds = 0, 0.0
        self.tokens_behind = 0  # that rows still lacked at the last asking

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        self._forget(row)

    def end(self, row: int) -> None:
        self._forget(row)

    def observe(self, rows: Int32, since: Int32) -> None:
        """`propose` compares what it had guessed with what stands there."""

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        begun = time.perf_counter()
        known = self._history.known[rows]
        self._look_back(rows, known, begun)
        wanted = np.minimum(np.minimum(limit, self._drafts or self._depth.choose()), self._runner.max_model_len - known)
        each = zip(rows.tolist(), known.tolist(), wanted.tolist(), strict=True)
        blocks = [self._room(row, tokens, guesses) for row, tokens, guesses in each]
        able = np.flatnonzero([found is not None for found in blocks])
        trees = [NOTHING] * len(rows)
        if len(able):
            new_blocks = [new for found in blocks for new in found or []]
            ready, output = self._catch_up(rows[able], known[able], new_blocks)
            chosen = able[ready]
            if output is not None:
                chains = self._chains(rows[chosen], known[chosen], wanted[chosen], output)
                for place, tree in zip(chosen.tolist(), chains, strict=True):
                    trees[place] = tree
        self._left = time.perf_counter()
        self._seconds += self._left - begun
        return trees

    def stats(self) -> dict[str, float]:
        """Bytes of weights and KV cache, passes of the draft model and the seconds that they took, free blocks, tokens
        that rows still lacked at the last asking, and how often a guess that was reached has held."""
        return {
            "weights_bytes": self._weights,
            "kv_cache_bytes": self._kv,
            "kv_blocks_free": self._blocks.free,
            "steps": self._steps,
            "seconds": self._seconds,
            "tokens_behind": self.tokens_behind,
            "hold_rate": self._depth.rate,
        }

    def close(self) -> None:
        """Nothing is kept."""

    def check(self) -> list[str]:
        """What is wrong with its blocks; [] if nothing is."""
        return self._blocks.check()

    def _look_back(self, rows: Int32, known: Int32, now: float) -> None:
        """What has become of the newest guesses, and what the round has taken besides."""
        before = self._seen[rows]
        self._seen[rows], grown = known, known - before
        if (before > 0).all() and (grown > 0).all():  # the same requests as at the last asking
            # A round says at most one token more than was guessed; where more have come, so many passes tried nothing.
            rounds = int(grown.max()) if grown.max() > MOST + 1 else 1
            self._depth.passed((now - self._left) / rounds)
        for row, since, said in zip(rows.tolist(), before.tolist(), grown.tolist(), strict=True):
            guess, self._proposed[row] = self._proposed[row][:said], _NONE
            differs = guess != self._history.token_ids[row, since : since + len(guess)]
            self._depth.judged(len(guess), int(differs.argmax()) if differs.any() else len(guess))

    def _forget(self, row: int) -> None:
        self._blocks.release(row)
        self._entered[row] = self._computed[row] = self._seen[row] = 0
        self._guessed[row] = self._proposed[row] = _NONE

    def _room(self, row: int, known: int, wanted: int) -> list[tuple[int, int, list[int]]] | None:
        """None for a row that gets no guess: nothing is wanted, or no block is left. The last guess is not computed."""
        return self._blocks.grow(row, known + wanted - 1) if wanted > 0 and known > 0 else None

    def _chains(self, rows: Int32, known: Int32, wanted: Int32, output: StepOutput) -> list[Tree]:
        """output: the first token of each, drawn."""
        tokens = np.zeros((len(rows), int(wanted.max())), np.int32)
        confidence = np.zeros(tokens.shape, np.float32)
        lengths, survival = np.zeros(len(rows), np.int32), np.ones(len(rows), np.float32)
        live = np.arange(len(rows))
        while True:
            depth = int(lengths[live[0]])
            tokens[live, depth], confidence[live, depth] = output.tokens, _probabilities(output)
            survival[live] *= confidence[live, depth]
            lengths[live] += 1
            live = live[(lengths[live] < wanted[live]) & (survival[live] >= self._least)]
            if not len(live):
                break
            begun = time.perf_counter()
            output = self._pass(rows[live], known[live] + depth, *_singles(len(live)))
            self._depth.drafted(time.perf_counter() - begun)
        for row, line, length in zip(rows.tolist(), tokens, lengths.tolist(), strict=True):
            self._proposed[row] = line[:length].copy()
            self._guessed[row] = self._proposed[row][:-1]
        return [
            chain(line[:length].copy(), chances[:length].copy())
            for line, chances, length in zip(tokens, confidence, lengths.tolist(), strict=True)
        ]

    def _agree(self, rows: Int32, known: Int32) -> Int32:
        """Enter what the rows have said since, and tell how many of their tokens have valid keys and values: int32 [n],
        at least one less than are known, since a pass needs a token to compute."""
        held = np.zeros(len(rows), np.int32)
        late: list[int] = []
        for place, (row, now) in enumerate(zip(rows.tolist(), known.tolist(), strict=True)):
            before, tokens = int(self._entered[row]), self._history.token_ids[row]
            if before:
                late.append(place)
                guessed = self._guessed[row][: now - before]
                differs = guessed != tokens[before : before + len(guessed)]
                agreed = int(differs.argmax()) if differs.any() else len(guessed)
                held[place] = min(int(self._computed[row]) + agreed, now - 1)
            else:
                self._runner.add(row, tokens[:now].tolist(), _GREEDY, now)
            self._guessed[row] = _NONE
        if late:
            self._enter(rows[late], self._entered[rows[late]], known[late])
        self._entered[rows] = known
        return held

    def _enter(self, rows: Int32, since: Int32, until: Int32) -> None:
        """Tokens since[i] … until[i] − 1 of the history, into the runner's rows."""
        owners = np.repeat(rows, until - since).astype(np.int64)
        if not len(owners):
            return
        places = np.concatenate([np.arange(a, b) for a, b in zip(since.tolist(), until.tolist(), strict=True)])
        table = self._runner.rows
        table.append_tokens(table.send(owners), table.send(places), table.send(self._history.token_ids[owners, places]))

    def _catch_up(
        self, rows: Int32, known: Int32, new_blocks: list[tuple[int, int, list[int]]]
    ) -> tuple[NDArray[np.int64], StepOutput | None]:
        """Compute what the rows know, at most `_budget` tokens of it: the places of those that have got all, and what
        is drawn behind each of these; None where there is none."""
        held = self._agree(rows, known)
        count, ready = shares(known - held, self._budget)
        self._computed[rows] = held + count
        self.tokens_behind = int((known - held - count).sum())
        if not self._singly:
            own = np.flatnonzero(count)
            sample = np.isin(own, ready)
            output = self._pass(rows[own], held[own], count[own], sample, new_blocks)
            output.tokens, output.logprobs = output.tokens[sample], output.logprobs[sample]
            return ready, output if len(ready) else None
        count[ready] -= 1
        if len(own := np.flatnonzero(count)):
            # One token each is a captured step on a GPU, which draws as well: over the next, which is known.
            single = bool((count[own] == 1).all())
            self._pass(rows[own], held[own], count[own], np.full(len(own), single), new_blocks)
            new_blocks = []
            if single:
                self._enter(rows[own], held[own] + 1, held[own] + 2)
        if not len(ready):
            return ready, None
        return ready, self._pass(rows[ready], known[ready] - 1, *_singles(len(ready)), new_blocks)

    def _pass(
        self,
        rows: Int32,
        start: Int32,
        count: Int32,
        sample: NDArray[np.bool_],
        new_blocks: list[tuple[int, int, list[int]]] | None = None,
    ) -> StepOutput:
        self._steps += 1
        return self._runner.launch(StepPlan(rows, start, count, sample, new_blocks or [])).wait()


def _singles(rows: int) -> tuple[Int32, NDArray[np.bool_]]:
    """One token of each, behind which one is drawn."""
    return np.ones(rows, np.int32), np.ones(rows, np.bool_)


_GREEDY = SamplingParams(temperature=0, logprobs=0)
_NONE: Int32 = np.zeros(0, np.int32)


def _probabilities(output: StepOutput) -> Float32:
    return np.exp(output.logprobs)


def _bytes(things: object) -> int:
    """Of the tensors of a model's part, those that a library has packed included."""
    found = Sizes()
    with torch.inference_mode():
        found.add(things)
    return found.bytes + found.packed
