"""DecoderConfig from a Hugging Face config.json (the safetensors format)."""

from __future__ import annotations

from collections.abc import Callable

from engines.native.loader import hf_dense, hf_mixtures
from engines.native.loader.hf_fields import Json, refused
from engines.native.models.config import ARCHITECTURES, DecoderConfig

FAMILIES: dict[str, Callable[[Json], DecoderConfig]] = {
    "llama": hf_dense.llama,
    "mistral": hf_dense.mistral,
    "qwen2": hf_dense.qwen2,
    "qwen3": hf_dense.qwen3,
    "smollm3": hf_dense.smollm3,
    "gemma": hf_dense.gemma,
    "gemma2": hf_dense.gemma2,
    "gemma3_text": hf_dense.gemma3,
    "phi3": hf_dense.phi3,
    "glm": hf_dense.glm,
    "glm4": hf_dense.glm4,
    "chatglm": hf_dense.chatglm,
    "minicpm": hf_dense.minicpm,
    "baichuan": hf_dense.baichuan,
    "cohere": hf_dense.cohere,
    "cohere2": hf_dense.cohere2,
    "mixtral": hf_mixtures.mixtral,
    "qwen2_moe": hf_mixtures.qwen2_moe,
    "qwen3_moe": hf_mixtures.qwen3_moe,
    "deepseek_v2": hf_mixtures.deepseek_v2,
    "deepseek_v3": hf_mixtures.deepseek_v3,
}
"""`model_type` → reader."""


def decoder_config(config: Json) -> DecoderConfig:
    """Raises BadModel("unknown_architecture"), naming the key, for whatever the decoder would compute wrongly."""
    name = str(config.get("model_type", ""))
    if name not in FAMILIES:
        raise refused(f"model_type is {name!r}", f"the native engine serves {', '.join(ARCHITECTURES)}")
    return FAMILIES[name](config)
