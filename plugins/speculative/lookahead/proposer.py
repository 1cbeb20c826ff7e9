"""The proposer of `plugins.speculative.lookahead`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.tree import MAX_NODES, NOTHING, Int32, Tree
from plugins.speculative.lookahead.branches import FLOOR, Branches, grow
from plugins.speculative.lookahead.keeper import INTERVAL, Keeper
from plugins.speculative.lookahead.local import Local
from plugins.speculative.lookahead.matches import LONGEST_WORDS, Found, Match, Text, find
from plugins.speculative.lookahead.segments import flags_of
from plugins.speculative.lookahead.snapshot import Snapshot
from plugins.speculative.lookahead.survival import CLASSES, LONGEST, RAW, Survival, Weights
from plugins.speculative.lookahead.tenants import Tenants

ROW_FLOOR, MOST_FLOOR = 0.002, 0.2
"""Per row that asks, and at most: survival under which nodes are not named. A full batch has no room for them."""
BROAD, BROAD_FLOOR = 5, 0.05
"""Nodes from which, and a floor up to which, unlikely ones are looked for."""
BYTES = 256 << 20
"""Of all stores together, unless option `lookahead_bytes` says otherwise."""

SOURCE = np.zeros(MAX_NODES, np.int32)
SOURCE.flags.writeable = False


class _Row:
    """What is kept of a request while it has its row."""

    __slots__ = ("carried", "guess", "local", "matches", "salt", "text", "weights")

    def __init__(self, salt: str, text: Text, local: Local, weights: Weights) -> None:
        self.salt, self.text, self.local, self.weights = salt, text, local, weights
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
        self._put_off: list[tuple[Branches, list[int], Weights]] = []  # guesses and what was said, to be learned from
        self._identity = settings.identity
        interval = float(settings.options.get("lookahead_snapshot_s", INTERVAL))
        self._keeper = Keeper(settings.folder, self._snapshot, interval)
        earlier = self._keeper.read(settings.identity, CLASSES, settings.vocab)
        if earlier is not None:
            self._survival.load(earlier.hits, earlier.trials)
            self._tenants.fill(earlier.texts)

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        self._tenants.touch(salt)
        text = Text(self._ints, self._raw, row * self._width, int(self._history.known[row]))
        weights = Weights(list(self._survival.weights.log_odds))
        self._rows[row] = _Row(salt, text, Local(self._history, row, self._flags), weights)

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        known = self._history.known[rows].tolist()
        floor = min(MOST_FLOOR, max(FLOOR, len(rows) * ROW_FLOOR))
        most = np.minimum(limit, MAX_NODES).tolist()
        guesses = [
            self._guess(row, count, each, floor) for row, count, each in zip(rows.tolist(), known, most, strict=True)
        ]
        return _trees(guesses)

    def _guess(self, row: int, known: int, limit: int, floor: float) -> Branches | None:
        state = self._rows.get(row)
        if state is None:
            return None
        state.guess, state.matches = None, []
        if limit <= 0:
            return None
        text, broad = state.text, limit >= BROAD and floor < BROAD_FLOOR
        text.now(known)
        matches = find(text, state.local, self._tenants.get(state.salt), state.carried, limit + 1, broad)
        if not matches:
            return None
        rates, odds = self._survival.rates, state.weights.factors
        state.matches, state.guess = matches, grow(matches, limit, rates, odds, trees=self._trees, floor=floor)
        return state.guess

    def observe(self, rows: Int32, since: Int32) -> None:
        self._learn()
        known = self._history.known[rows].tolist()
        for row, end in zip(rows.tolist(), known, strict=True):
            state, base = self._rows.get(row), row * self._width
            if state is None:  # ended meanwhile
                continue
            new: list[int] = self._ints[base + state.local.linked : base + end].tolist()  # as `since` says
            if state.matches and new:
                if state.guess is not None and state.guess.tokens:
                    self._put_off.append((state.guess, new, state.weights))
                state.carried = _carried(state.matches, new)
                state.guess, state.matches = None, []
            elif state.carried:
                state.carried = []
            state.local.extend(self._raw, base, end, new)

    def meanwhile(self) -> None:
        """Off the critical path: what guesses have taught, and texts that wait to be kept."""
        self._learn()
        self._tenants.work()
        self._keeper.tick()

    def _learn(self) -> None:
        for guess, said, weights in self._put_off:
            self._survival.follow(guess, said, weights)
        self._put_off.clear()

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
        self._learn()
        while self._tenants.work():
            pass
        self._keeper.close()


def _carried(matches: list[Match], new: list[int]) -> list[Found]:
    """Those of the matches that `new` tokens have followed."""
    found: list[Found] = []
    first, count = new[0], len(new)
    for length, source, position, view, follows in matches:
        if follows[0] == first and (count == 1 or follows[:count] == new):
            longer = length + count if length + count < LONGEST else LONGEST
            found.append((longer, -source, position + count, view if longer <= LONGEST_WORDS else RAW))
    return found


def _trees(guesses: list[Branches | None]) -> list[Tree]:
    """Three arrays for all of them, of which each tree has its stretch: many small ones would take longer."""
    words: list[int] = []
    above: list[int] = []
    sure: list[float] = []
    for guess in guesses:
        if guess is not None:
            words += guess.tokens
            above += guess.parents
            sure += guess.confidence
    tokens, parents, confidence = np.array(words, np.int32), np.array(above, np.int32), np.array(sure, np.float32)
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
