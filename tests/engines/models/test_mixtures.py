"""Mixture-of-experts models against transformers' classes; see test_dense."""

from __future__ import annotations

import pytest
import torch

from engines.native.config import ConfigError
from engines.native.loader.model_files import open_model
from engines.native.models.build import check_device
from tests.engines.models.harness import check, reference_of, runner_of, saved, transformers_model

QWEN = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 20,
    "q_lora_rank": 28,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.8,
    "mscale_all_dim": 1.2,
    "beta_fast": 16.0,
}
V3 = LATENT | {"n_group": 4, "topk_group": 2}
MODELS = {
    "mixtral": ("mixtral", {"num_local_experts": 5, "sliding_window": 12}),
    "qwen2-moe": ("qwen2_moe", QWEN | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [1]}),
    "qwen3-moe": ("qwen3_moe", QWEN | {"head_dim": 16, "norm_topk_prob": True, "decoder_sparse_step": 2}),
    "qwen3-moe-raw-shares": ("qwen3_moe", QWEN | {"head_dim": 16, "norm_topk_prob": False}),
    "deepseek-v2-lite": ("deepseek_v2", LATENT | {"q_lora_rank": None}),
    "deepseek-v2": (
        "deepseek_v2",
        LATENT | {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "rope_parameters": YARN},
    ),
    "deepseek-v3": ("deepseek_v3", V3 | {"rope_parameters": YARN, "attention_bias": True}),
    "deepseek-v3-halves": ("deepseek_v3", V3 | {"rope_interleave": False, "norm_topk_prob": False}),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_equal_those_of_transformers(name, tmp_path):
    kind, changes = MODELS[name]
    model = transformers_model(kind, name, **changes)
    check(runner_of(saved(model, tmp_path)), reference_of(model))


def test_latent_attention_caches_one_compressed_vector(tmp_path):
    runner = runner_of(saved(transformers_model("deepseek_v3", "cache", **V3), tmp_path))
    keys, values = runner.model.kv[0]
    assert keys is values
    assert keys.shape[1:] == (1, 8, 28)  # one head, a block of 8, 20 compressed values and 8 rotated
    held = sum({id(pool): pool.nbytes for layer in runner.model.kv for pool in layer}.values())
    assert held == runner.sizes.plan.kv_cache


def test_auto_is_float32_and_int8_is_refused_by_name(tmp_path):
    paths = saved(transformers_model("qwen3_moe", "int8", **QWEN | {"head_dim": 16}), tmp_path)
    assert runner_of(paths, dtype="auto").sizes.dtype == "float32"
    with pytest.raises(ConfigError, match=r"int8.*dense models only; qwen3_moe"):
        runner_of(paths, dtype="int8")


def test_a_shape_that_no_kernel_computes_is_refused_on_a_gpu(tmp_path):
    changes = V3 | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    config = open_model("safetensors", saved(transformers_model("deepseek_v3", "wide", **changes), tmp_path)).config
    check_device(config, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"cuda.*576 values.*256.*deepseek_v3"):
        check_device(config, torch.device("cuda"))
