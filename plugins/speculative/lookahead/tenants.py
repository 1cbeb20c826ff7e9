"""A store for each salt, under one byte cap. A salt's store is looked up by its name alone and shares nothing with the
others: neither what is found in it nor how long that takes depends on what they keep. What they can take from each
other is room: where the cap is reached, the store that was longest not used goes.

A store that is full gets a ring two or four times as large, as long as both are under the cap. The text moves a piece
at a time (`work`), so that no step waits for it; meanwhile the old ring answers, and new text waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from engines.native.speculation.tree import Int32
from plugins.speculative.lookahead.store import PIECE, SMALLEST, Store, nbytes

SMALL = 1 << 18
"""Tokens of a ring that is followed by one four times as large: its text is moved less often."""
WAITING = 64
"""Texts that wait; of more, the oldest are forgotten."""


@dataclass(slots=True)
class _Move:
    """Of a salt's text into a larger ring. moved: tokens of `text` that are there."""

    store: Store
    text: Int32
    moved: int = 0


class Tenants:
    """cap: bytes of all stores together; at least that of the smallest one."""

    def __init__(self, cap: int) -> None:
        if cap < nbytes(SMALLEST):
            raise ValueError(
                f"lookahead_bytes is {cap}; a store of {SMALLEST} tokens takes {nbytes(SMALLEST)}: allow that much"
            )
        self.cap = cap
        self.evicted = 0
        self._stores: OrderedDict[str, Store] = OrderedDict()  # the longest unused first
        self._moves: dict[str, _Move] = {}
        self._waiting: deque[tuple[str, Int32]] = deque(maxlen=WAITING)

    def get(self, salt: str) -> Store | None:
        return self._stores.get(salt)

    def touch(self, salt: str) -> None:
        """A request of this salt has begun."""
        if salt in self._stores:
            self._stores.move_to_end(salt)

    def add(self, salt: str, document: Int32) -> None:
        """It will be kept, what is new in it."""
        self._waiting.append((salt, document))

    def work(self) -> bool:
        """One of the things that wait, about a millisecond; False: there is none."""
        for salt, move in self._moves.items():
            move.moved = move.store.fill(move.text, move.moved)
            if move.moved >= len(move.text):
                self._stores[salt] = move.store
                del self._moves[salt]
            return True
        if not self._waiting:
            return False
        salt, document = self._waiting.popleft()
        self._keep(salt, document)
        return True

    def _keep(self, salt: str, document: Int32) -> None:
        store = self._stores.get(salt)
        stretches = [document] if store is None else store.novel(document)
        for index, stretch in enumerate(stretches):
            store = self._roomy(salt, len(stretch))
            if salt in self._moves:
                self._waiting.extendleft((salt, later) for later in reversed(stretches[index:]))
                return
            store.append(stretch)

    def fill(self, texts: list[tuple[str, Int32]]) -> None:
        """As `texts` gave them, at once."""
        for salt, text in texts:
            store, start = self._roomy(salt, len(text)), 0
            while start < len(text):
                start = store.fill(text, start)

    def texts(self) -> list[tuple[str, Int32]]:
        """(salt, documents with END between them, a copy), the longest unused salt first."""
        return [(salt, store.text()) for salt, store in self._stores.items()]

    def stats(self) -> dict[str, float]:
        stores = self._stores.values()
        return {
            "lookahead_bytes": self._held(self._stores),
            "lookahead_tokens": sum(store.used for store in stores),
            "lookahead_salts": len(stores),
            "lookahead_evicted_salts": self.evicted,
        }

    def _roomy(self, salt: str, count: int) -> Store:
        """Its store. Where `count` tokens don't fit and the cap allows, their move into a larger one begins, or is done
        if they are few; else the oldest text will go."""
        store = self._stores.get(salt)
        held = 0 if store is None else store.nbytes
        if store is None or not store.fits(count):
            capacity = SMALLEST if store is None else store.capacity
            need = count if store is None else store.used + count
            while capacity < max(need + 1, 2 * count) and nbytes(2 * capacity) + held <= self.cap:
                capacity *= 4 if capacity < SMALL and nbytes(4 * capacity) + held <= self.cap else 2
            if store is None:
                self._evict(salt, nbytes(capacity))
                store = Store(capacity)
            elif capacity > store.capacity:
                self._evict(salt, nbytes(capacity) + held)
                move = _Move(Store(capacity), store.text())
                while store.used <= 2 * PIECE and move.moved < len(move.text):
                    move.moved = move.store.fill(move.text, move.moved)
                if move.moved < len(move.text):
                    self._moves[salt] = move
                else:
                    store = move.store
        self._stores[salt] = store
        self._stores.move_to_end(salt)
        return store

    def _held(self, salts: OrderedDict[str, Store] | list[str]) -> int:
        """Bytes of their stores, and of those that they move to."""
        moving = sum(self._moves[salt].store.nbytes for salt in salts if salt in self._moves)
        return moving + sum(self._stores[salt].nbytes for salt in salts)

    def _evict(self, salt: str, need: int) -> None:
        """Until `need` bytes fit beside the other salts' stores."""
        others = [other for other in self._stores if other != salt]
        while others and self._held(others) + need > self.cap:
            other = others.pop(0)
            del self._stores[other]
            self._moves.pop(other, None)
            self.evicted += 1
