"""A GGUF model as transformers keeps it: config.json and tensors by their names there.

What is written is read again by the loader and compared with what the GGUF file said, so a configuration that
config.json can't say is refused and never written approximately.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from engines.native.layers.rope import reordered, row_order
from engines.native.loader import hf_config
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.names import expected_shapes, file_name
from engines.native.loader.tokenizer import TokenizerFacts
from engines.native.loader.weights import Weights
from engines.native.models.config import DecoderConfig, Rope
from engines.native.vocabulary.tensor_files import Entry
from engines.protocol import ChildError

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
DTYPES = {"float32": ("F32", torch.float32), "bfloat16": ("BF16", torch.bfloat16), "float16": ("F16", torch.float16)}
_STORED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Export:
    """config: as the written model has it, of the same vocabulary as the file."""

    def __init__(self, files: ModelFiles, weights: Weights, dtype: str) -> None:
        """dtype: "auto" keeps floats as they are and writes what is quantized as float32: then every value is the one
        that the engine computes with, bit for bit. Raises ChildError("not_exportable")."""
        self._files, self._weights, self._dtype = files, weights, dtype
        found = files.config
        name = "mistral" if found.architecture == "llama" and any(found.windows) else found.architecture
        factors = None
        if found.rope.kind == "factors":
            factors = tuple(weights.read("rope_factors.weight", torch.float32).tolist())
        rope = replace(_rope(found.rope, factors, found.context_length), interleaved=False)
        ropes = tuple(
            one and replace(_rope(one, factors, found.context_length), interleaved=False) for one in found.ropes
        )
        self.config = replace(found, architecture=name, rope=rope, ropes=ropes, norm_offset=_norm_offset(name))

    def config_json(self, facts: TokenizerFacts, rows: int) -> dict[str, Any]:
        """Raises ChildError("not_exportable") where reading it would give another model."""
        wanted = replace(self.config, vocab=rows)
        written = _config_json(wanted, facts, self.main_dtype())
        read = hf_config.decoder_config(written)
        if read != wanted:
            wrong = [name for name in DecoderConfig.__slots__ if getattr(read, name) != getattr(wanted, name)]
            raise ChildError(
                "not_exportable",
                f"model: this GGUF file's {', '.join(wrong)} can't be said in a config.json of {wanted.architecture}",
                "Register the model as safetensors and add the tokens there.",
            )
        return written

    def main_dtype(self) -> str:
        """Of the matrices."""
        return self._dtype_of("embed.weight")

    def _dtype_of(self, name: str) -> str:
        stored = self._files.tensors[name].type
        floating = _STORED.get(stored)
        if self._dtype == "auto" or (floating == "float32" and len(self._files.tensors[name].shape) == 1):
            return floating or "float32"  # norms and biases keep their digits: they are small
        return self._dtype

    def tensor(self, name: str) -> torch.Tensor:
        """Our tensor `name` as the written file has it."""
        tensor = self._weights.read(name, torch.float32)
        _, *parts = name.split(".")
        if name.startswith("layers.") and parts[1] in ("q", "k", "q_norm", "k_norm"):
            order = row_order(self._files.config.rope_of(int(parts[0])), self._files.config.head_dim)
            tensor = reordered(tensor, order)  # the loader's own order is what transformers' "rotate half" wants
        if name.endswith("norm.weight") or ".after_" in name:
            tensor = tensor - self.config.norm_offset
        return tensor.to(DTYPES[self._dtype_of(name)][1])

    def entry(self, name: str, shape: tuple[int, ...], made: torch.Tensor | None = None) -> Entry:
        """made: instead of the file's tensor."""
        stored, dtype = DTYPES[self._dtype_of(name)]
        nbytes = torch.Size(shape).numel() * dtype.itemsize

        def chunks() -> Iterator[memoryview]:
            yield bytes_of(self.tensor(name) if made is None else made)

        return Entry(file_name(name, "safetensors", self.config.architecture), stored, shape, nbytes, chunks)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors to write, by our names."""
        return expected_shapes(self.config)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Row-major, little-endian; a view, so the tensor must live as long."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().data


def _norm_offset(architecture: str) -> float:
    return 1.0 if architecture == "gemma3" else 0.0


def _rope(rope: Rope, factors: tuple[float, ...] | None, context: int) -> Rope:
    """Divisors of frequencies that lie in a tensor of the file are "longrope" with one list for every length."""
    if rope.kind != "factors" or factors is None:
        return rope
    return replace(rope, kind="longrope", original_context=context, short=factors, long=factors)


def _config_json(config: DecoderConfig, facts: TokenizerFacts, dtype: str) -> dict[str, Any]:
    model_type, architecture = _CLASSES[config.architecture]
    written: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "dtype": dtype,
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "bos_token_id": facts.bos_id,
        "eos_token_id": list(facts.eos_ids),
        "rope_theta": config.rope.theta,
    }
    if config.architecture == "qwen2":
        del written["attention_bias"]  # always there
    if config.architecture == "mistral":
        written["sliding_window"] = config.windows[0]
    if config.architecture == "gemma3":
        written |= _gemma3(config)
    elif config.rope.kind != "default":
        written["rope_scaling"] = _scaling(config.rope)
    return written


def _scaling(rope: Rope) -> dict[str, Any]:
    if rope.kind == "linear":
        return {"rope_type": "linear", "factor": rope.factor}
    return {
        "rope_type": "longrope",
        "short_factor": list(rope.short),
        "long_factor": list(rope.long),
        "factor": rope.factor,
        "attention_factor": rope.attention_factor,
        "original_max_position_embeddings": rope.original_context,
    }


def _gemma3(config: DecoderConfig) -> dict[str, Any]:
    local = next((rope for rope, window in zip(config.ropes, config.windows, strict=True) if window and rope), None)
    written: dict[str, Any] = {
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": config.sliding_window or max(config.windows),
        "layer_types": ["sliding_attention" if window else "full_attention" for window in config.windows],
        "query_pre_attn_scalar": round(config.scale**-2),
        "final_logit_softcapping": config.logit_softcap or None,
        "attn_logit_softcapping": config.attention_softcap or None,
        "rope_local_base_freq": local.theta if local else 10_000.0,
    }
    if config.rope.kind != "default":
        written["rope_scaling"] = _scaling(config.rope)
    return written
