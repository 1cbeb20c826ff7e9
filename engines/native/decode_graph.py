"""A pure decode step as one CUDA graph: inputs from the row tables, layers, head, draw, token into its row.

One graph per (rows, keys, draw), each rounded up to a bucket: padded rows compute on the null block, and attention's
programs for keys that no row has leave at once. The host sends row numbers and lengths, and launches. A graph is
captured after the first step of its bucket, which runs the same body without one and so compiles its kernels; a step's
tokens are therefore the same with and without a graph. Where grammars, penalties or log-probabilities stand between
logits and token, the graph ends at the logits.
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
LOGITS, PLAIN, FILTERED = "logits", "plain", "filtered"
"""How far a graph goes: to the logits; to tokens; to tokens among those that top-k, top-p and min-p leave."""
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
        self._graphs: dict[tuple[int, int, str], _Graph] = {}
        self._logits: torch.Tensor | None = None  # [rows, vocab], of the graphs that end there
        self._stream: torch.cuda.Stream | None = None  # on which graphs are captured
        count = rows_bucket(rows.tokens.shape[0])
        self._places = torch.arange(count + 1, dtype=torch.int32, device=rows.device)

    def takes(self, plan: StepPlan) -> bool:
        return bool((plan.count == 1).all() and plan.sample.all())

    def launch(self, plan: StepPlan) -> torch.Tensor | None:
        """Token ids, int32 [n] on the device, good until the next launch. None where more than a draw is to be done:
        `logits` then."""
        if plan.late or plan.masks is not None or not self._sampler.plain(plan.rows):
            return None
        self._sampler.send()
        return self._run(plan, FILTERED if self._sampler.filters(plan.rows) else PLAIN).tokens[: len(plan.rows)]

    def logits(self, plan: StepPlan) -> torch.Tensor:
        """[n, vocab] on the device, good until the next launch."""
        self._run(plan, LOGITS)
        assert self._logits is not None
        return self._logits[: len(plan.rows)]

    def _run(self, plan: StepPlan, draw: str) -> _Graph:
        n, count = len(plan.rows), rows_bucket(len(plan.rows))
        keys = keys_bucket(int(plan.start.max()) + 1, self._rows.tokens.shape[1])
        step = self._graphs.get((count, keys, draw))
        if step is None:
            step = self._graphs[count, keys, draw] = _Graph(
                torch.empty(2, count, dtype=torch.int32, device=self._rows.device),
                torch.empty(count, dtype=torch.int32, device=self._rows.device),
            )
        sent = np.full((2, count), -1, np.int32)
        sent[0, :n], sent[1, :n], sent[1, n:] = plan.rows, plan.start, 0
        step.sent.copy_(pinned(sent, self._rows.device), non_blocking=True)
        if step.graph is not None:
            step.graph.replay()
            return step
        self._compute(step, keys, draw)
        if not step.plain and len(self._graphs) <= MAX_GRAPHS:
            step.graph = self.capture(step, keys, draw)
        step.plain = step.graph is None
        return step

    def capture(self, step: _Graph, keys: int, draw: str) -> torch.cuda.CUDAGraph | None:
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
                    self._compute(step, keys, draw)
                finally:
                    graph.capture_end()
        except RuntimeError:
            log.exception("no graph for %d rows and %d keys: such steps stay plain", step.sent.shape[1], keys)
            self._stream = None
            return None
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph

    def _compute(self, step: _Graph, keys: int, draw: str) -> None:
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
        logits = model.logits(hidden)
        if draw == LOGITS:
            if self._logits is None:  # before any capture: a graph's own memory is the next graph's, too
                self._logits = torch.empty(
                    len(self._places) - 1, logits.shape[1], dtype=logits.dtype, device=logits.device
                )
            self._logits[:count].copy_(logits)
            return
        append = Append(table.tokens, table.lengths, step.tokens)
        self._sampler.draw(logits, made.lines, made.seq_lens, draw == FILTERED, append)
