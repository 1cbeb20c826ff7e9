"""Places whose text before them is the row's newest text, longest first: each with what followed it.

Row by row in plain Python, not over rows in numpy: one integer comparison takes the place of sixteen, and most places
need none. Measured on one core: 6 µs where nothing is found, 15 to 26 on average with the store. In numpy the row's
own text alone took 197 µs for one row, 33 each for 8, 12 each for 32.
"""

from __future__ import annotations

from plugins.speculative.lookahead.chains import WINDOW, Chains, matched, word
from plugins.speculative.lookahead.local import Local
from plugins.speculative.lookahead.segments import BEGINS_WORD
from plugins.speculative.lookahead.store import END, Store
from plugins.speculative.lookahead.survival import GLOBAL, LOCAL, RAW, WORD

WALKED = 6
"""Places of one chain that are compared, the newest."""
KEPT = 8
"""Of all places, those that go into a tree: the longest matches."""
LEVELS = 3
"""Orders of chains, the longest first."""
ENOUGH = 2
"""With so many places the chains of lower order are not walked."""
SURE = 8
"""A match of so many tokens that still holds is followed without looking for others."""
LONGEST_WORDS = 6
"""Tokens of a match up to which it matters whether it begins with a word."""

Found = tuple[int, int, int, int]
"""(length, −source, position, view): the greatest is the best. length: tokens that are the same; WINDOW are compared,
and those that held since are added. position: in the row, or in the store, of what followed."""

Match = tuple[int, int, int, int, list[int]]
"""(length, source, position, view, what stood there): plain tuples, made in a twentieth of the time of named ones."""


class Text:
    """Of the row that guesses are for: `ints` (`raw`: its bytes) is the whole history, the tokens begin at `base`,
    and `known` of them are set. `tail`: the newest `span` of them, as `word` makes it."""

    __slots__ = ("base", "ints", "known", "raw", "span", "tail")

    def __init__(self, ints: memoryview, raw: memoryview, base: int, known: int) -> None:
        self.ints, self.raw, self.base = ints, raw, base
        self.now(known)

    def now(self, known: int) -> None:
        """So many of its tokens are set."""
        self.known = known
        self.span = span = known if known < WINDOW else WINDOW
        self.tail = word(self.raw, self.base + known, span)

    def length(self, raw: memoryview, base: int, position: int) -> int:
        """Of the match at a position of a text, which begins at token `base` of `raw`."""
        span = self.span
        if position >= span:
            return matched(self.tail, word(raw, base + position, span), span)
        return matched(self.tail >> (32 * (span - position)), word(raw, base + position, position), position)

    def walk(
        self, chains: Chains, position: int, raw: memoryview, base: int, source: int, found: dict[int, Found], most: int
    ) -> None:
        """Add what a chain leads to in a text from `position` on, by position; `most` places are looked at."""
        order, span, tail, before = chains.order, self.span, self.tail, chains.before
        for _ in range(most):
            if position not in found:
                if position >= span:
                    end = 4 * (base + position)
                    other = int.from_bytes(raw[end - 4 * span : end], "little")
                    length = span - (((tail ^ other).bit_length() + 31) >> 5)  # as `matched`, but this is called most
                else:
                    length = self.length(raw, base, position)
                if length >= order:
                    found[position] = (length, -source, position, RAW)
            position = before[position]
            if not position:
                return

    def follows(self, position: int, count: int) -> list[int]:
        """`count` tokens from a position of the row; past its end the guess goes on with itself."""
        start, end = self.base + position, self.base + self.known
        tokens: list[int] = self.ints[start : min(start + count, end)].tolist()
        while len(tokens) < count:
            tokens += tokens[: count - len(tokens)]
        return tokens


def find(
    text: Text, local: Local, store: Store | None, carried: list[Found], count: int, broad: bool = True
) -> list[Match]:
    """At most KEPT, longest first, newest first among equals. carried: earlier matches that have held until now. count:
    tokens wanted behind each. broad: False compares half as many places, looks into the store only where the row's own
    text has nothing, and leaves out the least order, which gives wide trees of little confidence."""
    here: dict[int, Found] = {}
    there: dict[int, Found] = {}
    longest = 0
    for match in carried:
        length, source, position, _ = match
        if source == -LOCAL:
            here[position] = match
        elif store is not None and text.length(store.bytes, 0, position) == min(text.span, length):
            there[position] = match  # it stands there still
        else:
            continue
        longest = max(longest, length)
    if longest < SURE:
        span, tail, most = text.span, text.tail, WALKED if broad else WALKED // 2
        for level in range(LEVELS if broad else LEVELS - 1):
            chains = local.chains[level]  # most lead nowhere, so their heads are looked at here
            beyond = span - chains.order
            if beyond >= 0 and (head := chains.heads[(tail >> 32 * beyond) % chains.size]):
                text.walk(chains, head, text.raw, text.base, LOCAL, here, most)
            if store is not None and (broad or not here):
                chains = store.chains[level]
                beyond = span - chains.order
                if beyond >= 0 and (head := chains.heads[(tail >> 32 * beyond) % chains.size]):
                    text.walk(chains, head, store.bytes, 0, GLOBAL, there, most)
            if len(here) + len(there) >= ENOUGH:
                break
        if local.structure is not None:
            _words(here, text, local.flags)
            _words(there, text, local.flags)
            for view, length, position in local.structure.matches():
                if position not in here or here[position][0] < length:
                    here[position] = (length, -LOCAL, position, view)
    found = [*here.values(), *there.values()]
    if len(found) > 1:
        found.sort(reverse=True)
        del found[KEPT:]
    matches: list[Match] = []
    for length, source, position, view in found:
        if source == -LOCAL:
            matches.append((length, LOCAL, position, view, text.follows(position, count)))
        elif store is not None:
            follows = store.ints[position : position + count].tolist()
            if END in follows:
                del follows[follows.index(END) :]
            if follows:
                matches.append((length, GLOBAL, position, view, follows))
    return matches


def _words(found: dict[int, Found], text: Text, flags: bytes) -> None:
    """Give short matches that begin with a word their view."""
    for position, (length, source, _, view) in found.items():
        if length <= LONGEST_WORDS and view == RAW:
            token = text.ints[text.base + text.known - length]
            if token < len(flags) and flags[token] & BEGINS_WORD:
                found[position] = (length, source, position, WORD)
