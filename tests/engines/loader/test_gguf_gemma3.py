"""A Gemma 3 in GGUF, with llama.cpp's tensor names and norms that have their 1 already, against transformers."""

from __future__ import annotations

import gguf
import pytest

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import open_model
from tests.engines.models.harness import BASE, check, reference_of, runner_of, transformers_model

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
SIZE, WINDOW, LAYERS = 16, 9, 7


def _model():
    return transformers_model(
        "gemma3_text", "gguf", head_dim=SIZE, num_hidden_layers=LAYERS, sliding_window=WINDOW, tie_word_embeddings=True,
        query_pre_attn_scalar=SIZE, sliding_window_pattern=6,
    )  # fmt: skip


def _write(path, model, **changes):
    writer = gguf.GGUFWriter(path, "gemma3")
    numbers = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": BASE["hidden_size"],
        "feed_forward_length": BASE["intermediate_size"],
        "attention.head_count": BASE["num_attention_heads"],
        "attention.head_count_kv": BASE["num_key_value_heads"],
        "attention.key_length": SIZE,
        "attention.value_length": SIZE,
        "attention.sliding_window": WINDOW,
    } | changes
    for key, value in numbers.items():
        writer.add_uint32(f"gemma3.{key}", value)
    writer.add_float32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("gemma3.rope.freq_base", 1_000_000.0)
    for name, parameter in model.named_parameters():
        if name == "lm_head.weight":
            continue
        base, kind = name.rsplit(".", 1)
        ours = NAMES.get(base, "")
        if not ours:
            _, _, layer, part = base.split(".", 3)
            ours = f"blk.{layer}.{NAMES[part]}"
        values = parameter.detach().numpy()
        writer.add_tensor(f"{ours}.{kind}", values + 1 if "norm" in base else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {path.name: str(path)}


def test_logits_equal_those_of_transformers(tmp_path):
    model = _model()
    check(runner_of(_write(tmp_path / "model.gguf", model)), reference_of(model))


def test_value_heads_of_another_size_are_refused(tmp_path):
    paths = _write(tmp_path / "model.gguf", _model(), **{"attention.value_length": 8})
    with pytest.raises(BadModel, match=r"gemma3\.attention\.value_length"):
        open_model("gguf", paths)
