"""A pure decode step as one CUDA graph: inputs from the row tables, layers, head, draw, token into its row.

One graph per (rows, keys, filters), each rounded up to a bucket: padded rows compute on the null block, and attention's
programs for keys that no row has leave at once. The host sends row numbers and lengths, and launches. A graph is
captured after the first step of its bucket, which runs the same body without one and so compiles its kernels; a step's
tokens are therefore the same with and without a graph.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engines.native.kernels.prep import prepare
from engines.native.kernels.sampling import Append
from engines.native.ops.base import Batch
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.state import Rows, pinned
from engines.native.step import StepPlan

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder

log = logging.getLogger(__name__)

SMALLEST_KEYS = 512
MAX_GRAPHS = 512
"""Each holds some device memory of the driver's, of which no plan knows."""


def rows_bucket(rows: int) -> int:
    """1, 2, 4, 8, then multiples of 8 to 64, of 16 to 256, of 32 beyond."""
    if rows <= 8:
        return 1 << (rows - 1).bit_length()
    step = 8 if rows <= 64 else 16 if rows <= 256 else 32
    return -(-rows // step) * step


def keys_bucket(keys: int, longest: int) -> int:
    """Quarters of powers of two: a bound on keys sets the length of attention's splits, and a loose one unbalances."""
    if keys <= SMALLEST_KEYS:
        return min(SMALLEST_KEYS, longest)
    step = 1 << ((keys - 1).bit_length() - 3)
    return min(-(-keys // step) * step, longest)


@dataclass(slots=True)
class _Graph:
    """sent: int32 [2, n], rows (−1 is padding) and their lengths before the step. tokens: int32 [n], drawn. plain: no
    graph could be had, and none is tried again."""

    sent: torch.Tensor
    tokens: torch.Tensor
    graph: torch.cuda.CUDAGraph | None = None
    plain: bool = False


class DecodeGraphs:
    """Owned by the runner of a GPU. All graphs share one memory pool: they run one after another."""

    def __init__(self, model: Decoder, rows: Rows, sampler: TritonSampler) -> None:
        self._model, self._rows, self._sampler = model, rows, sampler
        self._graphs: dict[tuple[int, int, bool], _Graph] = {}
        self._stream: torch.cuda.Stream | None = None  # on which graphs are captured
        count = rows_bucket(rows.tokens.shape[0])
        self._places = torch.arange(count + 1, dtype=torch.int32, device=rows.device)

    def takes(self, plan: StepPlan) -> bool:
        whole = plan.masks is None and bool((plan.count == 1).all() and plan.sample.all())
        return whole and self._sampler.plain(plan.rows)

    def launch(self, plan: StepPlan) -> torch.Tensor:
        """Token ids, int32 [n] on the device, good until the next launch."""
        n, count = len(plan.rows), rows_bucket(len(plan.rows))
        keys = keys_bucket(int(plan.start.max()) + 1, self._rows.tokens.shape[1])
        filters = self._sampler.filters(plan.rows)
        self._sampler.send()
        step = self._graphs.get((count, keys, filters))
        if step is None:
            step = self._graphs[count, keys, filters] = _Graph(
                torch.empty(2, count, dtype=torch.int32, device=self._rows.device),
                torch.empty(count, dtype=torch.int32, device=self._rows.device),
            )
        sent = np.full((2, count), -1, np.int32)
        sent[0, :n], sent[1, :n], sent[1, n:] = plan.rows, plan.start, 0
        step.sent.copy_(pinned(sent, self._rows.device), non_blocking=True)
        if step.graph is not None:
            step.graph.replay()
            return step.tokens[:n]
        self._compute(step, keys, filters)
        if not step.plain and len(self._graphs) <= MAX_GRAPHS:
            step.graph = self.capture(step, keys, filters)
        step.plain = step.graph is None
        return step.tokens[:n]

    def capture(self, step: _Graph, keys: int, filters: bool) -> torch.cuda.CUDAGraph | None:
        """Without the clean-up of torch.cuda.graph(), which would empty the allocator's cache in mid-traffic. None
        where the device has no memory for it: the step itself is done, and its bucket goes on without a graph."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    self._compute(step, keys, filters)
                finally:
                    graph.capture_end()
        except RuntimeError:
            log.exception("no graph for %d rows and %d keys: such steps stay plain", step.sent.shape[1], keys)
            self._stream = None
            return None
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph

    def _compute(self, step: _Graph, keys: int, filters: bool) -> None:
        table, model = self._rows, self._model
        rows, starts = step.sent.unbind(0)
        count = len(rows)
        made = prepare(
            table.tokens, table.block_tables, rows, starts, self._places[: count + 1], self._places[:count],
            total=count, logits=count, width=-(-keys // table.block_size), block_size=table.block_size, max_query=1,
        )  # fmt: skip
        hidden = model.hidden(
            Batch(
                token_ids=made.token_ids,
                positions=made.positions,
                slots=made.slots,
                cu_query=self._places[: count + 1],
                seq_lens=made.seq_lens,
                block_tables=made.block_tables,
                logits_index=None,
                max_query=1,
                max_seq=keys,
            )
        )
        self._sampler.draw(
            model.logits(hidden), made.lines, made.seq_lens, filters, Append(table.tokens, table.lengths, step.tokens)
        )
