"""What a request has on the device for as long as it holds its row: tokens, length, block table. And the KV pool.

The runner owns all of it; the scheduler says which row and which block is whose. Everything is made once and keeps
its address, so that a captured graph may read it.
"""

from __future__ import annotations

import numpy as np
import torch

from engines.native.step import Int32, StepPlan, Verified


class Rows:
    """Tables with one line per row, on `device`.

    tokens: int32 [rows + 1, max_model_len], prompt and output. lengths: int32 [rows + 1], known tokens.
    block_tables: int32 [rows + 1, blocks of a full sequence]; unused entries are 0, the null block.
    The last line belongs to nobody: padding points at it.
    """

    def __init__(self, rows: int, max_model_len: int, block_size: int, device: torch.device) -> None:
        self.device, self.block_size = device, block_size
        width = -(-max_model_len // block_size)
        self.tokens = torch.zeros(rows + 1, max_model_len, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        self.block_tables = torch.zeros(rows + 1, width, dtype=torch.int32, device=device)

    def fill(self, row: int, token_ids: list[int]) -> None:
        self.tokens[row, : len(token_ids)] = self.send(np.array(token_ids, np.int32))
        self.lengths[row] = len(token_ids)
        self.block_tables[row].zero_()

    def append_blocks(self, plan: StepPlan) -> None:
        """Enter the plan's new blocks, all of them in one write."""
        if not plan.new_blocks:
            return
        width = self.block_tables.shape[1]
        places = [row * width + first + i for row, first, ids in plan.new_blocks for i in range(len(ids))]
        blocks = [block for _, _, ids in plan.new_blocks for block in ids]
        self.block_tables.view(-1)[self.send(np.array(places, np.int64))] = self.send(np.array(blocks, np.int32))

    def append_tokens(self, rows: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> None:
        """Token i of `tokens` (int64 [m]) becomes number `positions[i]` of row `rows[i]` (both int64 [m])."""
        self.tokens[rows, positions] = tokens.int()
        self.lengths[rows] = (positions + 1).int()

    def write_drafts(self, plan: StepPlan) -> None:
        """Draft tokens go behind their row's last token for as long as they are tried out; its length stays."""
        drafts = plan.drafts
        assert drafts is not None
        lines, nodes = np.nonzero(np.arange(drafts.width) < drafts.nodes[:, None])
        if not len(lines):
            return
        columns = [plan.rows[lines], plan.start[lines] + 1 + nodes, drafts.tokens[lines, nodes]]
        rows, places, tokens = self.send(np.stack(columns).astype(np.int64))
        self.tokens[rows, places] = tokens.int()

    def append_verified(self, plan: StepPlan, said: Verified) -> None:
        """What a pass with drafts has said follows each row's last token."""
        lines, nodes = np.nonzero(np.arange(said.tokens.shape[1]) < said.counts[:, None])
        first = plan.start + plan.count
        if plan.drafts is not None:
            first[: len(plan.drafts.nodes)] -= plan.drafts.nodes
        columns = [plan.rows[lines], first[lines] + nodes, said.tokens[lines, nodes]]
        rows, places, tokens = self.send(np.stack(columns).astype(np.int64))
        self.tokens[rows, places] = tokens.int()
        ends = np.stack([plan.rows, first + said.counts]).astype(np.int64)[:, said.counts > 0]
        own, lengths = self.send(np.ascontiguousarray(ends))
        self.lengths[own] = lengths.int()

    def send(self, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> torch.Tensor:
        """A host array on the device, without waiting for it."""
        return pinned(values, self.device).to(self.device, non_blocking=True)


def pinned(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], device: torch.device) -> torch.Tensor:
    """A host array ready to be copied to `device`: from unpinned memory the copy would wait for what a GPU is doing."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory() if device.type == "cuda" else tensor


class Arriving:
    """A tensor's values on their way to the host, in the order of the stream; it may be written over afterwards."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values.to("cpu", non_blocking=True)  # from a GPU: into pinned memory
        self._done = torch.cuda.Event() if values.is_cuda else None  # type: ignore[no-untyped-call] # torch's
        if self._done is not None:
            self._done.record()

    def wait(self) -> Int32:
        if self._done is not None:
            self._done.synchronize()
        return self._values.numpy()


class StepInputs:
    """Device indices of one plan: computed once, read by the model and by the sampler.

    rows, starts, counts: int64 [n]; cu_query: int32 [n + 1]; token_row: int64 [t], batch position of each token;
    positions: int64 [t].
    """

    def __init__(self, plan: StepPlan, table: Rows) -> None:
        count = plan.count
        self.cu_host: Int32 = np.zeros(len(count) + 1, np.int32)
        np.cumsum(count, out=self.cu_host[1:])
        packed = table.send(np.concatenate([plan.rows, plan.start, count, self.cu_host]))
        n = len(count)
        self.rows, self.starts = packed[:n].long(), packed[n : 2 * n].long()
        self.seq_lens = packed[n : 2 * n] + packed[2 * n : 3 * n]
        self.cu_query = packed[3 * n :]
        total = int(self.cu_host[-1])
        if total == n:  # one token each
            self.token_row = torch.arange(n, device=table.device)
            self.positions = self.starts
        else:
            counts = packed[2 * n : 3 * n].long()
            self.token_row = torch.repeat_interleave(counts, output_size=total)
            first = (self.starts - self.cu_query[:-1])[self.token_row]
            self.positions = first + torch.arange(total, device=table.device)


def kv_pool(
    layers: int,
    blocks: int,
    kv_heads: int,
    block_size: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    shared: bool = False,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Per layer, K and V [blocks, kv heads, block size, head size], zeroed. shared: K and V are one tensor, as latent
    attention has them."""

    def pool() -> torch.Tensor:
        return kv_plane(blocks, kv_heads, block_size, (head_dim,), dtype, device)

    keys = [pool() for _ in range(layers)]
    return [(k, k if shared else pool()) for k in keys]


def kv_plane(
    blocks: int, kv_heads: int, block_size: int, item: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """[blocks, kv heads, block size, *item], zeroed. On a CPU it is head-major in memory: a head's tokens follow each
    other over blocks that follow each other."""
    if device.type == "cpu":
        return torch.zeros(kv_heads, blocks, block_size, *item, dtype=dtype).transpose(0, 1)
    return torch.zeros(blocks, kv_heads, block_size, *item, dtype=dtype, device=device)
