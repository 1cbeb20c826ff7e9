"""What a config.json sets and the decoder does not do is refused by name."""

from __future__ import annotations

import pytest

from engines.native.contract import NativeEngine
from engines.native.loader.errors import BadModel
from engines.native.loader.hf_config import FAMILIES, decoder_config
from engines.native.models.config import ARCHITECTURES
from tests.engines.models.test_mixtures import MODELS as MIXTURES
from tests.engines.models.test_plain_models import BAICHUAN, CHATGLM, MINICPM

LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "vocab_size": 96,
    "max_position_embeddings": 128,
}


def test_every_family_is_declared():
    assert {name.removesuffix("_text") for name in FAMILIES} == set(ARCHITECTURES)
    assert set(ARCHITECTURES) <= set(NativeEngine().capabilities().architectures)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"model_type": "gemma3"}, "model_type is 'gemma3'"),  # with pictures; its text model is gemma3_text
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling is 'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "factor is None"),
        ({"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["chunked_attention"] * 3}, "chunked"),
        ({"model_type": "gemma2", "hidden_activation": "relu"}, "hidden_activation is 'relu'"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"model_type": "cohere", "use_qk_norm": True}, "use_qk_norm is True"),
        ({"model_type": "phi3", "rope_scaling": {"type": "su", "short_factor": [1.0]}}, "long_factor is None"),
        ({"model_type": "glm", "partial_rotary_factor": 0.4}, "partial_rotary_factor is 0.4"),
    ],
)
def test_refusals(changes, named):
    with pytest.raises(BadModel, match=r"config\.json") as caught:
        decoder_config(LLAMA | changes)
    assert caught.value.code == "unknown_architecture"
    assert named in caught.value.message, caught.value.message


@pytest.mark.parametrize(
    ("config", "changes", "named"),
    [
        (MINICPM, {"num_experts": 8}, "num_experts is 8"),
        (MINICPM, {"scale_emb": None}, "scale_emb is None"),
        (MINICPM, {"sparse_config": {"topk": 64}}, "sparse_config is"),
        (BAICHUAN, {"hidden_size": 5120}, "ALiBi"),
        (CHATGLM, {"rmsnorm": False}, "rmsnorm is False"),
        (CHATGLM, {"padded_vocab_size": 65_024, "rope_ratio": 50}, "rope_ratio is 50"),
        (CHATGLM, {"multi_query_group_num": None}, "multi_query_group_num is None"),
    ],
)
def test_refusals_of_models_with_their_own_code(config, changes, named):
    with pytest.raises(BadModel) as caught:
        decoder_config(config | changes)
    assert named in caught.value.message, caught.value.message


def test_command_r_has_the_context_that_it_is_made_for():
    changes = {"model_type": "cohere", "max_position_embeddings": 8192, "model_max_length": 131_072}
    assert decoder_config(LLAMA | changes).context_length == 131_072
    assert decoder_config(LLAMA | changes | {"model_max_length": None}).context_length == 8192


def test_baichuan_of_13b_has_no_positions_but_alibi():
    without = {key: value for key, value in BAICHUAN.items() if key != "max_position_embeddings"}
    with pytest.raises(BadModel, match="ALiBi"):
        decoder_config(without)


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9"),
        ("qwen3-moe", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("deepseek-v2", {"norm_topk_prob": True}, "norm_topk_prob is True"),
        ("deepseek-v3", {"n_group": 3}, "n_group is 3"),
        ("deepseek-v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ],
)
def test_refusals_of_mixtures(name, changes, named):
    kind, own = MIXTURES[name]
    with pytest.raises(BadModel) as caught:
        decoder_config(LLAMA | {"model_type": kind} | own | changes)
    assert named in caught.value.message, caught.value.message
