"""The sampler of a GPU: the kernels of `engines.native.kernels.sampling`, which read parameters from device columns, so
that a draw can stand inside a captured graph."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.kernels import sampling
from engines.native.request import SamplingParams
from engines.native.sample import masks as token_masks
from engines.native.sample.sampler import Sampler
from engines.native.state import pinned
from engines.native.step import Int32, TokenMasks


class TritonSampler(Sampler):
    """Adjustments (penalties, bias, barred stop tokens) are made by the Adjuster before the kernels, outside graphs."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        super().__init__(rows, vocab, device)
        self._sent = False  # whether the device columns hold what the host's do
        one = torch.zeros(1, 1, dtype=torch.int32, device=device)  # stands for what no flag lets the kernels read
        self._table = sampling.SamplingTable(
            temperature=torch.zeros(rows + 1, device=device),
            top_k=torch.zeros(rows + 1, dtype=torch.int32, device=device),
            top_p=torch.ones(rows + 1, device=device),
            min_p=torch.zeros(rows + 1, device=device),
            repetition=one, presence=one, frequency=one,
            seed=torch.zeros(rows + 1, dtype=torch.int64, device=device),
            output_counts=one, in_prompt=one, bias_ids=one, bias_values=one, bias_len=one,
            barred_ids=one, barred_len=one, first_stop=one,
        )  # fmt: skip

    def fill(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        super().fill(row, token_ids, params, prompt_len)
        self._sent = False

    def send(self) -> None:
        """Bring the device columns up to date: before `draw`, outside a graph."""
        if self._sent:
            return
        self._sent = True
        table = self._table
        columns = (
            self._floats[:, 0],
            self._floats[:, 1],
            self._floats[:, 2],
            self._top_k.astype(np.int32),
            self._seeds,
        )
        targets = (table.temperature, table.top_p, table.min_p, table.top_k, table.seed)
        for column, target in zip(columns, targets, strict=True):
            target[:-1].copy_(pinned(np.ascontiguousarray(column), self.device), non_blocking=True)

    def plain(self, rows: Int32) -> bool:
        """Whether the draw for `rows` is `draw` alone: nobody asks for adjustments or log-probabilities."""
        return not self.adjuster.concerns(rows.tolist()) and bool((self.logprobs[rows] < 0).all())

    def filters(self, rows: Int32) -> bool:
        return bool(self._filtered[rows].any())

    def draw(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
        filters: bool,
        append: sampling.Append | None = None,
    ) -> torch.Tensor:
        """logits [m, vocab], contiguous; rows int32 [m], where the last row of the tables is padding; positions int
        [m] → token ids int32 [m], entered in `append` too. No work on the host."""
        tokens, _ = sampling.sample(
            logits, rows, positions, self._table, penalties=False, bias=False, filters=filters, scored=False,
            append=append,
        )  # fmt: skip
        return tokens

    def sample(
        self, logits: torch.Tensor, rows: Int32, positions: Int32, masks: TokenMasks | None = None
    ) -> torch.Tensor:
        """As `Sampler.sample`, but `logits` stay as they are: adjusted rows are drawn once more, from a copy."""
        self.send()
        masked = set() if masks is None else set(masks.places.tolist())
        adjusted = np.array(
            [p for p, row in enumerate(rows.tolist()) if p in masked or self.adjuster.concerns([row])], np.int64
        )
        if len(adjusted) == len(rows):
            return self._adjusted(logits.to(torch.float32, copy=True), rows, positions, masks)
        tokens = self._draw_for(logits, rows, positions)
        if len(adjusted):
            places = self._send(adjusted)
            of_lines = None if masks is None else masks.of(adjusted)
            tokens[places] = self._adjusted(logits[places].float(), rows[adjusted], positions[adjusted], of_lines)
        return tokens

    def _adjusted(self, lines: torch.Tensor, rows: Int32, positions: Int32, masks: TokenMasks | None) -> torch.Tensor:
        """lines: float32 [k, vocab], of their own, written over."""
        if masks is not None:
            token_masks.apply(lines, masks)
        self.adjuster.apply(lines, rows, positions)
        tokens = self._draw_for(lines, rows, positions)
        self.adjuster.count(rows, tokens)
        return tokens

    def _draw_for(self, logits: torch.Tensor, rows: Int32, positions: Int32) -> torch.Tensor:
        own, at = self._send(rows.astype(np.int32)), self._send(positions.astype(np.int64))
        return self.draw(logits, own, at, self.filters(rows)).long()

    def _send(self, values: np.ndarray[tuple[int], np.dtype[np.generic]]) -> torch.Tensor:
        return pinned(values, self.device).to(self.device, non_blocking=True)
