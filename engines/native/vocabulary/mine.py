"""Candidates for domain tokens out of a corpus: what would save most tokens, count × (tokens of it now - 1).

Candidates are runs of one to four words with single blanks between them, and, of scripts without blanks, runs of two to
eight characters; none begins or ends with a function word. They are chosen greedily: what a longer candidate covers no
longer counts for the shorter ones in it, and a longer one gains only what the chosen ones in it leave.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

WORDS = 4
CHARACTERS = 8  # of a run of Han, kana or Thai
HELD = 3_000_000
"""Runs counted at a time. When there are more, those seen once are forgotten, so that memory stays bounded; what is
frequent enough to be a candidate comes again."""

_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = rf"[^\W_{_UNSPACED}]+(?:[-'’&./][^\W_{_UNSPACED}]+)*"
_RUNS = re.compile(rf"(?P<han>[{_UNSPACED}]{{2,}})|(?P<words>{_WORD}(?: {_WORD})*)")
_LINKS = frozenset(("of", "and", "for", "in", "on", "to", "the"))
"""Function words that may stand inside a candidate: "rate of return"."""
_OTHERS = (
    "a about after all also an any are as at be because been before being both but by can could did do does during "
    "each from had has have he her here his how i if into is it its just may me more most my no nor not one or "
    "other our out over own per she should since so some such than that their them then there these they this "
    "those too under until up us very was we were what when where which while who will with within without would "
    "you your"
)
_FUNCTION_WORDS = _LINKS | frozenset(_OTHERS.split())
_FUNCTION_CHARACTERS = frozenset(
    "的了是在和与及或不也就都而被把对从以为于其之这那我你他她它们吗呢吧啊么着过有会能可要说到去上下个将并但等如若使由所"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """count: occurrences that no longer candidate covers. pieces: tokens of one now. saved: tokens in all."""

    term: str
    count: int
    pieces: int
    saved: int


def mine(
    batches: Iterable[Sequence[str]],
    pieces_of: Callable[[list[str]], list[int]],
    *,
    most: int,
    min_count: int,
    held: int = HELD,
) -> list[Candidate]:
    """At most `most`, the best first. pieces_of: terms → tokens of each as the base model reads it in running text."""
    counts = _counted(batches, held)
    frequent = {run: count for run, count in counts.items() if count >= min_count}
    pieces = dict(zip(frequent, pieces_of(list(frequent)), strict=True))
    return _chosen(frequent, pieces, most, min_count)


def _counted(batches: Iterable[Sequence[str]], held: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for lines in batches:
        for line in lines:
            counts.update(_candidates(line))
        while len(counts) > held:
            least = min(counts.values())
            counts = Counter({run: count for run, count in counts.items() if count > least})
    return counts


def _candidates(line: str) -> Iterator[str]:
    for found in _RUNS.finditer(line):
        if found["han"]:
            yield from _of_characters(found["han"])
        else:
            yield from _of_words(found["words"].split(" "))


def _of_words(words: list[str]) -> Iterator[str]:
    for begin, first in enumerate(words):
        if not _content(first):
            continue
        for end in range(begin + 1, min(begin + WORDS, len(words)) + 1):
            last = words[end - 1]
            if not _content(last) and last not in _LINKS:
                break
            if _content(last):
                yield " ".join(words[begin:end])


def _content(word: str) -> bool:
    return len(word) > 1 and not word.isdigit() and word.lower() not in _FUNCTION_WORDS


def _of_characters(run: str) -> Iterator[str]:
    for begin, first in enumerate(run):
        if first in _FUNCTION_CHARACTERS:
            continue
        for end in range(begin + 2, min(begin + CHARACTERS, len(run)) + 1):
            if run[end - 1] in _FUNCTION_CHARACTERS:
                break  # a term goes over no function character
            yield run[begin:end]


def _chosen(counts: dict[str, int], pieces: dict[str, int], most: int, min_count: int) -> list[Candidate]:
    covered: Counter[str] = Counter()  # occurrences inside longer candidates that are chosen
    chosen: dict[str, Candidate] = {}

    def now(run: str) -> Candidate:
        count = counts[run] - covered[run]
        inside = sum(pieces[part] - 1 for part in _parts(run) if part in chosen)
        return Candidate(run, count, pieces[run], count * max(pieces[run] - inside - 1, 0))

    queue = [(-candidate.saved, -len(run), run) for run in counts if (candidate := now(run)).saved > 0]
    heapq.heapify(queue)
    while queue and len(chosen) < most:
        gain, _, run = heapq.heappop(queue)
        candidate = now(run)
        if candidate.count < min_count or candidate.saved <= 0:
            continue
        if candidate.saved < -gain:  # something chosen since took from it
            heapq.heappush(queue, (-candidate.saved, -len(run), run))
            continue
        chosen[run] = candidate
        for part in _parts(run):
            covered[part] += candidate.count
    return list(chosen.values())


def _parts(run: str) -> set[str]:
    """Candidates inside a candidate, without itself."""
    return set(_candidates(run)) - {run}
