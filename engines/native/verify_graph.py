"""A pass that verifies trees as one CUDA graph: inputs from the row tables and the drafts, layers, head, a draw behind
each node, which guesses hold, tokens into their rows, KV cache in order.

One graph per (rows, tokens of a row, keys, filters), each rounded up to a bucket, as `decode_graph` has them for plain
steps: a row has 2, 4, 8, 16 or 32 tokens in the pass, of which those without a node compute on the null block. A form
is captured behind its first pass: without a graph one takes ten times as long as a plain step, so that forms which
waited to be seen again would cost more than graphs which are used once. For rows that ask for nothing but a draw; what
is done for all others (`ModelRunner`) needs the host between logits and tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engines.native.graph_buckets import rows_bucket, wide_keys_bucket, width_bucket
from engines.native.kernels.verify import Planes, accept, compact, prepare_trees
from engines.native.ops.base import Batch
from engines.native.quantized_kv import planes
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.speculation.tree import MAX_NODES
from engines.native.state import Arriving, Rows, pinned
from engines.native.step import Drafts, StepOutput, StepPlan, TokenMasks, Verified

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder

MAX_GRAPHS = 256
WIDTHS = (1, 3, 7, 15, 31)
"""Nodes of a row that there are graphs for."""

Capture = Callable[[Callable[[], None], str], torch.cuda.CUDAGraph | None]
"""`DecodeGraphs.capture`."""


@dataclass(slots=True)
class _Graph:
    """sent: int32 [n, 3 + 2 w], as `kernels.verify` takes it; said: int32 [n, 2 + w], as it leaves it; cu_query: int32
    [n + 1]. uses: passes without a graph. plain: no graph could be had, and none is tried again."""

    sent: torch.Tensor
    said: torch.Tensor
    cu_query: torch.Tensor
    graph: torch.cuda.CUDAGraph | None = None
    plain: bool = False


class Verifying:
    """A pass whose tokens are on their way to the host."""

    def __init__(self, said: torch.Tensor, width: int) -> None:
        """said: int32 [n, ≥ 2 + width] on the device; may change after the pass. width: of the plan's drafts."""
        self._said, self._width = Arriving(said), width

    def draw(self, masks: TokenMasks | None) -> None:
        """It was drawn in its graph."""
        raise ValueError("this pass has drawn its tokens")

    def wait(self) -> StepOutput:
        said = self._said.wait()
        count = len(said)
        return StepOutput(
            np.full(count, -1, np.int32),
            np.full(count * (1 + self._width), np.nan, np.float32),
            verified=Verified(said[:, 1 : 2 + self._width], said[:, 0]),
        )


class VerifyGraphs:
    """Owned by the runner of a GPU. capture: of its `DecodeGraphs`, whose memory these graphs share."""

    def __init__(self, model: Decoder, rows: Rows, sampler: TritonSampler, capture: Capture) -> None:
        self._model, self._rows, self._sampler, self._capture = model, rows, sampler, capture
        self._graphs: dict[tuple[int, int, int, bool], _Graph] = {}
        self._captured = 0
        self._planes = Planes.of([plane for layer in model.kv for plane in planes(*layer)])

    def takes(self, plan: StepPlan) -> bool:
        """All rows verify, and ask for nothing that comes between logits and tokens."""
        drafts = plan.drafts
        if drafts is None or plan.late or plan.masks is not None or drafts.width > MAX_NODES:
            return False
        return len(drafts.nodes) == len(plan.rows) and bool(plan.sample.all()) and self._sampler.plain(plan.rows)

    def launch(self, plan: StepPlan) -> Verifying:
        """`takes` has said yes. No token may be guessed beyond the end of its row's table."""
        drafts = plan.drafts
        assert drafts is not None
        self._sampler.send()
        n, count, width = len(plan.rows), rows_bucket(len(plan.rows)), width_bucket(drafts.width)
        first = plan.start + plan.count - drafts.nodes - 1  # where each row's last token stands
        keys = wide_keys_bucket(int(first.max()) + 1 + width, self._rows.tokens.shape[1])
        filters = self._sampler.filters(plan.rows)
        step = self._graphs.get((count, width, keys, filters))
        if step is None:
            step = self._graphs[count, width, keys, filters] = self._empty(count, width)
        sent = np.zeros((count, 3 + 2 * width), np.int32)
        sent[n:, 0] = -1
        sent[:n, 0], sent[:n, 1], sent[:n, 2] = plan.rows, first, drafts.nodes
        sent[:n, 3 : 3 + drafts.width] = drafts.tokens
        sent[:n, 3 + width : 3 + width + drafts.width] = drafts.parents
        step.sent.copy_(pinned(sent, self._rows.device), non_blocking=True)
        self._run(step, width, keys, filters)
        return Verifying(step.said[:n], drafts.width)

    def _empty(self, count: int, width: int) -> _Graph:
        device = self._rows.device
        return _Graph(
            torch.empty(count, 3 + 2 * width, dtype=torch.int32, device=device),
            torch.empty(count, 2 + width, dtype=torch.int32, device=device),
            torch.arange(0, (count + 1) * (width + 1), width + 1, dtype=torch.int32, device=device),
        )

    def _run(self, step: _Graph, width: int, keys: int, filters: bool) -> None:
        if step.graph is not None:
            step.graph.replay()
            return
        self._compute(step, width, keys, filters)
        if not step.plain and self._captured < MAX_GRAPHS:
            self._captured += 1
            what = f"{len(step.sent)} rows with {width} guesses and {keys} keys"
            step.graph = self._capture(lambda: self._compute(step, width, keys, filters), what)
            step.plain = step.graph is None

    def _compute(self, step: _Graph, width: int, keys: int, filters: bool) -> None:
        """Twice over the same drafts it says the same: the row's last token stays where it is."""
        table, model = self._rows, self._model
        size = table.block_size
        made = prepare_trees(table.tokens, table.block_tables, step.sent, width=-(-keys // size), block_size=size)
        hidden = model.hidden(
            Batch(
                token_ids=made.token_ids,
                positions=made.positions,
                slots=made.slots,
                cu_query=step.cu_query,
                seq_lens=made.seq_lens,
                block_tables=made.block_tables,
                logits_index=None,
                max_query=width + 1,
                max_seq=keys,
                ancestors=made.words,
            )
        )
        drawn = self._sampler.draw(model.logits(hidden), made.lines, made.ends, filters)
        paths = accept(step.sent, drawn, table.tokens, table.lengths, step.said)
        compact(self._planes, step.sent, step.said, paths, table.block_tables)


def warm_up_plans(longest: int) -> Iterator[StepPlan]:
    """Passes that compile the kernels of every width, in row 0, whose tokens go to the null block. longest: tokens that
    a row may have."""
    for width in WIDTHS:
        if width + 2 > longest:
            return
        parents = np.zeros((1, width), np.int32)
        nodes = np.array([width], np.int32)
        row, one = np.zeros(1, np.int32), np.ones(1, np.int32)
        drafts = Drafts(np.zeros((1, width), np.int32), parents, nodes, chains=width == 1)
        yield StepPlan(row, one, one + width, sample=one > 0, drafts=drafts)
