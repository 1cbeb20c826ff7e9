"""A pure decode step as one CUDA graph: inputs from the row tables, layers, head, draw, token into its row.

One graph per (rows, keys, draw), each rounded up to a bucket: padded rows compute on the null block, and attention's
programs for keys that no row has leave at once. The host sends row numbers and lengths, and launches. A graph is
captured after the first step of its bucket, which runs the same body without one and so compiles its kernels; a step's
tokens are therefore the same with and without a graph. Where grammars, penalties or log-probabilities stand between
logits and token, the graph ends at the logits; a draw under grammars alone is a second, small graph, so that the host
does little between a token and the next one's mask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engines.native.graph_buckets import keys_bucket, rows_bucket
from engines.native.kernels.masks import mask_logits
from engines.native.kernels.prep import prepare
from engines.native.kernels.sampling import Append
from engines.native.ops.base import Batch
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.state import Rows, pinned
from engines.native.step import StepPlan, TokenMasks
from engines.native.verify_graph import VerifyGraphs

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder

log = logging.getLogger(__name__)

LOGITS, PLAIN, FILTERED = "logits", "plain", "filtered"
"""How far a graph goes: to the logits; to tokens; to tokens among those that top-k, top-p and min-p leave."""
MAX_GRAPHS = 512
"""Each holds some device memory of the driver's, of which no plan knows."""


@dataclass(slots=True)
class _Graph:
    """sent: int32 [2, n], rows (−1 is padding) and their lengths before the step. tokens: int32 [n], drawn. plain: no
    graph could be had, and none is tried again."""

    sent: torch.Tensor
    tokens: torch.Tensor
    graph: torch.cuda.CUDAGraph | None = None
    plain: bool = False


@dataclass(slots=True)
class _Left:
    """What graphs that end at the logits leave for the draw, and what it gives. logits [rows, vocab]; lines int32 and
    seq_lens int32 [rows], as of `Prepared`; bits int32 [rows, words], the masks; tokens int32 [rows], drawn."""

    logits: torch.Tensor
    lines: torch.Tensor
    seq_lens: torch.Tensor
    bits: torch.Tensor
    tokens: torch.Tensor

    @staticmethod
    def like(logits: torch.Tensor, rows: int) -> _Left:
        vocab, device = logits.shape[1], logits.device
        lines, lengths, tokens = torch.zeros(3, rows, dtype=torch.int32, device=device).unbind(0)
        bits = torch.full((rows, -(-vocab // 32)), -1, dtype=torch.int32, device=device)
        return _Left(torch.empty(rows, vocab, dtype=logits.dtype, device=device), lines, lengths, bits, tokens)


@dataclass(slots=True)
class _Draw:
    """As `_Graph`, of a draw alone."""

    graph: torch.cuda.CUDAGraph | None = None
    plain: bool = False


class DecodeGraphs:
    """Owned by the runner of a GPU. All graphs share one memory pool: they run one after another."""

    def __init__(self, model: Decoder, rows: Rows, sampler: TritonSampler) -> None:
        self._model, self._rows, self._sampler = model, rows, sampler
        self._graphs: dict[tuple[int, int, str], _Graph] = {}
        self._draws: dict[tuple[int, bool], _Draw] = {}  # by rows, filters
        self._left: _Left | None = None
        self._stream: torch.cuda.Stream | None = None  # on which graphs are captured
        self.captured = 0  # graphs, those of passes with drafts among them
        count = rows_bucket(rows.tokens.shape[0])
        self._places = torch.arange(count + 1, dtype=torch.int32, device=rows.device)
        self._every = self._places[:count].long()

    def verifying(self) -> VerifyGraphs:
        """Those of passes with drafts, in the same memory."""
        return VerifyGraphs(self._model, self._rows, self._sampler, self.capture)

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
        assert self._left is not None
        return self._left.logits[: len(plan.rows)]

    def draws(self, plan: StepPlan) -> bool:
        """Whether `draw` is all that is left to do after `logits`."""
        return self._sampler.plain(plan.rows)

    def draw(self, plan: StepPlan, masks: TokenMasks | None) -> torch.Tensor:
        """After `logits` of the same plan, which it writes over: token ids, int32 [n] on the device, entered in their
        rows, good until the next launch."""
        left, n, count = self._left, len(plan.rows), rows_bucket(len(plan.rows))
        assert left is not None
        self._sampler.send()
        bits = np.full((count, left.bits.shape[1]), -1, np.int32)
        if masks is not None:
            bits[masks.places] = masks.bits
        left.bits[:count].copy_(pinned(bits, self._rows.device), non_blocking=True)
        filters = self._sampler.filters(plan.rows)
        step = self._draws.setdefault((count, filters), _Draw())
        if step.graph is not None:
            step.graph.replay()
            return left.tokens[:n]
        self._draw_left(left, count, filters)
        if not step.plain and len(self._graphs) + len(self._draws) <= MAX_GRAPHS:
            step.graph = self.capture(lambda: self._draw_left(left, count, filters), f"draws of {count} rows")
        step.plain = step.graph is None
        return left.tokens[:n]

    def _draw_left(self, left: _Left, count: int, filters: bool) -> None:
        logits = left.logits[:count]
        mask_logits(logits, self._every[:count], left.bits[:count])
        append = Append(self._rows.tokens, self._rows.lengths, left.tokens[:count])
        self._sampler.draw(logits, left.lines[:count], left.seq_lens[:count], filters, append)

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
        if not step.plain and len(self._graphs) + len(self._draws) <= MAX_GRAPHS:
            what = f"{count} rows and {keys} keys"
            step.graph = self.capture(lambda: self._compute(step, keys, draw), what)
        step.plain = step.graph is None
        return step

    def capture(self, compute: Callable[[], None], what: str) -> torch.cuda.CUDAGraph | None:
        """What `compute` launches, without the clean-up of torch.cuda.graph(), which would empty the allocator's cache
        in mid-traffic. None where the device has no memory for it: the step itself is done, and its bucket goes on
        without a graph."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    compute()
                finally:
                    graph.capture_end()
        except RuntimeError:
            log.exception("no graph for %s: such steps stay plain", what)
            self._stream = None
            return None
        torch.cuda.current_stream().wait_stream(self._stream)
        self.captured += 1
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
            if self._left is None:  # before any capture: a graph's own memory is the next graph's, too
                self._left = _Left.like(logits, len(self._places) - 1)
            left = self._left
            for kept, value in ((left.logits, logits), (left.lines, made.lines), (left.seq_lens, made.seq_lens)):
                kept[:count].copy_(value)
            return
        append = Append(table.tokens, table.lengths, step.tokens)
        self._sampler.draw(logits, made.lines, made.seq_lens, draw == FILTERED, append)
