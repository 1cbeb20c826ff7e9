"""Architectures whose code comes with the model: our decoder against plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engines.models import plain_models
from tests.engines.models.harness import check, runner_of, written

HIDDEN, FFN, LAYERS, HEADS, VOCAB = 48, 80, 3, 6, 96
COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
MINICPM = COMMON | {
    "model_type": "minicpm",
    "num_key_value_heads": 2,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 16,
}
BAICHUAN = COMMON | {"model_type": "baichuan", "z_loss_weight": 0, "tie_word_embeddings": False}
CHATGLM = {
    "model_type": "chatglm",
    "hidden_size": HIDDEN,
    "ffn_hidden_size": FFN,
    "num_layers": LAYERS,
    "num_attention_heads": HEADS,
    "kv_channels": 8,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "padded_vocab_size": VOCAB,
    "seq_length": 128,
    "layernorm_epsilon": 1e-5,
    "rope_ratio": 500,
    "rmsnorm": True,
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "original_rope": True,
    "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False,
}


def _llama_shapes(prefix: str, qkv: dict[str, int]) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}self_attn.{name}.weight": (rows, HIDDEN) for name, rows in qkv.items()} | {
        f"{prefix}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        f"{prefix}input_layernorm.weight": (HIDDEN,),
        f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
        f"{prefix}mlp.gate_proj.weight": (FFN, HIDDEN),
        f"{prefix}mlp.up_proj.weight": (FFN, HIDDEN),
        f"{prefix}mlp.down_proj.weight": (HIDDEN, FFN),
    }


def _minicpm_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= _llama_shapes(f"model.layers.{layer}.", {"q_proj": HIDDEN, "k_proj": 16, "v_proj": 16})
    return shapes


def _baichuan_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        shapes |= _llama_shapes(f"model.layers.{layer}.", {"W_pack": 3 * HIDDEN})
        shapes[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = (4,)  # as old checkpoints have it
    return shapes


def _chatglm_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.embedding.word_embeddings.weight": (VOCAB, HIDDEN),
        "transformer.encoder.final_layernorm.weight": (HIDDEN,),
        "transformer.output_layer.weight": (VOCAB, HIDDEN),
        "transformer.rotary_pos_emb.inv_freq": (2,),
    }
    for layer in range(LAYERS):
        prefix = f"transformer.encoder.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (HIDDEN,),
            f"{prefix}self_attention.query_key_value.weight": (HIDDEN + 32, HIDDEN),
            f"{prefix}self_attention.query_key_value.bias": (HIDDEN + 32,),
            f"{prefix}self_attention.dense.weight": (HIDDEN, HIDDEN),
            f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}mlp.dense_h_to_4h.weight": (2 * FFN, HIDDEN),
            f"{prefix}mlp.dense_4h_to_h.weight": (HIDDEN, FFN),
        }
    return shapes


def _tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape, generator=generator)
        return 1 + 0.2 * values if "norm" in name else 0.15 * values

    return {name: tensor(name, shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("config", "shapes", "reference"),
    [
        (MINICPM, _minicpm_shapes(), plain_models.minicpm),
        (BAICHUAN, _baichuan_shapes(), plain_models.baichuan2),
        (CHATGLM, _chatglm_shapes(), plain_models.chatglm),
    ],
    ids=["minicpm", "baichuan2", "chatglm"],
)
def test_logits_equal_those_of_the_published_code(config: dict[str, Any], shapes, reference, tmp_path):
    tensors = _tensors(shapes, seed=7)
    check(runner_of(written(tmp_path, config, tensors)), lambda ids: reference(config, tensors, ids))
