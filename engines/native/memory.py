"""Where an instance's memory goes: pure arithmetic, the same for the estimate in the console and for the runner.

weights      parameters × bytes of the dtype, all experts of a mixture (int8 keeps the embedding table in float16,
             unless `embedding_dtype` is int8 as well), less offloaded layers but for the two slots they pass through;
             of what is served quantized, the bytes of its form there
kv_cache     2 × layers × kv heads × head size × bytes, per token, × tokens, in whole blocks; of latent attention what
             it holds of a token. A sliding window saves nothing: a request keeps all its blocks. In 8 bits a value is
             a byte, and of int8 each token's head has a scale beside
activations  the widest moment of one step, and the logits of every request
verification logits of passes that check guesses, beyond those of plain ones; none where the engine does not speculate
draft        of a draft model: weights, activations, and a KV cache for the same tokens
overhead     interpreter, torch, its thread pools or its CUDA context, tokenizer and row tables
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from engines.native.config import ConfigError
from engines.native.graph_buckets import rows_bucket
from engines.native.models.config import MIXTURES

if TYPE_CHECKING:
    from engines.api import LaunchSpec
    from engines.native.models.config import DecoderConfig

MIB = 1024 * 1024
KV_BYTES = {"float32": 4, "int8": 4, "bfloat16": 2, "float16": 2}
"""Effective dtype → bytes of one value in the KV cache and in activations."""
KV_SCALE_BYTES = {"fp8": 0, "int8": 4}
"""kv_cache_dtype → bytes beside the values of a token's head, in K and as many in V."""
DEFAULT_TOKENS_PER_SEQ = 1024
"""What the CPU's KV cache holds for each concurrent request where no size is given."""
DEFAULT_SEQS = {"cpu": 16, "cuda": 256}
DEFAULT_BATCHED = {"cpu": 512, "cuda": 8192}
DRAFT_BATCHED = {"cpu": 512, "cuda": 2048}
"""Tokens of a draft model's pass over prompts."""
GPU_SHARE = 0.92
"""Of a GPU's free memory, which is 0.9 of the whole of one that is empty; the rest is for fragmentation, captured
graphs and other processes."""
VERIFY_TOKENS = {"cpu": 64, "cuda": 512}
"""Of a pass that checks guesses (`speculation.speculator`), padding included; two for each row where that is more."""
ROW_TOKENS = 32
"""Of one row in such a pass, at most: a word of ancestors has a bit for each."""
_OVERHEAD = {"cpu": 310 * MIB, "cuda": 400 * MIB}
DISK_STAGING = (32 * MIB, 256 * MIB)
GATHERED_KEYS = 16_384
"""On a CPU: keys of several rows, padded to the longest, that a decode step gathers at once."""
SCORES = 2 * MIB
"""On a CPU: of all heads, that exist at once; a chunk is taken in pieces, of ATTENDED queries at least."""
ATTENDED = 16
WIDENED_KEYS = 65_536
"""On a GPU, of a cache in 8 bits: the most keys that are widened for one launch, if not those of one row."""
_HELD_ON_CPU = 2
"""Bytes that most of a CPU's methods keep for a quantized weight, whatever its bits."""
_INT8_SCRATCH = 120 * MIB
"""What FBGEMM's products leave in the heap beside the activations, measured."""


class Dimensions(Protocol):
    """What memory follows from: ModelShape, or DecoderConfig through `dimensions`."""

    @property
    def architecture(self) -> str: ...
    @property
    def layers(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def ffn(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def parameters(self) -> int: ...
    @property
    def tied_embeddings(self) -> bool: ...
    @property
    def kv_values(self) -> int: ...
    @property
    def quantized_parameters(self) -> int: ...
    @property
    def quantized_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a model whose files are open. kv_values: in the KV cache, of a token, in all layers. quantized: of
    the files' weights in 4 and 8 bits."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_length: int
    parameters: int
    tied_embeddings: bool
    kv_values: int
    quantized_parameters: int = 0
    quantized_bytes: int = 0


def dimensions(config: DecoderConfig, quantized_parameters: int = 0, quantized_bytes: int = 0) -> Shape:
    return Shape(
        config.architecture,
        config.layers,
        config.hidden,
        config.widest_ffn,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.vocab,
        config.context_length,
        config.parameters(),
        config.tied,
        config.kv_values,
        quantized_parameters,
        quantized_bytes,
    )


@dataclass(frozen=True, slots=True)
class DraftNeed:
    """Bytes of a draft model or head beside the model; its KV cache holds the same tokens. features_per_token: of them
    what lies beside the model's own keys and values, and goes with these to the host and to a disk."""

    weights: int
    activations: int = 0
    kv_per_token: int = 0
    features_per_token: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for, every choice made. max_model_len: tokens."""

    device: str  # "cpu" | "cuda"
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_batched_tokens: int
    block_size: int
    kv_cache_bytes: int  # 0 = decide
    embedding_dtype: str = "auto"
    offload_layers: int = 0
    offload_to: str = "host"
    kept: bool = False  # quantized weights are served as they are
    kv_cache_dtype: str = ""  # "fp8" | "int8"; "": that of activations
    draft: DraftNeed = DraftNeed(0)
    speculates: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes, but num_blocks: blocks of the KV cache, the null block included."""

    weights: int
    kv_cache: int
    activations: int
    overhead: int
    num_blocks: int
    kv_tokens: int  # that requests can use
    host: int = 0  # weights in the host's memory beside a GPU; not in `total`
    draft_weights: int = 0  # and activations, of a draft model
    draft_kv: int = 0
    verification: int = 0

    @property
    def total(self) -> int:
        draft = self.draft_weights + self.draft_kv
        return self.weights + self.kv_cache + self.activations + self.verification + self.overhead + draft


def demand_of(
    shape: Dimensions,
    *,
    device: str,
    dtype: str,
    max_model_len: int,
    max_num_seqs: int,
    max_batched_tokens: int,
    block_size: int,
    kv_cache_bytes: int,
    embedding_dtype: str = "auto",
    offload_layers: int = 0,
    offload_to: str = "host",
    format: str = "",
    quantized_weights: str = "auto",
    kv_cache_dtype: str = "auto",
    draft: DraftNeed = DraftNeed(0),
    speculation: str = "off",
) -> Demand:
    """Zeros and "auto" replaced by the engine's choice. speculation: the option of that name. Raises ConfigError, with
    numbers, for what cannot be met."""
    kept = keeps(shape, format, quantized_weights) and (device, dtype) != ("cuda", "float32")  # no kernel takes it
    effective = effective_dtype(dtype, device, shape.architecture, offloaded=offload_layers > 0, kept=kept)
    if kept:
        _check_kept(effective, offload_layers)
    _check_offload(shape, effective, offload_layers)
    if effective == "int8" and device != "cpu":
        raise ConfigError("dtype is 'int8', which the native engine has on a CPU only; use 'bfloat16' on a GPU")
    if effective == "int8" and shape.architecture in MIXTURES:
        raise ConfigError(
            f"dtype is 'int8', which the native engine has for dense models only; {shape.architecture} can be had in "
            "'float32'"
        )
    if kv_cache_dtype == "auto":
        kv_cache_dtype = ""
    _check_kv(shape, kv_cache_dtype)
    length = max_model_len or shape.context_length
    if length > shape.context_length:
        raise ConfigError(
            f"max_model_len is {length}, but the model was made for {shape.context_length} tokens; give at most that"
        )
    seqs = max_num_seqs or DEFAULT_SEQS[device]
    batched = max_batched_tokens or max(DEFAULT_BATCHED[device], seqs + block_size)
    if batched < seqs + block_size:
        raise ConfigError(
            f"max_batched_tokens is {batched}, but max_num_seqs is {seqs}: a step must hold a token of each request "
            f"and a block of prompt, {seqs + block_size} or more"
        )
    return Demand(
        device, effective, length, seqs, batched, block_size, kv_cache_bytes,
        embedding_dtype, offload_layers, offload_to, kept, kv_cache_dtype, draft, speculation != "off",
    )  # fmt: skip


def keeps(shape: Dimensions, format: str, quantized_weights: str) -> bool:
    """Whether the engine serves the files' quantized weights as they are, by option `quantized_weights`. "auto" leaves
    GGUF blocks out: dequantized ones are faster wherever they fit."""
    if not shape.quantized_parameters or quantized_weights == "dequantized":
        return False
    return quantized_weights == "kept" or format != "gguf"


def _check_kept(dtype: str, offload_layers: int) -> None:
    if dtype == "int8":
        raise ConfigError(
            "dtype is 'int8', but the weights of this version are quantized already, and dtype is that of activations; "
            "leave it at 'auto', or set options.quantized_weights to 'dequantized' to quantize them anew"
        )
    if offload_layers:
        raise ConfigError(
            f"offload_layers is {offload_layers}, but quantized weights are not brought in parts; set it to 0, or "
            "options.quantized_weights to 'dequantized', or offload the version that this one was made of"
        )


def _check_kv(shape: Dimensions, kv_cache_dtype: str) -> None:
    if kv_cache_dtype and (reason := no_8_bit_cache(shape)):
        raise ConfigError(f"kv_cache_dtype is {kv_cache_dtype!r}, but {reason}; set it to 'auto'")


def no_8_bit_cache(shape: Dimensions) -> str:
    """Why the model's KV cache can't be in 8 bits; "" where it can."""
    if shape.kv_values and shape.kv_values != 2 * shape.layers * shape.kv_heads * shape.head_dim:
        return (
            f"the latent attention of {shape.architecture} keeps one compressed vector in place of keys and values, "
            "which has no form in 8 bits yet"
        )
    if shape.head_dim % 2:
        return f"a head has {shape.head_dim} values and keys in 8 bits are read in pairs"
    return ""


def _check_offload(shape: Dimensions, dtype: str, layers: int) -> None:
    if layers and not 3 <= layers <= shape.layers:
        raise ConfigError(
            f"offload_layers is {layers}; two offloaded layers are on the device at any time and the model has "
            f"{shape.layers}, so it can be 0, or 3 to {shape.layers}"
        )
    if layers and dtype == "int8":
        raise ConfigError(
            f"offload_layers is {layers}, but dtype int8 keeps weights in a form that can't be brought in parts; use "
            "'float32', or offload_layers 0"
        )


def demand_for(shape: Dimensions, spec: LaunchSpec, **changes: Any) -> Demand:
    """What `spec` asks for, with `changes` of its fields; its device "auto" is taken as a CPU. Raises ConfigError."""
    asked = {name: getattr(spec, name) for name in ("dtype", "max_model_len", "max_num_seqs", "kv_cache_bytes")}
    return demand_of(
        shape,
        device="cuda" if spec.device == "cuda" else "cpu",
        max_batched_tokens=int(spec.options.get("max_batched_tokens", 0)),
        block_size=int(spec.options.get("block_size", 16)),
        embedding_dtype=str(spec.options.get("embedding_dtype", "auto")),
        offload_layers=int(spec.options.get("offload_layers", 0)),
        offload_to=str(spec.options.get("offload_to", "host")),
        format=spec.format,
        quantized_weights=str(spec.options.get("quantized_weights", "auto")),
        kv_cache_dtype=str(spec.options.get("kv_cache_dtype", "auto")),
        draft=_draft_of(shape, spec),
        speculation=str(spec.options.get("speculation", "auto")),
        **{**asked, **changes},
    )


def _draft_of(target: Dimensions, spec: LaunchSpec) -> DraftNeed:
    draft, device = spec.draft, "cuda" if spec.device == "cuda" else "cpu"
    if draft is None:
        return DraftNeed(0)
    if draft.shape is None or draft.shape.task != "generate":
        return head_need(target, sum(file.size for file in draft.files), spec.dtype, device)
    return draft_need(draft.shape, device, spec.max_num_seqs, draft.format)


def head_need(target: Dimensions, file_bytes: int, dtype: str, device: str, feature: int = 0) -> DraftNeed:
    """Of a head: its files, and for each token a vector of `feature` values (0 = as wide as the target's hidden state),
    beside keys and values of one layer like the target's (of Medusa, which has none, too much)."""
    width, feature = KV_BYTES[effective_dtype(dtype, device, target.architecture)], feature or target.hidden
    values = feature + 2 * target.kv_heads * target.head_dim
    return DraftNeed(file_bytes, kv_per_token=values * width, features_per_token=feature * width)


def draft_need(shape: Dimensions, device: str, max_num_seqs: int, format: str) -> DraftNeed:
    """Of a draft model, in the dtype that the device has for it (`plugins.speculative.draft_loading`)."""
    demand = demand_of(
        shape, device=device, dtype="auto", max_model_len=0, max_num_seqs=max_num_seqs, max_batched_tokens=0,
        block_size=16, kv_cache_bytes=0, format=format,
    )  # fmt: skip
    weights = weight_bytes(shape, demand.dtype, kept_on=device if demand.kept else "")
    batched = replace(demand, max_batched_tokens=max(DRAFT_BATCHED[device], demand.max_num_seqs + demand.block_size))
    return DraftNeed(weights, activation_bytes(shape, batched), kv_bytes_per_token(shape, demand.dtype))


def effective_dtype(
    dtype: str, device: str, architecture: str = "", offloaded: bool = False, kept: bool = False
) -> str:
    """ "auto" is bfloat16 on a GPU; on a CPU int8, for speed, where architecture, offloading and weights allow it."""
    if dtype != "auto":
        return dtype
    if device == "cuda":
        return "bfloat16"
    return "float32" if offloaded or kept or architecture in MIXTURES else "int8"


def kv_bytes_per_token(shape: Dimensions, dtype: str, kv_cache_dtype: str = "") -> int:
    """dtype: the engine's. kv_cache_dtype: "fp8" or "int8", or "" for that of activations."""
    values = shape.kv_values or 2 * shape.layers * shape.kv_heads * shape.head_dim
    if not kv_cache_dtype:
        return values * KV_BYTES[dtype]
    return values + 2 * shape.layers * shape.kv_heads * KV_SCALE_BYTES[kv_cache_dtype]


def kv_bytes_for(
    shape: Dimensions, dtype: str, block_size: int, tokens: int, requests: int, kv_cache_dtype: str = ""
) -> int:
    """A KV cache in which all of `requests` have `tokens` tokens each: whole blocks, and the null block."""
    blocks = requests * -(-tokens // block_size) + 1
    return blocks * block_size * kv_bytes_per_token(shape, dtype, kv_cache_dtype)


def weight_bytes(shape: Dimensions, dtype: str, embedding_dtype: str = "auto", kept_on: str = "") -> int:
    """A table in 8 bits has 4 bytes of scale per row, and serves a tied head too, but for dtype int8's own. kept_on:
    device that serves quantized weights as they are; "" where they are dequantized."""
    table = shape.vocab * shape.hidden
    small = table + 4 * shape.vocab
    if kept_on:
        floating = (shape.parameters - shape.quantized_parameters) * KV_BYTES[dtype]
        if kept_on == "cuda":
            return floating + shape.quantized_bytes
        linear = shape.parameters - table * (1 if shape.tied_embeddings else 2)
        beside = table if shape.quantized_parameters > linear else 0  # a quantized table stays beside its head
        return floating + shape.quantized_parameters * _HELD_ON_CPU + beside
    if dtype != "int8":
        rest = shape.parameters - table
        return rest * KV_BYTES[dtype] + (small if embedding_dtype == "int8" else table * KV_BYTES[dtype])
    linear = shape.parameters - table * (1 if shape.tied_embeddings else 2)
    return (small if embedding_dtype == "int8" else table * 2) + table + linear


def disk_staging(block_bytes: int, block_size: int, max_model_len: int) -> int:
    """Bytes of host memory that KV blocks pass through on their way to and from a disk, where no swap space is given:
    one request of full length, within bounds, and the null block."""
    request = -(-max_model_len // block_size) * block_bytes
    return min(max(request, DISK_STAGING[0]), DISK_STAGING[1]) + block_bytes


def layer_bytes(shape: Dimensions, dtype: str) -> int:
    """The weights of one layer, in floating point; of a mixture's layers the mean."""
    ends = shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)
    return (shape.parameters - ends) * KV_BYTES[dtype] // shape.layers


def _offloaded(shape: Dimensions, demand: Demand) -> tuple[int, int, int]:
    """Bytes: of weights that leave the device, of overhead that comes to it, of weights in the host's memory beside
    it. Two slots stay. What reads from a disk holds a layer, beside a GPU in the host's memory."""
    if not demand.offload_layers:
        return 0, 0, 0
    layer = layer_bytes(shape, demand.dtype)
    saved = (demand.offload_layers - 2) * layer
    if demand.device == "cuda":
        return saved, 0, (demand.offload_layers if demand.offload_to == "host" else 1) * layer
    if demand.offload_to == "disk":
        return saved, layer, 0
    return -2 * layer, 0, 0  # in the same memory, and twice


def activation_bytes(shape: Dimensions, demand: Demand) -> int:
    width = KV_BYTES[demand.dtype]
    q = shape.heads * shape.head_dim
    kv = shape.kv_heads * shape.head_dim
    tokens = demand.max_num_seqs * demand.max_model_len
    widened = demand.kv_cache_dtype and demand.device == "cuda"
    around = demand.max_batched_tokens * (3 * q + 2 * kv)
    around += 2 * kv * min(tokens, max(WIDENED_KEYS, demand.max_model_len)) if widened else 0
    attention = around * width + (_attended(shape, demand) if demand.device == "cpu" else 0)
    widest = demand.max_batched_tokens * 2 * shape.hidden * width
    widest += max(demand.max_batched_tokens * 3 * shape.ffn * width, attention)
    whole = demand.max_model_len if demand.kv_cache_dtype else 0  # a row's keys in 8 bits are read as floats at once
    gathered = 2 * kv * width * min(tokens, max(GATHERED_KEYS, whole)) if demand.device == "cpu" else 0
    return widest + gathered + _drawing(shape, demand) + _widened_weight(shape, demand) * width


def _attended(shape: Dimensions, demand: Demand) -> int:
    """Bytes, in float32, of the longest piece of a chunk: scores and shares, and a row's keys and values where those
    are kept in fewer bits."""
    length = demand.max_model_len
    pairs = shape.heads * length * demand.max_batched_tokens
    scores = min(max(SCORES, ATTENDED * shape.heads * length), pairs)
    return 4 * (2 * scores + (2 * shape.kv_heads * shape.head_dim * length if KV_BYTES[demand.dtype] < 4 else 0))


def _drawing(shape: Dimensions, demand: Demand) -> int:
    """Of one draw for each request: logits (of graphs, too), scores, noise."""
    return demand.max_num_seqs * shape.vocab * {"cpu": 12, "cuda": 2 * KV_BYTES[demand.dtype] + 4}[demand.device]


def verification_bytes(shape: Dimensions, demand: Demand) -> int:
    """What a pass with guesses takes more than one without, since it draws behind every guess. On a GPU the most of it
    is outside graphs: logits, a copy for log-probabilities, one in float32 under grammars, scores."""
    if not demand.speculates:
        return 0
    line = {"cpu": 12, "cuda": 2 * KV_BYTES[demand.dtype] + 8}[demand.device] * shape.vocab
    return max(0, verify_lines(demand.max_num_seqs, demand.device) * line - _drawing(shape, demand))


def verify_lines(rows: int, device: str) -> int:
    """The most draws in a pass that checks guesses of up to `rows` rows."""
    most = rows_bucket(rows) if device == "cuda" else rows
    return min(ROW_TOKENS * most, max(VERIFY_TOKENS[device], 2 * most))


def _widened_weight(shape: Dimensions, demand: Demand) -> int:
    """Values of the buffer that quantized weights are widened into on a GPU, one at a time: of the widest product."""
    if not demand.kept or demand.device != "cuda":
        return 0
    linear = shape.parameters - shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)
    head = shape.vocab if shape.quantized_parameters > linear else 0
    return shape.hidden * max(2 * shape.ffn, head)


def plan(shape: Dimensions, demand: Demand, available: int) -> MemoryPlan:
    """`available`: bytes free on the device; only a GPU's KV cache is sized by it."""
    saved, reading, host = _offloaded(shape, demand)
    kept_on = demand.device if demand.kept else ""
    weights = weight_bytes(shape, demand.dtype, demand.embedding_dtype, kept_on) - saved
    activations, verification = activation_bytes(shape, demand), verification_bytes(shape, demand)
    overhead = _OVERHEAD[demand.device] + demand.max_num_seqs * demand.max_model_len * 8 + reading
    if demand.dtype == "int8":
        overhead += _INT8_SCRATCH
    per_token = kv_bytes_per_token(shape, demand.dtype, demand.kv_cache_dtype)
    per_block = per_token * demand.block_size
    draft = demand.draft
    beside = draft.kv_per_token * demand.block_size
    kv = demand.kv_cache_bytes
    most = demand.max_num_seqs * demand.max_model_len
    if not kv and demand.device == "cuda":
        free = int(available * GPU_SHARE) - weights - activations - verification - overhead
        free -= draft.weights + draft.activations
        kv = max(0, min(free * per_block // (per_block + beside), most * per_token + 2 * per_block))
    elif not kv:
        tokens = max(demand.max_model_len, min(most, demand.max_num_seqs * DEFAULT_TOKENS_PER_SEQ))
        kv = (tokens // demand.block_size + 2) * per_block
    blocks = kv // per_block
    return MemoryPlan(
        weights, blocks * per_block, activations, overhead, blocks, max(0, blocks - 1) * demand.block_size, host,
        draft.weights + draft.activations, blocks * beside, verification,
    )  # fmt: skip
