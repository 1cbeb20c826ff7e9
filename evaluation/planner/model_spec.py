"""What memory and time follow from, read from a model's config.json, or from the shape that the registry keeps.

Everything is counted from dimensions: no file of weights is opened. Dense decoders with multi-head, grouped or latent
(MLA) attention, sliding windows per layer, and mixtures of experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Json = Mapping[str, Any]


class SpecError(ValueError):
    """A configuration that the planner can't count: names the field, the reason and the fix."""

    code = "invalid_model"


class Latent(Struct, kw_only=True, frozen=True):
    """Multi-head latent attention: the cache holds kv_rank + rope_dim values of a token and layer."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_rank: int = 0  # 0: queries are not compressed


class Moe(Struct, kw_only=True, frozen=True):
    experts: int
    active: int  # of each token
    ffn: int  # width of one expert
    layers: int  # that have experts; the others have a plain MLP
    shared_ffn: int = 0  # width of what every token passes beside its experts


class ModelSpec(Struct, kw_only=True, frozen=True):
    """Dimensions. windows: per layer, tokens that a query sees, 0 = all. Parameter counts are of the whole model."""

    name: str
    architecture: str
    layers: int
    hidden: int
    ffn: int  # of the plain MLP; the widest one
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_length: int  # tokens
    tied: bool
    dtype: str  # of the files: "bfloat16" …
    windows: tuple[int, ...]
    attention: int  # parameters of all attention projections
    dense_mlp: int  # … of plain MLPs, shared experts and routers
    experts: int  # … of all routed experts
    norms: int  # … of norms and biases: never quantized
    latent: Latent | None = None
    moe: Moe | None = None

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def head(self) -> int:
        """Of its own; the product with it is done either way."""
        return 0 if self.tied else self.embedding

    @property
    def parameters(self) -> int:
        return self.embedding + self.head + self.attention + self.dense_mlp + self.experts + self.norms

    @property
    def active_parameters(self) -> float:
        """Multiplied by each token of a decode step, the head's among them; no look-up in the embedding."""
        routed = self.experts * self.moe.active / self.moe.experts if self.moe else 0.0
        return self.embedding + self.attention + self.dense_mlp + routed

    @property
    def dimensions(self) -> str:
        """The same for models whose steps take the same time."""
        parts = [self.layers, self.hidden, self.ffn, self.heads, self.kv_heads, self.head_dim, self.vocab]
        mixture = [self.moe.experts, self.moe.active, self.moe.ffn] if self.moe else []
        return "-".join(str(part) for part in [*parts, *mixture])

    @property
    def q_width(self) -> int:
        """Values of a token's queries in one layer, as attention reads them."""
        return self.heads * (self.latent.kv_rank + self.latent.rope_dim if self.latent else self.head_dim)

    @property
    def kv_width(self) -> int:
        """Values of a token's keys and values in one layer of the cache."""
        if self.latent:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    def experts_touched(self, rows: float) -> float:
        """Expected share of the routed experts that a step of `rows` tokens reads: 1 − (1 − k/E)^rows."""
        if self.moe is None:
            return 0.0
        return float(1.0 - (1.0 - self.moe.active / self.moe.experts) ** rows)


def from_config(config: Json, name: str = "") -> ModelSpec:
    """From a config.json of transformers. Raises SpecError."""
    config = {**config, **(config.get("text_config") or {})}  # models that see pictures keep the decoder apart
    kind = str(config.get("model_type", ""))
    if "linear_attention" in (config.get("layer_types") or ()) or config.get("full_attention_interval"):
        raise SpecError(
            f"layer_types: {kind} has linear attention layers, whose state the planner can't count; choose a model "
            "with attention in each layer"
        )
    layers, hidden, heads = (
        _number(config, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    head_dim = int(config.get("head_dim") or 256 * kind.startswith("gemma") or hidden // heads)
    kv_heads = int(config.get("num_key_value_heads") or config.get("multi_query_group_num") or heads)
    latent = _latent(config)
    moe = _moe(config, layers)
    ffn = int(config.get("intermediate_size") or config.get("ffn_hidden_size") or (moe.ffn if moe else 0))
    if not ffn:
        raise SpecError("intermediate_size: config.json does not have it; it is the width of the MLP")
    shape = _Counting(kind, config, layers, hidden, heads, kv_heads, head_dim, ffn, latent, moe)
    return ModelSpec(
        name=name or str(config.get("_name_or_path", "")) or kind,
        architecture=kind,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=1 if latent else kv_heads,
        head_dim=latent.kv_rank + latent.rope_dim if latent else head_dim,
        vocab=_number(config, "vocab_size"),
        context_length=int(config.get("max_position_embeddings") or config.get("seq_length") or 4096),
        tied=bool(config.get("tie_word_embeddings", kind.startswith(("gemma", "cohere")))),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        windows=_windows(config, kind, layers),
        attention=shape.attention(),
        dense_mlp=shape.dense_mlp(),
        experts=shape.experts(),
        norms=shape.norms(),
        latent=latent,
        moe=moe,
    )


def from_shape(shape: Json, name: str = "") -> ModelSpec:
    """From `ModelShape` of engines/api.py, as the registry keeps it of GGUF files too. Raises SpecError."""
    if shape.get("task", "generate") != "generate":
        raise SpecError(f"task: {shape['task']} models generate nothing; the planner is for models that do")
    layers, hidden, heads, kv_heads, head_dim, vocab = (
        _number(shape, key) for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")
    )
    tied = bool(shape.get("tied_embeddings", False))
    ends = vocab * hidden * (1 if tied else 2)
    attention = layers * hidden * head_dim * (2 * heads + 2 * kv_heads)
    norms = (2 * layers + 1) * hidden
    total = int(shape.get("parameters", 0)) or ends + attention + norms + layers * 3 * hidden * int(shape["ffn"])
    cached = int(shape.get("kv_values", 0))
    if cached not in (0, 2 * layers * kv_heads * head_dim):
        raise SpecError(
            f"kv_values: {shape.get('architecture')} keeps {cached} values of a token; plan latent attention from the "
            "model's config.json"
        )
    ffn = _number(shape, "ffn")
    mlp = total - ends - attention - norms
    if mlp > 1.1 * layers * 3 * hidden * ffn:
        raise SpecError(
            f"parameters: {total:,} are more than a dense {shape.get('architecture')} of these dimensions has; plan a "
            "mixture of experts from the model's config.json"
        )
    return ModelSpec(
        name=name or str(shape.get("architecture", "")),
        architecture=str(shape.get("architecture", "")),
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        context_length=_number(shape, "context_length"),
        tied=tied,
        dtype=str(shape.get("dtype", "bfloat16")),
        windows=(int(shape.get("sliding_window", 0)),) * layers,
        attention=attention,
        dense_mlp=max(0, mlp),
        experts=0,
        norms=norms,
    )


def load(config: Json, name: str = "") -> ModelSpec:
    """Either of the two, told apart by their fields."""
    return from_shape(config, name) if "kv_heads" in config else from_config(config, name)


class _Counting:
    """Parameters by part, as the files of the family have them."""

    def __init__(
        self,
        kind: str,
        config: Json,
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        ffn: int,
        latent: Latent | None,
        moe: Moe | None,
    ) -> None:
        self._kind, self._config, self._layers, self._hidden = kind, config, layers, hidden
        self._heads, self._kv_heads, self._head_dim, self._ffn = heads, kv_heads, head_dim, ffn
        self._latent, self._moe = latent, moe

    def attention(self) -> int:
        hidden, heads = self._hidden, self._heads
        if self._latent is None:
            return self._layers * hidden * self._head_dim * (2 * heads + 2 * self._kv_heads)
        part = self._latent
        key = part.nope_dim + part.rope_dim
        query = hidden * part.q_rank + part.q_rank * heads * key if part.q_rank else hidden * heads * key
        down = hidden * (part.kv_rank + part.rope_dim)
        up = part.kv_rank * heads * (part.nope_dim + part.value_dim)
        return self._layers * (query + down + up + heads * part.value_dim * hidden)

    def dense_mlp(self) -> int:
        """A gated MLP has three matrices."""
        hidden, moe = self._hidden, self._moe
        if moe is None:
            return self._layers * 3 * hidden * self._ffn
        beside = 3 * hidden * moe.shared_ffn + hidden * moe.experts
        return (self._layers - moe.layers) * 3 * hidden * self._ffn + moe.layers * beside

    def experts(self) -> int:
        return self._moe.layers * self._moe.experts * 3 * self._hidden * self._moe.ffn if self._moe else 0

    def norms(self) -> int:
        each = {"gemma2": 4, "gemma3": 4, "gemma3_text": 4, "glm4": 4, "cohere": 1, "cohere2": 1}.get(self._kind, 2)
        layer = each * self._hidden
        if self._kind.startswith(("qwen3", "gemma3")):
            layer += 2 * self._head_dim  # of queries and keys
        if self._config.get("attention_bias", self._kind.startswith("qwen2")):
            layer += (self._heads + 2 * self._kv_heads) * self._head_dim
        if self._latent:
            layer += self._latent.q_rank + self._latent.kv_rank
        return self._layers * layer + self._hidden


def _latent(config: Json) -> Latent | None:
    if not config.get("kv_lora_rank"):
        return None
    return Latent(
        kv_rank=_number(config, "kv_lora_rank"),
        rope_dim=_number(config, "qk_rope_head_dim"),
        nope_dim=_number(config, "qk_nope_head_dim"),
        value_dim=_number(config, "v_head_dim"),
        q_rank=int(config.get("q_lora_rank") or 0),
    )


def _moe(config: Json, layers: int) -> Moe | None:
    experts = config.get("n_routed_experts") or config.get("num_local_experts") or config.get("num_experts")
    if not experts:
        return None
    active = _number(config, "num_experts_per_tok")
    if active > int(experts):
        raise SpecError(f"num_experts_per_tok: {active}, but there are {experts} experts")
    ffn = int(config.get("moe_intermediate_size") or _number(config, "intermediate_size"))
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    shared += ffn * int(config.get("n_shared_experts") or 0)
    step, plain = int(config.get("decoder_sparse_step") or 1), config.get("mlp_only_layers") or ()
    first = int(config.get("first_k_dense_replace") or 0)
    sparse = sum(layer >= first and layer not in plain and (layer + 1) % step == 0 for layer in range(layers))
    return Moe(experts=int(experts), active=active, ffn=ffn, layers=sparse, shared_ffn=shared)


def _windows(config: Json, kind: str, layers: int) -> tuple[int, ...]:
    window = int(config.get("sliding_window") or 0)
    if not window or config.get("use_sliding_window") is False:
        return (0,) * layers
    kinds = config.get("layer_types")
    if kinds:
        return tuple(window if each == "sliding_attention" else 0 for each in kinds)
    pattern = int(config.get("sliding_window_pattern") or {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}.get(kind, 0))
    if pattern:
        return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(layers))
    if kind.startswith("qwen2") and config.get("use_sliding_window"):
        first = int(config.get("max_window_layers", layers))
        return tuple(window if layer >= first else 0 for layer in range(layers))
    return (window,) * layers


def _number(config: Json, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise SpecError(f"{key}: {value!r} is no positive whole number, and the model's size follows from it")
    return value
