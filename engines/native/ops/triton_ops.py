"""The operations of a decoder on a GPU: Triton kernels, one launch each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from engines.native.decode_graph import DecodeGraphs
from engines.native.kernels import INTERPRETED, fused
from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Launch, Workspace, plan
from engines.native.kernels.linear import gated_linear, linear, ours
from engines.native.layers.linear import DenseLinear, Linear
from engines.native.layers.quantized_gpu import GatedFor, NormFor, ScaledLinear, UpcastLinear
from engines.native.ops import library_attention
from engines.native.ops.base import AddNorm, Batch
from engines.native.ops.library_attention import LibraryAttention
from engines.native.ops.mixture import grouped_experts
from engines.native.ops.spans import Span
from engines.native.quantized_kv import Pool
from engines.native.sample.triton_sampler import TritonSampler

if TYPE_CHECKING:
    from engines.native.models.decoder import Decoder
    from engines.native.sample.sampler import Sampler
    from engines.native.state import Rows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Where:
    """What belongs to one device."""

    device: Device
    workspace: Workspace
    library: LibraryAttention


@dataclass(frozen=True, slots=True)
class Part:
    """One attention launch. tokens: its queries in the pass; cu_query counts from the first of them. max_seq: bound of
    seq_lens. pairs: whether it reads pools in 8 bits. prompts: how many whole prompts a library attends to instead, 0
    for the kernel. ancestors: of these queries, as in `Batch`."""

    tokens: slice
    cu_query: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    max_seq: int
    pairs: bool
    launch: Launch
    prompts: int
    ancestors: torch.Tensor | None


class TritonOps:
    """Implements `Ops`. Holds one attention workspace per device; every call must come from the same CUDA stream.

    Inputs are contiguous, as the model makes them. Raises ValueError for tensors on a CPU, unless Triton interprets.
    """

    trees = True
    _write: Callable[..., torch.Tensor] = staticmethod(fused.rope_and_cache)

    def __init__(self) -> None:
        self._devices: dict[torch.device, _Where] = {}

    def linear(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, DenseLinear) and self._few(x, layer):
            return linear(x, layer.weight, layer.bias, splits=False)
        return layer(x)

    def summands(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, DenseLinear) and self._few(x, layer):
            return linear(x, layer.weight, layer.bias, splits=True)
        return layer.summands(x) if isinstance(layer, UpcastLinear) else layer(x)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return fused.rms_norm(x, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return fused.add_rms_norm(x, residual, weight, eps), residual

    def add_rms_norm_for(self, layer: Linear | None) -> AddNorm:
        return NormFor(layer, self.add_rms_norm) if isinstance(layer, ScaledLinear) else self.add_rms_norm

    def silu_gated_for(self, down: Linear) -> Callable[[Linear, torch.Tensor], torch.Tensor]:
        return GatedFor(down, self.silu_gated) if isinstance(down, ScaledLinear) else self.silu_gated

    def rope_and_cache(
        self,
        qkv: torch.Tensor,
        cos_sin: torch.Tensor,
        batch: Batch,
        k_cache: Pool,
        v_cache: Pool,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        keys = None
        if self._prompts(batch, k_cache):
            kv_heads, _, size = k_cache.shape[1:]
            keys = torch.empty(qkv.shape[-2], kv_heads, size, dtype=k_cache.dtype, device=qkv.device)
            values = qkv[:, -kv_heads * size :].view(-1, kv_heads, size)
            batch.shared["keys and values"] = keys, values  # of this layer, for `attention`
        return self._write(qkv, cos_sin, batch.positions, batch.slots, k_cache, v_cache, q_norm, k_norm, eps, keys)

    def _prompts(self, batch: Batch, k_cache: Pool) -> dict[int, int]:
        """Place in `batch.spans` → how many of the first tokens of its prompts a library takes, if any."""
        found: dict[int, int] | None = batch.shared.get("prompts")
        if found is None:
            library, size = self._on(k_cache.device).library, k_cache.shape[3]
            asked = ((place, span.prompt) for place, span in enumerate(batch.spans) if span.prompt)
            taken = ((place, library.takes(prompt, size, k_cache.dtype)) for place, prompt in asked)
            found = batch.shared["prompts"] = {place: head for place, head in taken if head}
        return found

    def attention(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        return self.capped_attention(q, k_cache, v_cache, batch, scale, window, 0.0)

    def capped_attention(
        self,
        q: torch.Tensor,
        k_cache: Pool,
        v_cache: Pool,
        batch: Batch,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        name = f"attention {window}, capped" if softcap else f"attention {window}"
        parts: list[Part] | None = batch.shared.get(name)
        if parts is None:
            prompts = {} if softcap else self._prompts(batch, k_cache)  # the library knows no caps
            parts = batch.shared[name] = self._parts(q, k_cache, batch, window, prompts)
        if len(parts) == 1 and parts[0].prompts:
            return _whole_prompts(q, None, batch, parts[0], scale)
        workspace, out = self._on(q.device).workspace, torch.empty_like(q)
        for part in parts:
            if part.prompts:
                _whole_prompts(q, out[part.tokens], batch, part, scale)
                continue
            keys, values, tables = self._read(k_cache, v_cache, part)
            paged_attention(
                q[part.tokens], keys, values, out[part.tokens], part.cu_query, part.seq_lens, tables,
                scale=scale, window=window, softcap=softcap, launch=part.launch, workspace=workspace,
                ancestors=part.ancestors,
            )  # fmt: skip
        return out

    def _pairs(self, rows: int, max_query: int, max_seq: int) -> bool:
        """Whether such a launch reads pools in 8 bits."""
        return False

    def _read(self, k_cache: Pool, v_cache: Pool, part: Part) -> tuple[Pool, Pool, torch.Tensor]:
        """Pools and block tables that a launch reads."""
        return k_cache, v_cache, part.block_tables

    def _parts(self, q: torch.Tensor, k_cache: Pool, batch: Batch, window: int, prompts: dict[int, int]) -> list[Part]:
        """A launch for each span: a tile for a chunk is mostly empty for a row with one query. prompts: as `_prompts`
        gives them."""
        device = self._on(q.device).device
        kv_heads, _, head_dim = k_cache.shape[1:]
        parts: list[Part] = []

        def add(
            rows: slice, tokens: slice, cu_query: torch.Tensor, max_query: int, max_seq: int, whole: int,
            words: torch.Tensor | None = None,
        ) -> None:  # fmt: skip
            pairs = self._pairs(rows.stop - rows.start, max_query, max_seq)
            launch = plan(
                tokens=tokens.stop - tokens.start, rows=rows.stop - rows.start, group=q.shape[1] // kv_heads,
                kv_heads=kv_heads, head_dim=head_dim, max_query=max_query, max_seq=max_seq, window=window,
                dtype=q.dtype, device=device, pairs=pairs, tree=words is not None,
            )  # fmt: skip
            lengths, tables = batch.seq_lens[rows], batch.block_tables[rows]
            own = None if words is None else words[tokens]
            parts.append(Part(tokens, cu_query, lengths, tables, max_seq, pairs, launch, whole, own))

        everything = Span(slice(0, len(batch.seq_lens)), slice(0, len(q)), batch.max_query, tree=True)
        for place, span in enumerate(batch.spans or [everything]):
            rows, tokens = span.rows, span.tokens
            cu_query = batch.cu_query[rows.start : rows.stop + 1]
            cu_query = cu_query - tokens.start if tokens.start else cu_query
            head = prompts.get(place, 0)
            if not head or 0 < window < span.prompt:
                words = batch.ancestors if span.tree and not span.prompt else None
                add(rows, tokens, cu_query, span.max_query, span.prompt or batch.max_seq, 0, words)
            elif head == span.prompt:
                add(rows, tokens, cu_query, head, head, rows.stop - rows.start)
            else:  # the rest of each prompt is a chunk behind its head
                rest = span.prompt - head
                ends = torch.arange(0, 2 * rest, rest, dtype=torch.int32, device=q.device)
                for index, first in enumerate(range(tokens.start, tokens.stop, span.prompt)):
                    one = slice(rows.start + index, rows.start + index + 1)
                    add(one, slice(first, first + head), cu_query, head, head, 1)
                    add(one, slice(first + head, first + span.prompt), ends, rest, span.prompt, 0)
        return parts

    def latent_rope_and_cache(
        self, q: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor, batch: Batch, cache: torch.Tensor
    ) -> torch.Tensor:
        raise ValueError("latent attention has no kernel yet: serve this model with device 'cpu'")

    def silu_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        if isinstance(gate_up, DenseLinear) and self._few(x, gate_up, gated=True):
            return gated_linear(x, gate_up.weight, gate_up.bias)
        if isinstance(gate_up, UpcastLinear):
            return gate_up.gated(x)
        return fused.silu_mul(gate_up(x))

    def gelu_tanh_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def experts(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        return grouped_experts(x, shares, chosen, gate_up, down)

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        return TritonSampler(rows, vocab, device)

    def graphs(self, model: Decoder, rows: Rows, sampler: Sampler) -> DecodeGraphs | None:
        if rows.device.type != "cuda" or not isinstance(sampler, TritonSampler):
            return None
        if model.config.moe is not None:
            log.info("decode steps run without graphs: which experts a step needs is read back from the device")
            return None
        return DecodeGraphs(model, rows, sampler)

    def _few(self, x: torch.Tensor, layer: DenseLinear, gated: bool = False) -> bool:
        """Whether x's rows are few enough for our kernel, on a device it was measured on, in a dtype of its tiles."""
        outputs = len(layer.weight) // (2 if gated else 1)
        if not ours(rows=len(x), outputs=outputs, gated=gated) or x.dtype not in (torch.bfloat16, torch.float16):
            return False
        return self._on(x.device).device.capability[0] == 9

    def _on(self, device: torch.device) -> _Where:
        if device not in self._devices:
            if device.type != "cuda" and not INTERPRETED:
                raise ValueError(f"Triton kernels need a CUDA device, not {device}; use the operations named 'torch'")
            self._devices[device] = _Where(Device.of(device), Workspace(device), LibraryAttention(device))
        return self._devices[device]


def _whole_prompts(
    q: torch.Tensor, out: torch.Tensor | None, batch: Batch, part: Part, scale: float
) -> torch.Tensor:  # fmt: skip
    keys, values = batch.shared["keys and values"]
    at = part.tokens
    return library_attention.attend(q[at], keys[at], values[at], out, part.prompts, scale)
