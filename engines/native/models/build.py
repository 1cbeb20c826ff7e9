"""A decoder's weights from a model's files: read, merged, put into the engine's dtype, moved to its device.

What an architecture does to its activations is done to its weights here wherever that comes to the same, so that a step
pays nothing for it: norms that add one, multipliers of residuals (into o and down) and of logits (into the last norm),
the order of rotated pairs (of the rows of q and k), and LayerNorm: it is RMSNorm once all that is added to the residual
stream has mean 0, so the mean is taken out of the embedding and of the columns of o and down.
"""

from __future__ import annotations

import logging
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
from engines.native.layers.quantized import Place, QuantizedEmbedding, int8_table, scaled
from engines.native.layers.rope import cos_sin_table, reordered, row_order
from engines.native.layers.router import router_for
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.weights import Weights
from engines.native.models.blocks import LatentWeights, LayerWeights, MoeWeights
from engines.native.models.calibration import calibration_ids
from engines.native.models.config import DecoderConfig, Rope
from engines.native.models.decoder import DecoderWeights
from engines.native.models.products import Products, turned
from engines.native.models.smooth import RawLayer, Smoother
from engines.native.models.tensors import ModelTensors, activation_dtype
from engines.native.offload import Offload, OffloadedLayer

log = logging.getLogger(__name__)

Progress = Callable[[float], None]
"""Called with the share of the weights that is loaded, 0…1."""
WIDEST_GPU_HEAD = 256
"""Head size that the attention kernels take."""


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
    kept: bool = False,
) -> DecoderWeights:
    """positions: length of the rotary table, tokens. strict: no product whose sums change with the rows beside it.
    embedding_dtype: "auto" or "int8". offload_layers: that many don't stay on the device (`engines.native.offload`).
    kept: weights that the files keep in 4 or 8 bits are served so; else they are dequantized.
    Raises ConfigError for what cannot be served so."""
    check_device(files.config, device)
    if files.quantized and not kept and files.format != "gguf":
        log.warning("%d quantized matrices are dequantized at load and take their full size", len(files.quantized))
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
        place = Place(device, activation_dtype(dtype), strict) if kept else None
        method = method_for(dtype, device.type, strict=strict)
        loader = _Loader(files, weights, dtype, device, method, place)
        return loader.load(progress, positions, strict=strict, int8_table=embedding_dtype == "int8", offload=offload)


class _LayerReader:
    """Reads one layer after the other from files that are opened for each: their pages don't stay."""

    def __init__(self, files: ModelFiles, dtype: str) -> None:
        self._files, self._dtype = files, dtype

    def __call__(self, index: int) -> LayerWeights:
        """On the CPU, as plain tensors whatever the device."""
        with Weights(self._files) as weights, torch.inference_mode():
            return _Loader(self._files, weights, self._dtype, torch.device("cpu"), DenseLinear).layer(index)


class _Loader(ModelTensors):
    """Reads layer by layer, so that no more than one is in memory in both its forms."""

    def __init__(
        self,
        files: ModelFiles,
        weights: Weights,
        dtype: str,
        device: torch.device,
        method: Method,
        place: Place | None = None,
    ) -> None:
        """place: where quantized weights are served as they are; None where all are dequantized."""
        super().__init__(files, weights, dtype, device, method, kept=place is not None)
        self._products = Products(place or Place(device, self._dtype), method, self._served)

    def load(
        self, progress: Progress, positions: int, *, strict: bool, int8_table: bool, offload: Offload | None
    ) -> DecoderWeights:
        config = self._config
        self._row_head = self._device.type == "cpu" and not strict  # one row times [in, out] is fast: other sums
        self._int8_table = int8_table
        cos_sin = self._tables(positions)
        table = None if "embed.weight" in self._kept else self._embedding()
        smoother = None
        if self._int8 and table is not None:
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
        self._served.tell()
        return DecoderWeights(embed, layers, norm, head, cos_sin, self._served.facts())

    def ends(self, positions: int) -> DecoderWeights:
        self._row_head, self._int8_table = False, False
        norm = self._norm("norm").mul_(self._config.logit_scale)
        embed, head = self._ends(self._embedding(), norm, None)
        return DecoderWeights(embed, [], norm, head, self._tables(positions))

    def layer(self, index: int, smoother: Smoother | None = None) -> LayerWeights:
        prefix = f"layers.{index}"
        if smoother is None:
            return self._plain(prefix, index)
        raw = self._raw(prefix, index)
        smoother.layer(raw)
        return self._layer(raw)

    def _ends(
        self, table: torch.Tensor | None, norm: torch.Tensor, smoother: Smoother | None
    ) -> tuple[Embedding, Linear]:
        """Embedding and head; one tensor where they are tied and the head keeps it whole. table: None where it is
        quantized."""
        tied = self._config.tied
        if table is None:
            return self._quantized_ends()
        if not tied and "head.weight" in self._kept:
            return self._adjusted(self._table(table, self._dtype)), self._capped(self._quantized_head())
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

    def _quantized_ends(self) -> tuple[Embedding, Linear]:
        """Of a table that is quantized. Its head, where it is tied, reads the same bytes on a GPU if they are int8 per
        row; on a CPU it has its own, in the form that its method is fast with."""
        table = self._weights.quantized("embed.weight").to(self._device)
        shared = int8_table(table)
        embed: Embedding = QuantizedEmbedding(table, self._dtype)
        if shared is not None:
            embed = Int8Embedding(shared, self._dtype)
        if not self._config.tied:
            return self._adjusted(embed), self._capped(self._quantized_head())
        if shared is not None and (self._int8_table or self._device.type == "cuda"):
            self._served.count("int8_table")
            return self._adjusted(embed), self._capped(Int8Head(shared, self._dtype))
        return self._adjusted(embed), self._capped(self._products.of([table], None))

    def _quantized_head(self) -> Linear:
        if self._config.normed_head or "head.weight" not in self._kept:
            return self._method(self._head(), None)
        return self._products.of([self._weights.quantized("head.weight")], None)

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

    # Products

    def _qkv_product(self, prefix: str, order: torch.Tensor | None) -> Linear:
        parts = self._parts(prefix, "qkv")
        if not self._quantized(parts):
            return self._method(*self._qkv(prefix, order))
        read, bias = [self._part(part) for part in parts], self._merged_bias(parts)
        if order is not None:
            size = self._config.q_size + self._config.kv_size

            def reorder(rows: torch.Tensor) -> torch.Tensor:
                return torch.cat([reordered(rows[:size], order), rows[size:]])

            bias = None if bias is None else reorder(bias)
            read = [turned(part, reorder) for part in read[:2]] + read[2:]  # v's rows stay
        return self._products.of(read, bias)

    def _merged_product(self, prefix: str, whole: str) -> Linear:
        parts = self._parts(prefix, whole)
        if not self._quantized(parts):
            return self._method(*self._merged(prefix, whole))
        return self._products.of([self._part(part) for part in parts], self._merged_bias(parts))

    def _added_product(self, name: str) -> Linear:
        if not self._quantized([name]):
            return self._method(*self._added(name))
        bias = self._optional(f"{name}.bias")
        weight = scaled(self._weights.quantized(f"{name}.weight"), self._config.residual_scale)
        if bias is not None:
            bias.mul_(self._config.residual_scale)
        return self._products.of([weight], bias, centered=self._centered)

    def _single_product(self, name: str) -> Linear:
        if not self._quantized([name]):
            return self._method(self._tensor(f"{name}.weight"), self._optional(f"{name}.bias"))
        return self._products.of([self._part(name)], self._optional(f"{name}.bias"))

    # Layers

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

    def _plain(self, prefix: str, index: int) -> LayerWeights:
        config = self._config
        order = row_order(config.rope_of(index), config.head_dim)
        q_norm, k_norm = self._optional_norm(f"{prefix}.q_norm"), self._optional_norm(f"{prefix}.k_norm")
        layer = LayerWeights(
            input_norm=self._norm(f"{prefix}.input_norm"),
            qkv=None,
            q_norm=None if q_norm is None else reordered(q_norm, order),
            k_norm=None if k_norm is None else reordered(k_norm, order),
            o=self._added_product(f"{prefix}.o"),
            post_norm=self._optional_norm(f"{prefix}.post_norm"),
            gate_up=None,
            down=None,
            after_attention=self._optional_norm(f"{prefix}.after_attention"),
            after_mlp=self._optional_norm(f"{prefix}.after_mlp"),
        )
        if config.latent is not None:
            layer.q_norm = layer.k_norm = None
            layer.latent = self._latent(prefix)
        else:
            layer.qkv = self._qkv_product(prefix, order)
        if config.sparse(index):
            layer.moe = self._moe(prefix)
        else:
            layer.gate_up = self._merged_product(prefix, "gate_up")
            layer.down = self._added_product(f"{prefix}.down")
        return layer

    def _moe(self, prefix: str) -> MoeWeights:
        moe = self._config.moe
        assert moe is not None
        hidden, ffn = self._config.hidden, moe.ffn
        gate_up = torch.empty(moe.experts, 2 * ffn, hidden, dtype=self._dtype, device=self._device)
        down = torch.empty(moe.experts, hidden, ffn, dtype=self._dtype, device=self._device)
        for expert in range(moe.experts):
            name = f"{prefix}.experts.{expert}"
            self._dequantized([f"{name}.{part}" for part in ("gate", "up", "down")], "experts share one float product")
            self._weights.into(f"{name}.gate.weight", gate_up[expert, :ffn])
            self._weights.into(f"{name}.up.weight", gate_up[expert, ffn:])
            self._weights.into(f"{name}.down.weight", down[expert])
        correction = f"{prefix}.router.bias"
        bias = self._weights.read(correction, torch.float32).to(self._device) if moe.correction else None
        made = MoeWeights(router_for(moe, self._tensor(f"{prefix}.router.weight"), bias), gate_up, down)
        if moe.shared_ffn:
            made.shared_gate_up = self._merged_product(f"{prefix}.shared", "gate_up")
            made.shared_down = self._single_product(f"{prefix}.shared.down")
        if moe.shared_gate:
            made.shared_gate = self._single_product(f"{prefix}.shared_router")
        return made

    def _latent(self, prefix: str) -> LatentWeights:
        config, latent = self._config, self._config.latent
        assert latent is not None
        names = ("q_b" if latent.q_rank else "q", "kv_a", "kv_b")
        self._dequantized([f"{prefix}.{name}" for name in names], "latent attention takes its weights apart")
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
            made.q_a = self._single_product(f"{prefix}.q_a")
            made.q_norm = self._norm(f"{prefix}.q_a_norm")
        return made


def raw_layer(files: ModelFiles, weights: Weights, index: int) -> RawLayer:
    """One dense layer in float32 on the CPU, for tools that take a model apart."""
    return _Loader(files, weights, "float32", torch.device("cpu"), DenseLinear)._raw(f"layers.{index}", index)


def raw_ends(files: ModelFiles, weights: Weights, positions: int) -> DecoderWeights:
    """What stands around the layers, in float32 on the CPU: DecoderWeights without any. positions: as in
    `load_weights`."""
    return _Loader(files, weights, "float32", torch.device("cpu"), DenseLinear).ends(positions)


def first_layer(files: ModelFiles, weights: Weights, dtype: str, device: torch.device) -> LayerWeights:
    """Layer 0 alone, as the engine serves it, of files that hold no whole model."""
    return _Loader(files, weights, dtype, device, method_for(dtype, device.type)).layer(0)
