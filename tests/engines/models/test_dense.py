"""Each dense architecture against transformers' class of it, in float32: a tiny random model, written by
save_pretrained, read by our loader."""

from __future__ import annotations

import pytest

from tests.engines.models.harness import check, reference_of, runner_of, saved, transformers_model

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.5, 2.0, 4.0, 8.0],
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 50_000.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1_000.0},
}
GEMMA = {"head_dim": 16, "tie_word_embeddings": True}
MODELS = {
    "codellama": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "qwen3-yarn": ("qwen3", {"head_dim": 16, "rope_parameters": YARN | {"attention_factor": 0.8, "truncate": False}}),
    "smollm3": ("smollm3", {"tie_word_embeddings": True, "no_rope_layer_interval": 2}),
    "gemma": ("gemma", GEMMA),
    "gemma2": ("gemma2", GEMMA | {"sliding_window": 9, "query_pre_attn_scalar": 10}),
    "gemma2-caps-that-bite": (
        "gemma2",
        GEMMA | {"sliding_window": 9, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma2-no-caps": (
        "gemma2",
        GEMMA | {"sliding_window": 9, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma3": (
        "gemma3_text",
        GEMMA | {"sliding_window": 9, "sliding_window_pattern": 3, "rope_parameters": GEMMA3_ROPE, "head_dim": 256},
    ),
    "phi3": ("phi3", {"sliding_window": 12}),
    "phi3-longrope": ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16}),
    "phi4-mini": (
        "phi3",
        {
            "head_dim": 16,
            "hidden_size": 96,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.75},
        },
    ),
    "glm": ("glm", {"head_dim": 16}),
    "glm4": ("glm4", {"head_dim": 16, "attention_bias": False}),
    "command-r": ("cohere", {"tie_word_embeddings": True, "logit_scale": 0.25}),
    "command-r-untied": ("cohere", {"attention_bias": True}),
    "command-r7b": ("cohere2", {"tie_word_embeddings": True, "sliding_window": 9, "sliding_window_pattern": 3}),
    "head-size-80": ("llama", {"head_dim": 80}),
    "head-size-96": ("phi3", {"hidden_size": 192, "num_attention_heads": 2, "num_key_value_heads": 1}),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_equal_those_of_transformers(name, tmp_path):
    kind, changes = MODELS[name]
    model = transformers_model(kind, name, **changes)
    check(runner_of(saved(model, tmp_path)), reference_of(model))


def test_longrope_within_the_original_context_uses_the_short_factors(tmp_path):
    changes = {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64}
    model = transformers_model("phi3", "short", **changes)
    check(runner_of(saved(model, tmp_path), max_model_len=64), reference_of(model))
