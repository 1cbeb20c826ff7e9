"""What the scheduler hands to the runner, and what it gets back. One StepPlan is one forward pass.

`row` is a request's slot in the runner's tables, held from admission to ending. A plan is only row numbers and
counts: token ids, positions and sampling parameters live in the rows. The order of rows in a plan is the order
in the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engines.native.request import SamplingParams

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Of the rows that follow a grammar, in a step. places: int64 [k], which of the rows that sample; bits: int32
    [k, words], where bit t % 32 of word t // 32 is set if token t may be drawn."""

    places: NDArray[np.int64]
    bits: Int32

    def of(self, chosen: NDArray[np.int64]) -> TokenMasks | None:
        """As seen among the sampling rows `chosen` only; None if none of them has a mask."""
        own = np.isin(self.places, chosen)
        if not own.any():
            return None
        return TokenMasks(np.searchsorted(chosen, self.places[own]), self.bits[own])


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the first d rows of a pass try out, each behind its last token. tokens, parents: int32 [d, w], of which
    nodes [d], int32, are real; the rest is 0. parents: 0 is the row's last token, j > 0 its node j − 1; a parent comes
    before its children, the most likely chain first. chains: no row has a fork."""

    tokens: Int32
    parents: Int32
    nodes: Int32
    chains: bool

    @property
    def width(self) -> int:
        return int(self.tokens.shape[1])


@dataclass(frozen=True, slots=True)
class Verified:
    """What a pass with drafts has said. tokens: int32 [n, 1 + w], drawn one after the other along the guesses that
    held; counts: int32 [n], how many they are, 0 where a row draws nothing."""

    tokens: Int32
    counts: Int32


@dataclass(slots=True)
class StepPlan:
    """One forward pass over n rows. Earlier passes may still be on their way when it is launched.

    rows: int32 [n]; start: int32 [n], tokens already in the KV cache; count: int32 [n], tokens to compute now;
    sample: bool [n], true where start + count reaches the row's last token, so that a next token is drawn.
    new_blocks: (row, index of the first block in the row's table, block ids) to append before the pass.
    late: what its grammars allow is known only when the pass before it is committed. Its `masks` stay None, `launch`
    computes up to the logits, and `Pending.draw` brings the masks.
    drafts: count includes them, and a token is drawn behind each. No other pass is on its way then.
    `masks` count the tokens that are drawn: behind a row's last token, then behind its nodes.
    """

    rows: Int32
    start: Int32
    count: Int32
    sample: NDArray[np.bool_]
    new_blocks: list[tuple[int, int, list[int]]] = field(default_factory=list)
    masks: TokenMasks | None = None
    late: bool = False
    drafts: Drafts | None = None

    @property
    def tokens(self) -> int:
        return int(self.count.sum())


@dataclass(slots=True)
class StepOutput:
    """tokens: int32 [n], −1 where none was sampled; logprobs: float32 [n] of the sampled token (NaN if not asked).

    top: per batch position, (ids, logprobs) of the k most likely tokens, where the row asked for logprobs.
    verified: of a pass with drafts, in place of `tokens`; logprobs is then float32 [n × (1 + w)], and `top` by place in
    it: token j of batch position i has place i × (1 + w) + j.
    prompt_logprobs: per batch position, (first position scored, float32 values, top ids per position), where asked.
    """

    tokens: Int32
    logprobs: Float32
    top: dict[int, tuple[list[int], list[float]]] = field(default_factory=dict)
    prompt_logprobs: dict[int, tuple[int, list[float], list[tuple[list[int], list[float]]]]] = field(
        default_factory=dict
    )
    verified: Verified | None = None


class Pending(Protocol):
    """A pass on its way."""

    def draw(self, masks: TokenMasks | None) -> None:
        """Of a late pass, once and before `wait`: draw its tokens. Raises what the draw raised."""
        ...

    def wait(self) -> StepOutput:
        """What it brought. Raises what the pass raised."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A pass that was over when `launch` returned, as on a CPU."""

    output: StepOutput

    def draw(self, masks: TokenMasks | None) -> None:
        """Nothing is late where no pass is on its way when the next is planned."""
        raise ValueError("this pass has drawn its tokens")

    def wait(self) -> StepOutput:
        return self.output


class Runner(Protocol):
    """Owns the model, the KV pool and the row tables. The scheduler owns which row and which block is whose.

    depth: passes that may be on their way at once; 1 where launching one computes it.
    host_blocks: KV blocks that fit in its host memory, 0 = none.
    """

    depth: int
    num_blocks: int
    host_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int

    def add(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        """Fill a row: history, parameters, empty block table. Tokens from `prompt_len` on are output tokens drawn
        before a preemption: presence and frequency penalties and min_tokens count them."""
        ...

    def launch(self, plan: StepPlan) -> Pending:
        """Start the pass. It appends each sampled token to its row; passes run in the order of launch."""
        ...

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copy KV blocks (source, destination), before the next pass."""
        ...

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        """Copy KV blocks to host memory (block, host block), after the passes launched before, before the next."""
        ...

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        """And back (host block, block), after the swaps asked before, before the next pass."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was asked is done."""
        ...
