"""What changes raw logits before the draw: penalties, bias, and stop tokens that may not come yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engines.native.request import SamplingParams
from engines.native.step import Int32


@dataclass(frozen=True, slots=True)
class _Adjustment:
    """Of one row. ids, values: logit bias. barred: stop tokens, refused while fewer than `first_stop` tokens are
    before the one drawn."""

    repetition: float
    presence: float
    frequency: float
    ids: torch.Tensor | None
    values: torch.Tensor | None
    barred: torch.Tensor | None
    first_stop: int

    @property
    def penalised(self) -> bool:
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0


class Adjuster:
    """Rows without adjustments cost nothing; the count tables are made when the first row needs them.

    outputs: int32 [rows, vocab], how often a row has drawn a token; prompts: bool [rows, vocab], tokens of its prompt.
    """

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self._shape, self._device = (rows, vocab), device
        self._by_row: dict[int, _Adjustment] = {}
        self._outputs: torch.Tensor | None = None
        self._prompts: torch.Tensor | None = None

    def fill(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        self._by_row.pop(row, None)
        bias = params.logit_bias
        barred = params.stop_token_ids if params.min_tokens > 0 else []
        adjustment = _Adjustment(
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
            self._tensor(list(bias), torch.int64) if bias else None,
            self._tensor(list(bias.values()), torch.float32) if bias else None,
            self._tensor(barred, torch.int64) if barred else None,
            prompt_len + params.min_tokens,
        )
        if adjustment.penalised or bias or barred:
            self._by_row[row] = adjustment
        if adjustment.penalised:
            self._start_counts(row, token_ids, prompt_len)

    def concerns(self, rows: list[int]) -> bool:
        """Whether any of `rows` has an adjustment."""
        return bool(self._by_row) and any(row in self._by_row for row in rows)

    def apply(self, logits: torch.Tensor, rows: Int32, positions: Int32) -> None:
        """Write over logits float32 [m, vocab]."""
        if not self._by_row:
            return
        for place, row in enumerate(rows.tolist()):
            adjustment = self._by_row.get(row)
            if adjustment is None:
                continue
            line = logits[place]
            if adjustment.penalised:
                self._penalise(line, row, adjustment)
            if adjustment.ids is not None and adjustment.values is not None:
                line.index_add_(0, adjustment.ids, adjustment.values)
            if adjustment.barred is not None and positions[place] < adjustment.first_stop:
                line[adjustment.barred] = -torch.inf

    def count(self, rows: Int32, tokens: torch.Tensor) -> None:
        """`tokens` int64 [m] were drawn."""
        if self._outputs is None:
            return
        penalised = np.array([row in self._by_row and self._by_row[row].penalised for row in rows.tolist()])
        if penalised.any():
            places = torch.from_numpy(np.flatnonzero(penalised)).to(self._device)
            own = torch.from_numpy(rows[penalised].astype(np.int64)).to(self._device)
            self._outputs[own, tokens[places]] += 1

    def _start_counts(self, row: int, token_ids: list[int], prompt_len: int) -> None:
        if self._outputs is None or self._prompts is None:
            self._outputs = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
            self._prompts = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
        tokens = self._tensor(token_ids, torch.int64)
        self._outputs[row] = torch.bincount(tokens[prompt_len:], minlength=self._shape[1]).int()
        self._prompts[row] = False
        self._prompts[row, tokens[:prompt_len]] = True

    def _penalise(self, line: torch.Tensor, row: int, adjustment: _Adjustment) -> None:
        """Repetition divides positive and multiplies negative logits of tokens seen in prompt or output
        (https://arxiv.org/abs/1909.05858); presence and frequency subtract by what was drawn, as OpenAI defines."""
        if self._outputs is None or self._prompts is None:
            raise RuntimeError(f"row {row} has penalties but no counts")
        drawn = self._outputs[row]
        if adjustment.repetition != 1:
            seen = self._prompts[row] | (drawn > 0)
            factor = torch.where(line > 0, 1 / adjustment.repetition, adjustment.repetition)
            line.mul_(torch.where(seen, factor, 1.0))
        line.sub_(adjustment.frequency * drawn)
        line.sub_(adjustment.presence * (drawn > 0))

    def _tensor(self, values: list[int] | list[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)
