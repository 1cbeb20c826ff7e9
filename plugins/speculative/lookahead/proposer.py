"""The proposer of `plugins.speculative.lookahead`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree
from plugins.speculative.lookahead.branches import FLOOR, Branches, grow
from plugins.speculative.lookahead.keeper import INTERVAL, Keeper
from plugins.speculative.lookahead.local import Local
from plugins.speculative.lookahead.matches import LONGEST_WORDS, Found, Match, Text, find
from plugins.speculative.lookahead.segments import flags_of
from plugins.speculative.lookahead.snapshot import Snapshot
from plugins.speculative.lookahead.survival import CLASSES, LONGEST, RATE, RATE_ALL, RAW, Survival, Weights, view_of
from plugins.speculative.lookahead.tenants import Tenants

ROW_FLOOR, MOST_FLOOR = 0.002, 0.2
"""Per row that asks, and at most: survival under which nodes are not named. A full batch has no room for them."""
BROAD, BROAD_FLOOR = 5, 0.05
"""Nodes from which, and a floor up to which, unlikely ones are looked for."""
BYTES = 256 << 20
"""Of all stores together, unless option `lookahead_bytes` says otherwise."""

CHAIN, SOURCE = np.arange(MAX_NODES, dtype=np.int32), np.zeros(MAX_NODES, np.int32)
CHAIN.flags.writeable = SOURCE.flags.writeable = False


class _Row:
    """What is kept of a request while it has its row."""

    __slots__ = ("carried", "guess", "local", "matches", "prompt_len", "salt", "weights")

    def __init__(self, salt: str, prompt_len: int, local: Local, weights: Weights) -> None:
        self.salt, self.prompt_len, self.local = salt, prompt_len, local
        self.weights = weights
        self.matches: list[Match] = []  # of the newest guess
        self.guess: Branches | None = None
        self.carried: list[Found] = []  # matches that have held


class Lookahead:
    """Raises ValueError for a cap that holds no store, and for a history that is not contiguous."""

    def __init__(self, settings: ProposerSettings) -> None:
        self._history, self._trees = settings.history, settings.trees
        if not self._history.token_ids.flags.c_contiguous:
            raise ValueError("the history's token_ids must lie row by row: they are read in place")
        self._width = self._history.token_ids.shape[1]
        self._ints = self._history.token_ids.reshape(-1).data
        self._raw = self._ints.cast("B")
        self._tenants = Tenants(int(settings.options.get("lookahead_bytes", BYTES)))
        self._flags = flags_of(settings.options.get("pieces") or [])
        self._survival = Survival()
        self._rows: dict[int, _Row] = {}
        self._identity = settings.identity
        interval = float(settings.options.get("lookahead_snapshot_s", INTERVAL))
        self._keeper = Keeper(settings.folder, self._snapshot, interval)
        earlier = self._keeper.read(settings.identity, CLASSES, settings.vocab)
        if earlier is not None:
            self._survival.load(earlier.hits, earlier.trials)
            self._tenants.fill(earlier.texts)

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        self._tenants.work()
        self._tenants.touch(salt)
        weights = Weights(list(self._survival.weights.log_odds))
        self._rows[row] = _Row(salt, prompt_len, Local(self._history, row, self._flags), weights)

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        known = self._history.known[rows].tolist()
        floor = min(MOST_FLOOR, max(FLOOR, len(rows) * ROW_FLOOR))
        guesses = [
            self._guess(row, count, min(most, MAX_NODES), floor)
            for row, count, most in zip(rows.tolist(), known, limit.tolist(), strict=True)
        ]
        return _trees(guesses)

    def _guess(self, row: int, known: int, limit: int, floor: float) -> Branches | None:
        state = self._rows.get(row)
        if state is None:
            return None
        state.guess, state.matches = None, []
        if limit <= 0:
            return None
        text = Text(self._ints, self._raw, row * self._width, known)
        store, broad = self._tenants.get(state.salt), limit >= BROAD and floor < BROAD_FLOOR
        state.matches = find(text, state.local, store, state.carried, limit + 1, broad=broad)
        if state.matches:
            rates, odds = self._survival.rates, state.weights.factors
            state.guess = grow(state.matches, limit, rates, odds, trees=self._trees, floor=floor)
        return state.guess

    def observe(self, rows: Int32, since: Int32) -> None:
        self._tenants.work()
        self._keeper.tick()
        known = self._history.known[rows].tolist()
        for row, end in zip(rows.tolist(), known, strict=True):
            state, base = self._rows.get(row), row * self._width
            if state is None:  # ended meanwhile
                continue
            new = self._ints[base + state.local.linked : base + end].tolist()  # as `since` says
            state.carried = []
            if state.guess is not None:
                if state.guess.tokens:
                    self._learn(state, state.guess, new)
                count = len(new)
                for length, source, position, view, follows in state.matches:
                    if follows[:count] == new:
                        longer = min(LONGEST, length + count)
                        view = view if longer <= LONGEST_WORDS else RAW
                        state.carried.append((longer, -source, position + count, view))
            state.guess, state.matches = None, []
            state.local.extend(self._raw, base, end, new)

    def _learn(self, state: _Row, guess: Branches, new: list[int]) -> None:
        """Count which guesses held, along the path that was said; the likeliest of each fork moves the weights."""
        learn, tokens, parents, kinds = self._survival.learn, guess.tokens, guess.parents, guess.kinds
        node, error = 0, 0.0
        for token in new:
            reached = 0
            leading = True
            for child in range(node, len(tokens)):
                if parents[child] == node:
                    held = tokens[child] == token
                    learn(kinds[child], held)
                    if leading:
                        error += held - guess.confidence[child]
                        leading = False
                    if held:
                        reached = child + 1
                    if guess.chain:
                        break
            if not reached:
                break
            node = reached
        view = view_of(kinds[0])
        state.weights.move(view, error, RATE)
        self._survival.weights.move(view, error, RATE_ALL)

    def end(self, row: int) -> None:
        state = self._rows.pop(row, None)
        if state is not None:
            known = int(self._history.known[row])
            self._tenants.add(state.salt, self._history.token_ids[row, :known].copy())

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._identity, list(self._survival.hits), list(self._survival.trials), self._tenants.texts())

    def stats(self) -> dict[str, float]:
        return self._tenants.stats()

    def close(self) -> None:
        for row in list(self._rows):
            self.end(row)
        while self._tenants.work():
            pass
        self._keeper.close()


def _trees(guesses: list[Branches | None]) -> list[Tree]:
    """Three arrays for all of them, of which each tree has its stretch: many small ones would take longer."""
    if len(guesses) == 1:
        guess = guesses[0]
        if guess is None or not guess.tokens:
            return [NOTHING]
        count = len(guess.tokens)
        straight = CHAIN[:count] if guess.chain else np.array(guess.parents, np.int32)
        sure = np.array(guess.confidence, np.float32)
        return [Tree(np.array(guess.tokens, np.int32), straight, sure, SOURCE[:count])]
    full = [guess for guess in guesses if guess is not None]
    tokens = np.array(list(chain.from_iterable(guess.tokens for guess in full)), np.int32)
    parents = np.array(list(chain.from_iterable(guess.parents for guess in full)), np.int32)
    confidence = np.array(list(chain.from_iterable(guess.confidence for guess in full)), np.float32)
    trees: list[Tree] = []
    start = 0
    for guess in guesses:
        if guess is None or not guess.tokens:
            trees.append(NOTHING)
            continue
        end = start + len(guess.tokens)
        trees.append(Tree(tokens[start:end], parents[start:end], confidence[start:end], SOURCE[: end - start]))
        start = end
    return trees
