"""Configurations of real models, as their config.json has them; only what sizes follow from."""

from __future__ import annotations

from typing import Any

BASE = {"max_position_embeddings": 32_768, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def _config(
    kind: str, layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return BASE | {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab, "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
    } | more  # fmt: skip


LLAMA2_7B = _config("llama", 32, 4096, 11008, 32, 32, 32_000)
LLAMA31_8B = _config("llama", 32, 4096, 14336, 32, 8, 128_256, head_dim=128, max_position_embeddings=131_072)
LLAMA31_70B = _config("llama", 80, 8192, 28672, 64, 8, 128_256, head_dim=128)
QWEN25_7B = _config("qwen2", 28, 3584, 18944, 28, 4, 152_064)
QWEN3_06B = _config("qwen3", 28, 1024, 3072, 16, 8, 151_936, head_dim=128, tie_word_embeddings=True)
QWEN3_8B = _config("qwen3", 36, 4096, 12288, 32, 8, 151_936, head_dim=128)
QWEN3_32B = _config("qwen3", 64, 5120, 25600, 64, 8, 151_936, head_dim=128, max_position_embeddings=40_960)
SMOLLM2 = _config("llama", 30, 576, 1536, 9, 3, 49_152, tie_word_embeddings=True, max_position_embeddings=8192)
MISTRAL_7B = _config("mistral", 32, 4096, 14336, 32, 8, 32_000, sliding_window=4096)
GEMMA3_1B = _config("gemma3_text", 26, 1152, 6912, 4, 1, 262_144, head_dim=256, tie_word_embeddings=True) | {
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "rope_theta": 1e6,
}
MIXTRAL = _config("mixtral", 32, 4096, 14336, 32, 8, 32_000, num_local_experts=8, num_experts_per_tok=2)
QWEN3_30B_A3B = _config(
    "qwen3_moe", 48, 2048, 6144, 32, 4, 151_936, head_dim=128, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=768, norm_topk_prob=True,
)  # fmt: skip
DEEPSEEK_V3 = _config(
    "deepseek_v3", 61, 7168, 18432, 128, 128, 129_280, kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    moe_intermediate_size=2048, first_k_dense_replace=3, n_group=8, topk_group=4,
)  # fmt: skip
