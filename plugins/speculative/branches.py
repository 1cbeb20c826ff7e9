"""A chain with the next best tokens beside each of its nodes: a tree that costs the head no more than the chain."""

from __future__ import annotations

import numpy as np

from engines.native.speculation.tree import NOTHING, Float32, Int32, Tree, chain


def branched(tokens: Int32, chances: Float32, most: int, least: float) -> Tree:
    """tokens: int32 [depths, b], at each depth the b likeliest after the likeliest before, best first; chances: their
    probabilities. At most `most` nodes, the chain first; none whose survival is below `least`, but the first."""
    survival = np.cumprod(chances[:, 0])
    depth = min(int((survival >= least).argmin()) if (survival < least).any() else len(survival), most)
    depth = max(depth, min(1, most, len(tokens)))
    if not depth:
        return NOTHING
    stem = chain(tokens[:depth, 0].copy(), chances[:depth, 0].astype(np.float32))
    above = np.concatenate([[1.0], survival[: depth - 1]])[:, None]
    reach = chances[:depth, 1:] * above
    order = np.argsort(-reach, axis=None, kind="stable")
    order = order[reach.ravel()[order] >= least][: most - depth]
    if not len(order):
        return stem
    at, rank = np.unravel_index(order, reach.shape)
    return Tree(
        np.concatenate([stem.tokens, tokens[at, rank + 1]]),
        np.concatenate([stem.parents, at.astype(np.int32)]),
        np.concatenate([stem.confidence, chances[at, rank + 1].astype(np.float32)]),
        np.zeros(depth + len(order), np.int32),
    )
