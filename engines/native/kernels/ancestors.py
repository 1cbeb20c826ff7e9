"""Which keys a query sees where a pass verifies trees: `Batch.ancestors`.

All keys before the pass, and of the row's own tokens in it, at most 32, those whose bit is set in the query's word. A
token's place in its row, by which it is stored, is then not its position, which is its depth behind the tokens before
the pass: only a window asks for that. A word of 0 is a plain causal query.
"""

from __future__ import annotations

import triton
import triton.language as tl

MOST = tl.constexpr(32)
"""Tokens of a row that a word has bits for."""


@triton.jit
def ones(word):
    """Bits set in each int32."""
    x = word.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def whole_word(word, q_index):
    """The word of each query, a plain causal one's too."""
    return tl.where(word == 0, (tl.full([1], 2, tl.int32) << tl.minimum(q_index, 31)) - 1, word)


@triton.jit
def last_seen(word, q_index, used):
    """The last of a row's tokens in the pass that any of the queries may see: padding behind a row's nodes sees only
    the row's first token there, and what lies in the cache at its own place is nobody's."""
    return tl.max(tl.where(used & (((word >> tl.minimum(q_index, 31)) & 1) != 0), q_index, 0), 0)


@triton.jit
def sees(k_pos, q_pos, word, context, WINDOW: tl.constexpr, TREE: tl.constexpr):
    """bool [queries, keys]. k_pos [keys], q_pos [queries]: places in the row; word: int32 [queries]; context: tokens of
    the row before the pass. Without TREE the last two are not read, with it q_pos isn't."""
    if TREE:
        token = k_pos - context
        bit = tl.minimum(tl.maximum(token, 0), 31)  # every word has bit 0, and so sees what is before the pass
        seen = ((word[:, None] >> bit[None, :]) & 1) != 0
        if WINDOW > 0:
            near = (token >= 0)[None, :] | (token[None, :] > (ones(word) - 1 - WINDOW)[:, None])
            if WINDOW < MOST:  # else every ancestor is near enough: the number of those between says how far one is
                between = ((word[:, None].to(tl.uint32, bitcast=True) >> bit[None, :].to(tl.uint32)) >> 1).to(tl.int32)
                near = near & ((token < 0)[None, :] | (ones(between) < WINDOW))
            seen = seen & near
    else:
        seen = k_pos[None, :] <= q_pos[:, None]
        if WINDOW > 0:
            seen = seen & (k_pos[None, :] > q_pos[:, None] - WINDOW)
    return seen
