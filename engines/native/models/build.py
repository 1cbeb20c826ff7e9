"""A decoder's weights from a model's files: read, merged, put into the engine's dtype, moved to its device.

What an architecture does to its activations is done to its weights here wherever that comes to the same, so that a step
pays nothing for it: norms that add one, multipliers of residuals (into o and down) and of logits (into the last norm),
the order of rotated pairs (of the rows of q and k), and LayerNorm: it is RMSNorm once all that is added to the residual
stream has mean 0, so the mean is taken out of the embedding and of the columns of o and down.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.config import ConfigError
from engines.native.layers.embedding import (
    CenteredEmbedding,
    ColumnEmbedding,
    Embedding,
    Int8Embedding,
    Int8Head,
    Int8Table,
    ScaledEmbedding,
    TableEmbedding,
)
from engines.native.layers.linear import CappedLinear, DenseLinear, Linear, Method, TransposedLinear, method_for
from engines.native.layers.rope import cos_sin_table, reordered, row_order
from engines.native.layers.router import router_for
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.names import FUSED
from engines.native.loader.weights import Weights
from engines.native.models.blocks import LatentWeights, LayerWeights, MoeWeights
from engines.native.models.calibration import calibration_ids
from engines.native.models.config import DecoderConfig, Rope
from engines.native.models.decoder import DecoderWeights
from engines.native.models.smooth import RawLayer, Smoother
from engines.native.offload import Offload, OffloadedLayer

Progress = Callable[[float], None]
"""Called with the share of the weights that is loaded, 0…1."""
WIDEST_GPU_HEAD = 256
"""Head size that the attention kernels take."""

_TORCH = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # activations
}


def activation_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that activations and the KV cache have when the engine's dtype is `dtype`."""
    return _TORCH[dtype]


def check_device(config: DecoderConfig, device: torch.device) -> None:
    """Raises ConfigError for a shape that no kernel of the device computes."""
    if device.type == "cuda" and config.head_dim > WIDEST_GPU_HEAD:
        what = "latent attention reads" if config.latent else "a head has"
        raise ConfigError(
            f"device is 'cuda', but {what} {config.head_dim} values of a token and the attention kernels take "
            f"{WIDEST_GPU_HEAD}: a {config.architecture} model of this shape runs with device 'cpu' only"
        )


def load_weights(
    files: ModelFiles,
    dtype: str,
    device: torch.device,
    positions: int,
    progress: Progress,
    *,
    strict: bool = False,
    embedding_dtype: str = "auto",
    offload_layers: int = 0,
    offload_to: str = "host",
) -> DecoderWeights:
    """positions: length of the rotary table, tokens. strict: no product whose sums change with the rows beside it.
    embedding_dtype: "auto" or "int8". offload_layers: that many don't stay on the device (`engines.native.offload`).
    Raises ConfigError for what cannot be served so."""
    check_device(files.config, device)
    if strict and embedding_dtype == "int8" and files.config.tied and dtype != "int8":
        raise ConfigError(
            "options.embedding_dtype is 'int8' and options.strict is true, but the head of this model is its embedding "
            "table, and products with it in 8 bits depend on the rows beside; set one of the two to its default"
        )
    offload = None
    if offload_layers:
        reader = _LayerReader(files, dtype)
        offload = Offload(reader, device, layers=files.config.layers, count=offload_layers, to=offload_to)
    with Weights(files) as weights, torch.inference_mode():
        loader = _Loader(files, weights, dtype, device, method_for(dtype, device.type))
        return loader.load(progress, positions, strict=strict, int8_table=embedding_dtype == "int8", offload=offload)


class _LayerReader:
    """Reads one layer after the other from files that are opened for each: their pages don't stay."""

    def __init__(self, files: ModelFiles, dtype: str) -> None:
        self._files, self._dtype = files, dtype

    def __call__(self, index: int) -> LayerWeights:
        """On the CPU, as plain tensors whatever the device."""
        with Weights(self._files) as weights, torch.inference_mode():
            return _Loader(self._files, weights, self._dtype, torch.device("cpu"), DenseLinear).layer(index)


class _Loader:
    """Reads layer by layer, so that no more than one is in memory in both its forms."""

    def __init__(self, files: ModelFiles, weights: Weights, dtype: str, device: torch.device, method: Method) -> None:
        self._files, self._weights, self._device = files, weights, device
        self._config = files.config
        self._dtype = activation_dtype(dtype)
        self._method = method
        self._int8 = dtype == "int8"
        self._centered = self._config.norm == "layer"
        # 1 + weight has more digits than bfloat16: Gemma computes its norms in float32.
        wide = self._config.norm_offset or self._config.form == "sandwich"
        self._norm_dtype = torch.float32 if wide else self._dtype

    def load(
        self, progress: Progress, positions: int, *, strict: bool, int8_table: bool, offload: Offload | None
    ) -> DecoderWeights:
        config = self._config
        self._row_head = self._device.type == "cpu" and not strict  # one row times [in, out] is fast: other sums
        self._int8_table = int8_table
        cos_sin = self._tables(positions)
        table = self._embedding()
        smoother = None
        if self._int8:
            embed = self._adjusted(TableEmbedding(table, self._dtype))
            smoother = Smoother(config, embed, cos_sin, calibration_ids(self._files))
        layers: list[LayerWeights | OffloadedLayer] = []
        for index in range(config.layers):
            if offload is not None and index in offload.indices:
                layers.append(offload.take(index))
            else:
                layers.append(self.layer(index, smoother))
            progress((index + 1) / (config.layers + 1))
        if offload is not None:
            offload.start()
        norm = self._norm("norm").mul_(config.logit_scale)
        embed, head = self._ends(table, norm, smoother)
        return DecoderWeights(embed, layers, norm, head, cos_sin)

    def ends(self, positions: int) -> DecoderWeights:
        self._row_head, self._int8_table = False, False
        norm = self._norm("norm").mul_(self._config.logit_scale)
        embed, head = self._ends(self._embedding(), norm, None)
        return DecoderWeights(embed, [], norm, head, self._tables(positions))

    def layer(self, index: int, smoother: Smoother | None = None) -> LayerWeights:
        prefix = f"layers.{index}"
        if self._config.latent is not None or self._config.sparse(index):
            return self._mixed(prefix, index)
        raw = self._raw(prefix, index)
        if smoother is not None:
            smoother.layer(raw)
        return self._layer(raw)

    def _ends(self, table: torch.Tensor, norm: torch.Tensor, smoother: Smoother | None) -> tuple[Embedding, Linear]:
        """Embedding and head; one tensor where they are tied and the head keeps it whole."""
        tied = self._config.tied
        if smoother is not None:
            embed = self._table(table, torch.float16)  # before the head's factors go into the table
            weight = table if tied else self._head()
            smoother.head(norm, weight)
            return self._adjusted(embed), self._capped(self._method(weight, None))
        if tied and self._int8_table:
            shared = Int8Table.of(table)
            return self._adjusted(Int8Embedding(shared, self._dtype)), self._capped(Int8Head(shared, self._dtype))
        if tied and self._row_head:
            transposed = TransposedLinear(table, None)
            return self._adjusted(ColumnEmbedding(transposed.weight)), self._capped(transposed)
        head = self._method(table if tied else self._head(), None)
        return self._adjusted(self._table(table, self._dtype)), self._capped(head)

    def _table(self, table: torch.Tensor, kept: torch.dtype) -> Embedding:
        """An embedding beside a head of its own. kept: dtype of the table where none is asked for."""
        if self._int8_table:
            return Int8Embedding(Int8Table.of(table), self._dtype)
        return TableEmbedding(table.to(kept), self._dtype)

    def _head(self) -> torch.Tensor:
        weight = self._consumed("head.weight")
        return torch.nn.functional.normalize(weight) if self._config.normed_head else weight

    def _adjusted(self, embed: Embedding) -> Embedding:
        if self._config.embedding_scale != 1:
            embed = ScaledEmbedding(embed, self._config.embedding_scale, self._dtype)
        return CenteredEmbedding(embed) if self._centered else embed

    def _capped(self, head: Linear) -> Linear:
        cap = self._config.logit_softcap
        return CappedLinear(head, cap) if cap else head

    def _tables(self, positions: int) -> list[torch.Tensor]:
        """One for each kind of rotation, and for each layer the one that is its own."""
        config = self._config
        factors = self._weights.read("rope_factors.weight", torch.float32) if config.rope.kind == "factors" else None
        size = config.latent.rope_dim if config.latent else config.head_dim
        made: dict[Rope | None, torch.Tensor] = {}
        for layer in range(config.layers):
            rope = config.rope_of(layer)
            if rope not in made:
                made[rope] = cos_sin_table(rope, size, positions, factors).to(self._device)
        return [made[config.rope_of(layer)] for layer in range(config.layers)]

    # Tensors

    def _tensor(self, name: str) -> torch.Tensor:
        return self._weights.read(name, self._dtype, self._device)

    def _consumed(self, name: str) -> torch.Tensor:
        """Of a product whose method makes its own form of it: read from the file as it lies there, where it can be."""
        if self._device.type == "cpu" and self._method is not DenseLinear:
            return self._weights.lent(name, self._dtype)
        return self._tensor(name)

    def _stacked(self, names: list[str]) -> torch.Tensor:
        """Tensors whose rows follow each other in one, each read straight into its place."""
        shapes = [self._files.tensors[name].shape for name in names]
        counts = [shape[0] for shape in shapes]
        whole = torch.empty(sum(counts), *shapes[0][1:], dtype=self._dtype, device=self._device)
        first = 0
        for name, count in zip(names, counts, strict=True):
            self._weights.into(name, whole[first : first + count])
            first += count
        return whole

    def _embedding(self) -> torch.Tensor:
        """The table, laid out for a head that shares it."""
        if not (self._config.tied and self._row_head) or self._int8 or self._int8_table:
            return self._tensor("embed.weight")
        vocab, hidden = self._files.tensors["embed.weight"].shape
        table = torch.empty(hidden, vocab, dtype=self._dtype, device=self._device).t()
        self._weights.into("embed.weight", table)
        return table

    def _optional(self, name: str) -> torch.Tensor | None:
        return self._tensor(name) if name in self._files.tensors else None

    def _norm(self, name: str) -> torch.Tensor:
        weight = self._weights.read(f"{name}.weight", self._norm_dtype, self._device)
        return weight.add_(self._config.norm_offset)

    def _optional_norm(self, name: str) -> torch.Tensor | None:
        return self._norm(name) if f"{name}.weight" in self._files.tensors else None

    def _merged(self, prefix: str, whole: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of one product for the parts of `whole`: their rows follow each other in its output."""
        if f"{prefix}.{whole}.weight" in self._files.tensors:
            return self._tensor(f"{prefix}.{whole}.weight"), self._optional(f"{prefix}.{whole}.bias")
        parts = [f"{prefix}.{part}" for part in FUSED[whole]]
        biases = [name for part in parts if (name := f"{part}.bias") in self._files.tensors]
        return self._stacked([f"{part}.weight" for part in parts]), self._stacked(biases) if biases else None

    def _added(self, name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of a product whose output goes into the residual stream."""
        weight, bias = self._consumed(f"{name}.weight"), self._optional(f"{name}.bias")
        for tensor in (weight, bias):
            if tensor is not None and self._config.residual_scale != 1:
                tensor.mul_(self._config.residual_scale)
            if tensor is not None and self._centered:
                tensor.sub_(tensor.float().mean(0, keepdim=True).to(tensor.dtype))
        return weight, bias

    # Layers

    def _qkv(self, prefix: str, order: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        weight, bias = self._merged(prefix, "qkv")
        turned = self._config.q_size + self._config.kv_size
        if order is not None:
            for tensor in (weight, bias):
                if tensor is not None:
                    tensor[:turned] = reordered(tensor[:turned], order)
        return weight, bias

    def _raw(self, prefix: str, index: int) -> RawLayer:
        order = row_order(self._config.rope_of(index), self._config.head_dim)
        qkv, qkv_bias = self._qkv(prefix, order)
        o, o_bias = self._added(f"{prefix}.o")
        gate_up, gate_up_bias = self._merged(prefix, "gate_up")
        down, down_bias = self._added(f"{prefix}.down")
        q_norm, k_norm = self._optional_norm(f"{prefix}.q_norm"), self._optional_norm(f"{prefix}.k_norm")
        return RawLayer(
            input_norm=self._norm(f"{prefix}.input_norm"),
            qkv=qkv,
            qkv_bias=qkv_bias,
            q_norm=None if q_norm is None else reordered(q_norm, order),
            k_norm=None if k_norm is None else reordered(k_norm, order),
            o=o,
            o_bias=o_bias,
            post_norm=self._optional_norm(f"{prefix}.post_norm"),
            gate_up=gate_up,
            gate_up_bias=gate_up_bias,
            down=down,
            down_bias=down_bias,
            after_attention=self._optional_norm(f"{prefix}.after_attention"),
            after_mlp=self._optional_norm(f"{prefix}.after_mlp"),
        )

    def _layer(self, raw: RawLayer) -> LayerWeights:
        return LayerWeights(
            input_norm=raw.input_norm,
            qkv=self._method(raw.qkv, raw.qkv_bias),
            q_norm=raw.q_norm,
            k_norm=raw.k_norm,
            o=self._method(raw.o, raw.o_bias),
            post_norm=raw.post_norm,
            gate_up=self._method(raw.gate_up, raw.gate_up_bias),
            down=self._method(raw.down, raw.down_bias),
            after_attention=raw.after_attention,
            after_mlp=raw.after_mlp,
        )

    def _mixed(self, prefix: str, index: int) -> LayerWeights:
        """A layer of experts, or with latent attention: in floating point only."""
        config = self._config
        layer = LayerWeights(
            input_norm=self._norm(f"{prefix}.input_norm"),
            qkv=None,
            q_norm=None,
            k_norm=None,
            o=self._method(*self._added(f"{prefix}.o")),
            post_norm=self._norm(f"{prefix}.post_norm"),
            gate_up=None,
            down=None,
        )
        if config.latent is not None:
            layer.latent = self._latent(prefix)
        else:
            order = row_order(config.rope_of(index), config.head_dim)
            layer.qkv = self._method(*self._qkv(prefix, order))
            layer.q_norm = self._optional_norm(f"{prefix}.q_norm")
            layer.k_norm = self._optional_norm(f"{prefix}.k_norm")
        if config.sparse(index):
            layer.moe = self._moe(prefix)
        else:
            layer.gate_up = self._method(*self._merged(prefix, "gate_up"))
            layer.down = self._method(*self._added(f"{prefix}.down"))
        return layer

    def _moe(self, prefix: str) -> MoeWeights:
        moe = self._config.moe
        assert moe is not None
        hidden, ffn = self._config.hidden, moe.ffn
        gate_up = torch.empty(moe.experts, 2 * ffn, hidden, dtype=self._dtype, device=self._device)
        down = torch.empty(moe.experts, hidden, ffn, dtype=self._dtype, device=self._device)
        for expert in range(moe.experts):
            name = f"{prefix}.experts.{expert}"
            self._weights.into(f"{name}.gate.weight", gate_up[expert, :ffn])
            self._weights.into(f"{name}.up.weight", gate_up[expert, ffn:])
            self._weights.into(f"{name}.down.weight", down[expert])
        correction = f"{prefix}.router.bias"
        bias = self._weights.read(correction, torch.float32).to(self._device) if moe.correction else None
        made = MoeWeights(router_for(moe, self._tensor(f"{prefix}.router.weight"), bias), gate_up, down)
        if moe.shared_ffn:
            made.shared_gate_up = self._method(*self._merged(f"{prefix}.shared", "gate_up"))
            made.shared_down = self._method(self._tensor(f"{prefix}.shared.down.weight"), None)
        if moe.shared_gate:
            made.shared_gate = self._method(self._tensor(f"{prefix}.shared_router.weight"), None)
        return made

    def _latent(self, prefix: str) -> LatentWeights:
        config, latent = self._config, self._config.latent
        assert latent is not None
        order = row_order(config.rope, latent.rope_dim)
        inner = "q_b" if latent.q_rank else "q"
        q = self._tensor(f"{prefix}.{inner}.weight").view(config.heads, latent.nope_dim + latent.rope_dim, -1)
        q[:, latent.nope_dim :] = reordered(q[:, latent.nope_dim :].flatten(0, 1), order).view(
            config.heads, latent.rope_dim, -1
        )
        kv_a, kv_a_bias = self._tensor(f"{prefix}.kv_a.weight"), self._optional(f"{prefix}.kv_a.bias")
        for tensor in (kv_a, kv_a_bias):
            if tensor is not None:
                tensor[latent.kv_rank :] = reordered(tensor[latent.kv_rank :], order)
        halves = self._tensor(f"{prefix}.kv_b.weight").view(config.heads, latent.nope_dim + latent.value_dim, -1)
        made = LatentWeights(
            q_a=None,
            q_norm=None,
            q=self._method(q.flatten(0, 1), None),
            kv_a=self._method(kv_a, kv_a_bias),
            kv_norm=self._norm(f"{prefix}.kv_a_norm"),
            key=halves[:, : latent.nope_dim].contiguous(),
            value=halves[:, latent.nope_dim :].transpose(1, 2).contiguous(),
        )
        if latent.q_rank:
            made.q_a = self._method(self._tensor(f"{prefix}.q_a.weight"), self._optional(f"{prefix}.q_a.bias"))
            made.q_norm = self._norm(f"{prefix}.q_a_norm")
        return made


def raw_layer(files: ModelFiles, weights: Weights, index: int) -> RawLayer:
    """One dense layer in float32 on the CPU, for tools that take a model apart."""
    return _Loader(files, weights, "float32", torch.device("cpu"), DenseLinear)._raw(f"layers.{index}", index)


def raw_ends(files: ModelFiles, weights: Weights, positions: int) -> DecoderWeights:
    """What stands around the layers, in float32 on the CPU: DecoderWeights without any. positions: as in
    `load_weights`."""
    return _Loader(files, weights, "float32", torch.device("cpu"), DenseLinear).ends(positions)
