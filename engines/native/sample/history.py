"""What a row's own tokens do to its next logits: penalties, DRY, n-grams, bad words.

The tokens are read from the device's row table, where each draw enters them: the newest may not have reached the host.
Lengths are known to the host. So nothing here waits for the device, and a row that was preempted and filled again is
treated as if it never had been. Many rows at once, but each line of the logits depends on its own row alone.

Definitions, each tested against its source:
    penalties   repetition: https://arxiv.org/abs/1909.05858; presence and frequency: OpenAI
    n-grams     transformers, NoRepeatNGramLogitsProcessor
    DRY         oobabooga/text-generation-webui, modules/sampler_hijack.py, DRYLogitsProcessor
    bad words   vLLM, v1/sample/ops/bad_words.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.request import SamplingParams

DRY_LONGEST = 50
"""A repetition counts for no more tokens than this, as in the source: the penalty would overflow."""
FORBIDDEN = -1e34
"""Logit of a token that may not be drawn while there is any other: below what penalties leave, above −inf. So where all
the tokens that a grammar or the allowed ids leave are forbidden, one of them is drawn after all."""
ANY = -2
"""In a table of prefixes: any token will do."""


@dataclass(frozen=True, slots=True)
class View:
    """The tokens of m rows, and which lines of the logits are theirs.

    lines, rows, ends: int64 [m, 1], line of the logits, row, number of tokens. ids: int64 [m, n], tokens; past its end
    a row shows its first token again, so that every id is one of the row's.
    """

    lines: torch.Tensor
    rows: torch.Tensor
    ends: torch.Tensor
    ids: torch.Tensor

    @property
    def at(self) -> torch.Tensor:
        """Index of each token, int64 [n]."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)


def view(table: torch.Tensor, lines: torch.Tensor, rows: torch.Tensor, ends: torch.Tensor, longest: int) -> View:
    """table: int32 [rows, max tokens]; lines, rows, ends: int64 [m]; longest: the greatest of `ends`."""
    ids = table[rows, :longest].long()
    at = torch.arange(longest, device=table.device)
    ids = torch.where(at < ends[:, None], ids, ids[:, :1])
    return View(lines[:, None], rows[:, None], ends[:, None], ids)


def penalise(
    logits: torch.Tensor, seen: View, repetition: torch.Tensor, presence: torch.Tensor, frequency: torch.Tensor,
    drawn: torch.Tensor | None,
) -> None:  # fmt: skip
    """Repetition divides positive and multiplies negative logits of the row's tokens; presence and frequency subtract
    by how often the row has drawn them. repetition, presence, frequency: float32 [m, 1]; drawn: int32 [rows, vocab].

    Only logits of tokens in the history change, so the cost goes with its length and not with the vocabulary. A token
    that occurs several times is written several times, each time the same value.
    """
    at = _places(logits, seen.lines, seen.ids)
    old = _read(logits, at)
    new = old * torch.where(old > 0, 1 / repetition, repetition)
    if drawn is not None:
        count = _read(drawn, _places(drawn, seen.rows, seen.ids))
        new = new - frequency * count - presence * (count > 0)
    logits.view(-1).scatter_(0, at.view(-1), new.view(-1))


def match_lengths(
    seen: View, first: torch.Tensor, most: torch.Tensor, longest: int, breakers: torch.Tensor | None = None
) -> torch.Tensor:
    """How many tokens up to and with i equal the row's last ones, int64 [m, n]; 0 where i is the last or beyond.

    first: int64 [m, 1], tokens before are not looked at; most: int64 [m, 1], longest match that is looked for, at most
    `longest`; breakers: bool [rows, vocab], tokens that end a match.
    """
    at, ids, width = seen.at, seen.ids, seen.ids.shape[1]
    alive = at < seen.ends - 1
    lengths = torch.zeros_like(ids)
    for back in range(min(longest, width - 1)):
        last = ids.gather(1, (seen.ends - 1 - back).clamp_(min=0))
        alive = alive & (at - back >= first) & (back < most)
        if breakers is not None:
            alive &= ~breakers[seen.rows, last]
        alive[:, back:] &= ids[:, : width - back] == last
        lengths += alive
        if ids.device.type == "cpu" and not alive.any():  # a GPU would have to be waited for
            break
    return lengths


def dry_penalties(params: SamplingParams) -> NDArray[np.float64]:
    """What a match of each length costs, float64 [DRY_LONGEST + 1]: multiplier × base^(length − allowed length)."""
    lengths = np.arange(DRY_LONGEST + 1)
    cost = params.dry_multiplier * params.dry_base ** (lengths - float(params.dry_allowed_length))
    return np.where(lengths >= max(1, params.dry_allowed_length), cost, 0.0)


def dry(
    logits: torch.Tensor, seen: View, spans: torch.Tensor, penalties: torch.Tensor, breakers: torch.Tensor | None
) -> None:
    """Subtract from each token that would go on with what the row's last tokens began before.

    spans: int64 [m, 1], newest tokens that are looked at; penalties: float32 [m, DRY_LONGEST + 1], by length of the
    match, of any float dtype; breakers: as in `match_lengths`. The longest match that a token goes on with counts.
    """
    if seen.ids.shape[1] < 2:
        return
    first = (seen.ends - spans).clamp_(min=0)
    most = torch.full_like(spans, DRY_LONGEST)
    lengths = match_lengths(seen, first, most, DRY_LONGEST, breakers)[:, :-1]
    following = seen.ids[:, 1:]
    penalty = penalties.float().gather(1, lengths)
    if breakers is not None:
        penalty = penalty.masked_fill(_read(breakers, _places(breakers, seen.rows, following)), 0.0)
    at = _places(logits, seen.lines, following)
    _lower(logits, at, _read(logits, at) - penalty)


def ban_ngrams(logits: torch.Tensor, seen: View, sizes: torch.Tensor, largest: int) -> None:
    """Forbid each token that would complete an n-gram of the row once more. sizes: int64 [m, 1], n ≥ 1."""
    lengths = match_lengths(seen, torch.zeros_like(sizes), sizes - 1, largest - 1)
    # Token i + 1 followed a match that ended at i; the first token follows the empty match alone.
    before = torch.cat([torch.zeros_like(lengths[:, :1]), lengths[:, :-1]], dim=1)
    banned = (before >= sizes - 1) & (seen.at < seen.ends)
    at = _places(logits, seen.lines, seen.ids)
    _lower(logits, at, _read(logits, at).masked_fill(banned, FORBIDDEN))


def word_tables(words: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(prefixes, lasts) of `ban_words`, for words of one token or more."""
    width = max(len(word) for word in words) - 1
    prefixes = np.full((len(words), width), ANY, np.int64)
    for place, word in enumerate(words):
        prefixes[place, width - len(word) + 1 :] = word[:-1]
    return prefixes, np.array([word[-1] for word in words], np.int64)


def ban_words(line: torch.Tensor, newest: torch.Tensor, prefixes: torch.Tensor, lasts: torch.Tensor) -> None:
    """Forbid the last token of each word whose others are the newest tokens. line: [vocab]; newest: int64 [k], −1
    where there is none yet; prefixes: int64 [words, k], each word but its last token, right-aligned, `ANY` before it;
    lasts: int64 [words]."""
    met = ((prefixes == newest) | (prefixes == ANY)).all(dim=1)
    line.scatter_reduce_(0, lasts, line[lasts].masked_fill(met, FORBIDDEN), "amin")


def _places(table: torch.Tensor, lines: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Of table[lines, ids] in the flat table: on a CPU reading and writing by one index is ten times faster."""
    return lines * table.shape[1] + ids


def _read(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return table.view(-1).index_select(0, at.view(-1)).view(at.shape)


def _lower(logits: torch.Tensor, at: torch.Tensor, values: torch.Tensor) -> None:
    """Each logit becomes the least of itself and the values given for it, in whatever order they come."""
    logits.view(-1).scatter_reduce_(0, at.view(-1), values.reshape(-1), "amin")
