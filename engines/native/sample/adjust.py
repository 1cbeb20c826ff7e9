"""What changes raw logits before the draw, for the rows that ask for it.

Order: penalties, DRY, bias; then what is forbidden (all but allowed ids, stop tokens before their time, n-grams, bad
words); then typical-p, which looks at the distribution that is left. A row always has a token to draw: where nothing
would be left, all but the allowed ids give way, and these to a grammar (`history.FORBIDDEN`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.request import SamplingParams
from engines.native.sample import history
from engines.native.sample.filters import typical
from engines.native.state import pinned
from engines.native.step import Int32

_PENALISED, _COUNTED, _DRY, _BIASED, _ALLOWED, _BARRED, _NGRAMS, _WORDS, _TYPICAL = (1 << bit for bit in range(9))
_FORBIDS = _ALLOWED | _BARRED | _NGRAMS | _WORDS
LOOKED_AT = 2**22
"""Tokens of history that are looked at in one go; each takes some tens of bytes meanwhile."""


@dataclass(frozen=True)
class _Work:
    """One call of `apply`. rows, ends: int64 [m], of each line of the logits its row, and the tokens before the one
    that it draws; kinds: int32 [m], what the row asks for."""

    logits: torch.Tensor
    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.int32]

    @cached_property
    def asked(self) -> int:
        return int(np.bitwise_or.reduce(self.kinds))

    def lines(self, kinds: int) -> NDArray[np.int64]:
        """Those whose rows ask for any of `kinds`."""
        return np.flatnonzero(self.kinds & kinds) if self.asked & kinds else np.empty(0, np.int64)


class Adjuster:
    """Rows without adjustments cost nothing.

    tokens: int32 [≥ rows, max tokens], the device's table of each row's tokens (`engines.native.state.Rows.tokens`),
    which its owner keeps; a row that looks back needs it. The tables of counts and of breakers, [rows, vocab], are made
    when the first row needs them; the other tensors are a row's own, by its number.
    """

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self.tokens: torch.Tensor | None = None
        self._shape, self._device = (rows, vocab), device
        self._kinds = np.zeros(rows, np.int32)
        self._prompt_len = np.zeros(rows, np.int64)
        self._params: dict[int, SamplingParams] = {}
        self._drawn: torch.Tensor | None = None  # int32, how often a row has drawn a token
        self._breakers: torch.Tensor | None = None  # bool, tokens that a repetition does not reach across
        self._bias: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # ids, values
        self._allowed: dict[int, torch.Tensor] = {}
        self._barred: dict[int, torch.Tensor] = {}
        self._words: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # see history.ban_words

    def fill(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        for of_rows in (self._params, self._bias, self._allowed, self._barred, self._words):
            of_rows.pop(row, None)
        self._kinds[row] = kinds = _kinds(params)
        if not kinds:
            return
        self._params[row], self._prompt_len[row] = params, prompt_len
        if kinds & _BIASED:
            values = np.array(list(params.logit_bias.values()), np.float32)
            self._bias[row] = self._ids(list(params.logit_bias)), self._send(values)
        if kinds & _ALLOWED:
            self._allowed[row] = self._ids(params.allowed_token_ids)
        if kinds & _BARRED:
            self._barred[row] = self._ids(params.stop_token_ids)
        if kinds & _WORDS:
            prefixes, lasts = history.word_tables(params.bad_words)
            self._words[row] = self._send(prefixes), self._send(lasts)
        if kinds & _COUNTED:
            if self._drawn is None:
                self._drawn = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
            self._drawn[row] = torch.bincount(self._ids(token_ids[prompt_len:]), minlength=self._shape[1]).int()
        if kinds & _DRY:
            if self._breakers is None:
                self._breakers = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
            self._breakers[row] = False
            self._breakers[row, self._ids(params.dry_breakers)] = True

    def concerns(self, rows: list[int]) -> bool:
        """Whether any of `rows` has an adjustment."""
        return bool(self._params) and any(row in self._params for row in rows)

    def apply(self, logits: torch.Tensor, rows: Int32, positions: Int32) -> None:
        """Write over logits float32 [m, vocab], contiguous. positions: tokens before the one that each row draws."""
        if not self._params:
            return
        work = _Work(logits, rows.astype(np.int64), positions.astype(np.int64), self._kinds[rows])
        if not work.asked:
            return
        for lines in _parts(work, work.lines(_PENALISED)):
            self._penalise(work, lines)
        for lines in _parts(work, work.lines(_DRY)):
            self._dry(work, lines)
        for line in work.lines(_BIASED).tolist():
            ids, values = self._bias[int(work.rows[line])]
            logits[line].index_add_(0, ids, values)
        if work.asked & _FORBIDS:
            self._forbid(work)
        if len(lines := work.lines(_TYPICAL)):
            at = self._send(lines)
            temperature, mass = self._columns(work, lines, lambda p: p.temperature, lambda p: p.typical_p)
            logits[at] = typical(logits[at], temperature, mass)

    def count(self, rows: Int32, tokens: torch.Tensor) -> None:
        """`tokens` int64 [m] were drawn."""
        if self._drawn is None:
            return
        counted = np.flatnonzero(self._kinds[rows] & _COUNTED)
        if len(counted):
            self._drawn[self._send(rows[counted].astype(np.int64)), tokens[self._send(counted)]] += 1

    def _penalise(self, work: _Work, lines: NDArray[np.int64]) -> None:
        repetition, presence, frequency = self._columns(
            work, lines, lambda p: p.repetition_penalty, lambda p: p.presence_penalty, lambda p: p.frequency_penalty
        )
        drawn = self._drawn if work.asked & _COUNTED else None
        history.penalise(work.logits, self._view(work, lines), repetition, presence, frequency, drawn)

    def _dry(self, work: _Work, lines: NDArray[np.int64]) -> None:
        params = self._of(work, lines)
        spans = [p.dry_range or end for p, end in zip(params, work.ends[lines].tolist(), strict=True)]
        history.dry(
            work.logits,
            self._view(work, lines),
            self._ids(spans)[:, None],
            self._send(np.stack([history.dry_penalties(p) for p in params])),
            self._breakers,
        )

    def _forbid(self, work: _Work) -> None:
        logits = work.logits
        for line in work.lines(_ALLOWED).tolist():
            allowed = self._allowed[int(work.rows[line])]
            kept = logits[line, allowed]
            logits[line].masked_fill_(kept.amax() > -torch.inf, -torch.inf)  # a grammar may leave none of them
            logits[line, allowed] = kept
        for line in work.lines(_BARRED).tolist():
            if self._is_early(work, line):
                barred = self._barred[int(work.rows[line])]
                logits[line, barred] = logits[line, barred].clamp(max=history.FORBIDDEN)
        for lines in _parts(work, work.lines(_NGRAMS)):
            sizes = [p.no_repeat_ngram_size for p in self._of(work, lines)]
            history.ban_ngrams(logits, self._view(work, lines), self._ids(sizes)[:, None], max(sizes))
        for line in work.lines(_WORDS).tolist():
            self._ban_words(logits[line], int(work.rows[line]), int(work.ends[line]))

    def _is_early(self, work: _Work, line: int) -> bool:
        """Whether no stop token may come yet."""
        row = int(work.rows[line])
        return bool(work.ends[line] < self._prompt_len[row] + self._params[row].min_tokens)

    def _ban_words(self, line: torch.Tensor, row: int, end: int) -> None:
        """Only what was generated counts, as in vLLM: a word that began in the prompt may be completed."""
        prefixes, lasts = self._words[row]
        first = max(end - prefixes.shape[1], int(self._prompt_len[row]))
        newest = self._history()[row, first:end].long()
        unwritten = torch.full((prefixes.shape[1] - (end - first),), -1, device=self._device)
        history.ban_words(line, torch.cat([unwritten, newest]), prefixes, lasts)

    def _history(self) -> torch.Tensor:
        if self.tokens is None:
            raise RuntimeError(
                "a row's parameters look back at its tokens, and the adjuster was given no table of them"
            )
        return self.tokens

    def _view(self, work: _Work, lines: NDArray[np.int64]) -> history.View:
        ends = work.ends[lines]
        at, rows, sent = (self._send(values) for values in (lines, work.rows[lines], ends))
        return history.view(self._history(), at, rows, sent, int(ends.max()))

    def _of(self, work: _Work, lines: NDArray[np.int64]) -> list[SamplingParams]:
        return [self._params[row] for row in work.rows[lines].tolist()]

    def _columns(
        self, work: _Work, lines: NDArray[np.int64], *values: Callable[[SamplingParams], float]
    ) -> list[torch.Tensor]:
        """One parameter of each line's row, float32 [len(lines), 1], for each of `values`."""
        params = self._of(work, lines)
        return [self._send(np.array([[value(p)] for p in params], np.float32)) for value in values]

    def _ids(self, values: list[int]) -> torch.Tensor:
        return self._send(np.array(values, np.int64))

    def _send(self, values: NDArray[np.generic]) -> torch.Tensor:
        return pinned(values, self._device).to(self._device, non_blocking=True)


def _kinds(params: SamplingParams) -> int:
    """What the row asks for, one bit each."""
    counted = params.presence_penalty != 0 or params.frequency_penalty != 0
    asks = {
        _PENALISED: counted or params.repetition_penalty != 1,
        _COUNTED: counted,
        _DRY: params.dry_multiplier > 0,
        _BIASED: bool(params.logit_bias),
        _ALLOWED: bool(params.allowed_token_ids),
        _BARRED: params.min_tokens > 0 and bool(params.stop_token_ids),
        _NGRAMS: params.no_repeat_ngram_size > 0,
        _WORDS: bool(params.bad_words),
        _TYPICAL: params.typical_p < 1 and params.temperature > 0,
    }
    return sum(bit for bit, asked in asks.items() if asked)


def _parts(work: _Work, lines: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """`lines`, by their length, in parts whose histories take at most LOOKED_AT values side by side: rows are padded to
    the longest beside them, and one of 100,000 tokens must not make that of all."""
    if not len(lines):
        return []
    lines = lines[np.argsort(work.ends[lines], kind="stable")]
    parts, begin = [], 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or (end + 1 - begin) * int(work.ends[lines[end]]) > LOOKED_AT:
            parts.append(lines[begin:end])
            begin = end
    return parts
