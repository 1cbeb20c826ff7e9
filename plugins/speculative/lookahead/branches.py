"""From matches to a tree: what they agree on is one branch, where they part it forks. Best first by survival."""

from __future__ import annotations

from dataclasses import dataclass
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

Way = tuple[float, float, int, int, int, int, list[Match]]
"""A token that may follow a node, as yet not in the tree: (survival, confidence, class, token, parent, depth, matches
that go this way)"""


@dataclass(slots=True)
class Branches:
    """A tree as `engines.native.speculation.tree.Tree` has it, as lists: depth first, the likeliest child first, so
    that the first nodes are the likeliest chain. kinds: each node's class of survival; reached: its survival."""

    tokens: list[int]
    parents: list[int]
    confidence: list[float]
    kinds: list[int]
    reached: list[float]
    chain: bool  # each node follows the one before it

    def best(self, limit: int) -> Branches:
        """Its `limit` nodes of the greatest survival: no node has more than its parent."""
        order = sorted(range(len(self.reached)), key=self.reached.__getitem__, reverse=True)[:limit]
        order.sort()
        place = [0] * (order[-1] + 2)
        for new, node in enumerate(order):
            place[node + 1] = new + 1
        parents = [place[self.parents[node]] for node in order]
        return Branches(
            [self.tokens[node] for node in order],
            parents,
            [self.confidence[node] for node in order],
            [self.kinds[node] for node in order],
            [self.reached[node] for node in order],
            parents == list(range(limit)),
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
    reached: list[float] = []
    ways: list[Way] = []  # of each node the likeliest last, the deepest last of all
    node, depth, survival, live, chain, many = 0, 0, 1.0, matches, True, limit
    while live:
        length, source, _, view, follows = live[0]
        agreed = len(follows) if len(live) == 1 else _agreed(live, depth)
        if depth < agreed:  # straight on
            offset, factor, begin = (source * VIEWS + view) * OF_VIEW + _support(len(live)), odds[view], len(tokens)
            run = [offset + place for place in PLACE[length + depth : length + min(agreed, depth + limit)]]
            for kind in run:
                rate = rates[kind]
                confidence = rate * factor / (1.0 - rate + rate * factor)
                if confidence > MOST:
                    confidence = MOST
                survival *= confidence
                if survival < floor:
                    break
                confidences.append(confidence)
                reached.append(survival)
            count = len(confidences) - begin
            if count:
                tokens += follows[depth : depth + count]
                parents.append(node)
                parents += range(begin + 1, begin + count)
                kinds += run[:count]
                node, depth = begin + count, depth + count
        if depth == agreed and len(live) > 1 and survival >= floor:
            ways += _fork(live, node, depth, survival, rates, odds, trees, floor)
        if len(tokens) >= many:  # what is under the best so far need not be looked at
            floor, many = max(floor, sorted(reached)[-limit]), len(tokens) + limit
        while ways and ways[-1][0] < floor:
            ways.pop()
        if not ways:
            break
        survival, confidence, kind, token, parent, depth, live = ways.pop()
        chain = chain and parent == len(tokens)
        tokens.append(token)
        parents.append(parent)
        confidences.append(confidence)
        kinds.append(kind)
        reached.append(survival)
        node, depth = len(tokens), depth + 1
    tree = Branches(tokens, parents, confidences, kinds, reached, chain)
    return tree if len(tokens) <= limit else tree.best(limit)


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
    live: list[Match],
    node: int,
    depth: int,
    survival: float,
    rates: list[float],
    odds: list[float],
    trees: bool,
    floor: float,
) -> list[Way]:
    """The tokens that may follow `node`, the likeliest last."""
    those_of: dict[int, list[Match]] = {}
    for match in live:
        follows = match[4]
        if depth < len(follows):
            those_of.setdefault(follows[depth], []).append(match)
    total = sum(map(len, those_of.values()))
    found: list[tuple[float, int, int, list[Match]]] = []
    for token, those in those_of.items():  # that of the longest match first
        length, source, _, view, _ = those[0]
        support = _support(total) if len(those_of) == 1 else (TRAILING if found else LEADING) + share(len(those), total)
        kind = (source * VIEWS + view) * OF_VIEW + PLACE[length + depth] + support
        rate = rates[kind] * odds[view]
        found.append((rate / (1.0 - rates[kind] + rate), kind, token, those))
    whole = sum(way[0] for way in found)
    scale = MOST / whole if whole > MOST else 1.0
    if len(found) > 1:
        found.reverse()
        found.sort(key=itemgetter(0))
    return [
        (survival * scale * sure, scale * sure, kind, token, node, depth, those)
        for sure, kind, token, those in (found if trees else found[-1:])
        if survival * scale * sure >= floor
    ]
