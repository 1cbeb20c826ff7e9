"""From matches to a tree: what they agree on is one branch, where they part it forks. Best first by survival."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from operator import itemgetter

from plugins.speculative.lookahead.matches import Match
from plugins.speculative.lookahead.survival import (
    AGREED,
    ALONE,
    LEADING,
    MANY,
    OF_VIEW,
    PLACE,
    TRAILING,
    VIEWS,
    share,
)

FLOOR = 0.02
"""Survival under which a node is never worth a place in a pass."""
FEW = 3
"""Matches up to which an agreement is counted by itself."""
MOST = 0.99
"""Of one token: a model may always say something else."""

Entry = tuple[float, int, int, int, int, float, int, list[Match]]
"""(−survival, tie break, parent, depth, token, confidence, class, the matches that go this way)"""


@dataclass(slots=True)
class Branches:
    """A tree as `engines.native.speculation.tree.Tree` has it, as lists, and each node's class of survival."""

    tokens: list[int]
    parents: list[int]
    confidence: list[float]
    kinds: list[int]
    chain: bool = True  # each node follows the one before it

    def ordered(self) -> Branches:
        """Depth first, the most likely child first: the first nodes are the most likely chain."""
        count = len(self.tokens)
        if self.parents == list(range(count)):
            return self
        children: list[list[int]] = [[] for _ in range(count + 1)]
        for node, parent in enumerate(self.parents):
            children[parent].append(node + 1)  # found best first
        order: list[int] = []
        stack = children[0][::-1]
        while stack:
            node = stack.pop()
            order.append(node - 1)
            stack += children[node][::-1]
        place = [0] * (count + 1)
        for new, node in enumerate(order):
            place[node + 1] = new + 1
        return Branches(
            [self.tokens[node] for node in order],
            [place[self.parents[node]] for node in order],
            [self.confidence[node] for node in order],
            [self.kinds[node] for node in order],
            chain=False,
        )


def grow(
    matches: list[Match], limit: int, rates: list[float], odds: list[float], *, trees: bool, floor: float = FLOOR
) -> Branches:
    """At most `limit` nodes, those most likely to be reached and to hold, none with a survival under `floor`. matches:
    longest first. rates: by class of survival. odds: factor on those of each view. trees: False takes only the
    likeliest token after each."""
    tokens: list[int] = []
    parents: list[int] = []
    confidences: list[float] = []
    kinds: list[int] = []
    tree = Branches(tokens, parents, confidences, kinds)
    heap: list[Entry] = []
    ticket, node, depth, survival, live = 0, 0, 0, 1.0, matches
    while live:
        length, source, _, view, follows = live[0]
        agreed = len(follows) if len(live) == 1 else _agreed(live, depth)
        offset, factor = (source * VIEWS + view) * OF_VIEW + _support(len(live)), odds[view]
        if not heap:  # nothing competes: a run of C loops
            stop = min(agreed, depth + limit - len(tokens))
            run = [offset + place for place in PLACE[length + depth : length + stop]]
            begin = len(confidences)
            for kind in run:
                rate = rates[kind]
                confidence = rate * factor / (1.0 - rate + rate * factor)
                if confidence > MOST:
                    confidence = MOST
                survival *= confidence
                if survival < floor:
                    break
                confidences.append(confidence)
            count = len(confidences) - begin
            if count:
                tokens += follows[depth : depth + count]
                parents.append(node)
                parents += range(begin + 1, begin + count)
                kinds += run[:count]
                node, depth = begin + count, depth + count
            if len(tokens) == limit or survival < floor:
                break
        while depth < agreed:  # straight on
            kind = offset + PLACE[length + depth]
            rate = rates[kind] * factor
            confidence = rate / (1.0 - rates[kind] + rate)
            if confidence > MOST:
                confidence = MOST
            reached, token = survival * confidence, follows[depth]
            if reached < floor:
                break
            if heap and reached < -heap[0][0]:  # another way is better by now
                ticket += 1
                heappush(heap, (-reached, ticket, node, depth, token, confidence, kind, live))
                break
            tokens.append(token)
            parents.append(node)
            confidences.append(confidence)
            kinds.append(kind)
            if len(tokens) == limit:
                return tree.ordered()
            node, depth, survival = len(tokens), depth + 1, reached
        else:
            if len(live) > 1:
                ticket = _fork(heap, live, node, depth, survival, rates, odds, ticket, trees, floor)
        if not heap:
            break
        reached, _, parent, depth, token, confidence, kind, live = heappop(heap)
        tokens.append(token)
        parents.append(parent)
        confidences.append(confidence)
        kinds.append(kind)
        if len(tokens) == limit:
            break
        node, depth, survival = len(tokens), depth + 1, -reached
    return tree.ordered()


def _support(count: int) -> int:
    """Of so many matches that agree."""
    return ALONE if count == 1 else AGREED if count <= FEW else MANY


def _agreed(live: list[Match], depth: int) -> int:
    """Up to which depth all say the same."""
    follows = live[0][4]
    end = len(follows)
    for match in live[1:]:
        other = match[4]
        if other[depth:end] != follows[depth:end]:
            step = depth
            while step < min(end, len(other)) and other[step] == follows[step]:
                step += 1
            end = step
            if end == depth:
                break
    return end


def _fork(
    heap: list[Entry],
    live: list[Match],
    node: int,
    depth: int,
    survival: float,
    rates: list[float],
    odds: list[float],
    ticket: int,
    trees: bool,
    floor: float,
) -> int:
    """The tokens that may follow `node`, onto the heap → the next ticket."""
    ways: dict[int, list[Match]] = {}
    for match in live:
        follows = match[4]
        if depth < len(follows):
            ways.setdefault(follows[depth], []).append(match)
    total = sum(map(len, ways.values()))
    branches: list[tuple[float, int, int, list[Match]]] = []
    for token, those in ways.items():  # that of the longest match first
        length, source, _, view, _ = those[0]
        support = _support(total) if len(ways) == 1 else (TRAILING if branches else LEADING) + share(len(those), total)
        kind = (source * VIEWS + view) * OF_VIEW + PLACE[length + depth] + support
        rate = rates[kind] * odds[view]
        branches.append((rate / (1.0 - rates[kind] + rate), token, kind, those))
    whole = sum(branch[0] for branch in branches)
    scale = MOST / whole if whole > MOST else 1.0
    for confidence, token, kind, those in branches if trees else sorted(branches, key=itemgetter(0))[-1:]:
        confidence *= scale
        if survival * confidence >= floor:
            ticket += 1
            heappush(heap, (-survival * confidence, ticket, node, depth, token, confidence, kind, those))
    return ticket
