"""The inspector as the control plane runs it: a good model described, each broken one refused by name."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engines.api import ModelShape, get_engine
from engines.native.inspect import inspect
from engines.native.loader.errors import BadModel
from tests.engines import gguf_files
from tests.engines.weights import smollm2


def _refused(paths: dict[str, str], format: str = "gguf") -> BadModel:
    with pytest.raises(BadModel) as caught:
        inspect({"paths": paths, "format": format})
    return caught.value


def _gguf(path: Path) -> dict[str, str]:
    return {"model.gguf": str(path)}


@pytest.mark.weights
def test_demo_model_through_the_child_process():
    command = get_engine("native").inspect_command()
    assert command[:2] == [sys.executable, "-m"]
    spec = json.dumps({"paths": _gguf(smollm2()), "format": "gguf"})
    done = subprocess.run(command, input=spec, capture_output=True, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "report"
    report = last["data"]
    shape = ModelShape(**report["shape"])
    assert (shape.architecture, shape.layers, shape.hidden, shape.vocab) == ("llama", 30, 576, 49152)
    assert shape.parameters == 134_515_008
    assert (report["quantization"], report["license"], report["tensors"]) == ("Q4_1", "apache-2.0", 272)
    assert report["tokenizer"]["pre"] == "smollm"
    assert report["weights_bytes"] < smollm2().stat().st_size


def test_child_reports_an_error_and_its_status(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 this is a zip file, not a model")
    spec = json.dumps({"paths": _gguf(path), "format": "gguf"})
    command = get_engine("native").inspect_command()
    done = subprocess.run(command, input=spec, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["type"], last["code"]) == ("error", "bad_magic")


def test_good_tiny_model(tmp_path):
    report = inspect({"paths": _gguf(gguf_files.write(tmp_path / "model.gguf")), "format": "gguf"})
    assert report["shape"]["kv_heads"] == gguf_files.KV_HEADS
    assert report["shape"]["tied_embeddings"] is True
    assert report["dtype"] == "float32"
    assert report["tokenizer"]["eos"] == [gguf_files.VOCAB - 1]


@pytest.mark.parametrize("kept", [3, 20, 400, 3000, -4])
def test_truncated_gguf(tmp_path, kept):
    whole = gguf_files.write(tmp_path / "model.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:kept])
    error = _refused(_gguf(path))
    assert error.code == ("bad_magic" if 0 <= kept < 24 else "truncated")
    if kept == -4:
        assert "tensor blk.1.ffn_down.weight" in error.message


def test_every_truncation_is_refused_and_none_crashes(tmp_path):
    whole = gguf_files.write(tmp_path / "model.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for kept in [*range(0, 2000, 7), *range(2000, len(whole), 4999)]:
        path.write_bytes(whole[:kept])
        assert _refused(_gguf(path)).code in ("bad_magic", "truncated"), kept


def test_random_damage_never_raises_anything_else(tmp_path):
    """Any byte of the header may be wrong; the reader either refuses by name or reads another valid model."""
    whole = bytearray(gguf_files.write(tmp_path / "model.gguf").read_bytes())
    header = 4000
    random = np.random.default_rng(5)
    path = tmp_path / "damaged.gguf"
    for _ in range(300):
        damaged = bytearray(whole)
        for at in random.integers(4, header, 3):
            damaged[at] = random.integers(0, 256)
        path.write_bytes(damaged)
        with contextlib.suppress(BadModel):
            inspect({"paths": _gguf(path), "format": "gguf"})


def test_missing_tensor(tmp_path):
    content = gguf_files.tensors()
    del content["blk.1.ffn_up.weight"]
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", content)))
    assert (error.code, "blk.1.ffn_up.weight" in error.message) == ("missing_tensor", True)


def test_wrong_shape(tmp_path):
    content = gguf_files.tensors()
    content["blk.0.attn_k.weight"] = np.zeros((16, gguf_files.HIDDEN), np.float32)
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", content)))
    assert (error.code, "blk.0.attn_k.weight" in error.message) == ("wrong_shape", True)
    assert "[16, 64]" in error.message
    assert "[32, 64]" in error.message


def test_tensor_without_a_place(tmp_path):
    content = gguf_files.tensors() | {"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", content)))
    assert (error.code, "attn_q_norm" in error.message) == ("unknown_architecture", True)


def test_unknown_architecture(tmp_path):
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", architecture="mamba")))
    assert (error.code, "mamba" in error.message) == ("unknown_architecture", True)


def test_missing_key(tmp_path):
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", without=("context_length",))))
    assert (error.code, "llama.context_length" in error.message) == ("unknown_architecture", True)


def test_unknown_quantization_type(tmp_path):
    content = gguf_files.tensors()
    path = tmp_path / "model.gguf"
    gguf_files.write(path, content)
    data = bytearray(path.read_bytes())
    name = b"blk.0.ffn_down.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8
    assert struct.unpack_from("<I", data, at)[0] == gguf.GGMLQuantizationType.F32
    struct.pack_into("<I", data, at, 19)  # IQ1_S
    path.write_bytes(data)
    error = _refused(_gguf(path))
    assert (error.code, "blk.0.ffn_down.weight" in error.message) == ("unknown_type", True)
    assert "Q4_K" in error.hint


@pytest.mark.parametrize(("field", "value"), [("pre", "nobody-knows"), ("model", "rwkv")])
def test_unknown_tokenizer(tmp_path, field, value):
    error = _refused(_gguf(gguf_files.write(tmp_path / "model.gguf", **{field: value})))
    assert (error.code, value in error.message) == ("unknown_tokenizer", True)
    assert f"tokenizer.ggml.{field}" in error.message


def test_missing_file(tmp_path):
    error = _refused(_gguf(tmp_path / "absent.gguf"))
    assert (error.code, "model.gguf" in error.message) == ("missing_file", True)


# safetensors


def _folder(tmp_path: Path, model_type: str = "llama", **changes: object) -> dict[str, str]:
    config = {
        "model_type": model_type,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 40,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    } | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    save_file(
        {
            "model.embed_tokens.weight": torch.randn(40, 32),
            "model.norm.weight": torch.ones(32),
            f"{layer}input_layernorm.weight": torch.ones(32),
            f"{layer}self_attn.q_proj.weight": torch.randn(32, 32),
            f"{layer}self_attn.k_proj.weight": torch.randn(16, 32),
            f"{layer}self_attn.v_proj.weight": torch.randn(16, 32),
            f"{layer}self_attn.o_proj.weight": torch.randn(32, 32),
            f"{layer}post_attention_layernorm.weight": torch.ones(32),
            f"{layer}mlp.gate_proj.weight": torch.randn(48, 32),
            f"{layer}mlp.up_proj.weight": torch.randn(48, 32),
            f"{layer}mlp.down_proj.weight": torch.randn(32, 48),
        },
        tmp_path / "model.safetensors",
    )
    return {path.name: str(path) for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"model_type": "phi"}, "unknown_architecture", "'phi'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "unknown_architecture", "dynamic"),
        ({"hidden_act": "gelu"}, "unknown_architecture", "hidden_act"),
        ({"vocab_size": None}, "unknown_architecture", "vocab_size"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "unknown_type", "bits is 3"),
        ({"num_hidden_layers": 2}, "missing_tensor", "model.layers.1.input_layernorm.weight"),
        ({"intermediate_size": 64}, "wrong_shape", "mlp.gate_proj.weight"),
        ({"tie_word_embeddings": False}, "missing_tensor", "lm_head.weight"),
        ({}, "unknown_tokenizer", "tokenizer.json"),
    ],
)
def test_safetensors_refusals(tmp_path, changes, code, named):
    error = _refused(_folder(tmp_path, **changes), "safetensors")
    assert (error.code, named in error.message) == (code, True), error.message


def test_truncated_safetensors(tmp_path):
    paths = _folder(tmp_path)
    path = Path(paths["model.safetensors"])
    path.write_bytes(path.read_bytes()[:-10])
    error = _refused(paths, "safetensors")
    assert (error.code, "tensor model." in error.message) == ("truncated", True)


def test_missing_shard(tmp_path):
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    paths = _folder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    paths["model.safetensors.index.json"] = str(tmp_path / "model.safetensors.index.json")
    error = _refused(paths, "safetensors")
    assert (error.code, "model-00002-of-00002" in error.message) == ("missing_file", True)


def test_inspector_loads_no_torch(tmp_path):
    path = gguf_files.write(tmp_path / "model.gguf")
    code = (
        "import sys, json; from engines.native.inspect import inspect;"
        f"inspect({{'paths': {{'m.gguf': {str(path)!r}}}, 'format': 'gguf'}}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.speculation
@pytest.mark.parametrize(
    ("config", "tensors", "kind", "sizes"),
    [
        (
            {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 40},
            {"fc.weight": (64, 192), "midlayer.hidden_norm.weight": (64,), "lm_head.weight": (40, 64)},
            "eagle3",
            (64, 512),
        ),
        (
            {
                "speculators_model_type": "eagle3",
                "transformer_layer_config": {"hidden_size": 32, "vocab_size": 512},
                "target_hidden_size": 64,
            },
            {"fc.weight": (32, 192), "lm_head.weight": (40, 32)},
            "eagle3",
            (64, 512),
        ),
        ({"medusa_num_heads": 2}, {"0.0.linear.weight": (64, 64), "0.1.weight": (512, 64)}, "medusa", (64, 512)),
    ],
)
def test_heads_are_told_from_models_and_know_their_targets_sizes(tmp_path, config, tensors, kind, sizes):
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({name: torch.zeros(shape) for name, shape in tensors.items()}, tmp_path / "model.safetensors")
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    report = inspect({"paths": paths, "format": "safetensors"})
    shape = ModelShape(**report["shape"])
    assert (shape.task, shape.architecture, shape.hidden, shape.vocab) == (kind, kind, *sizes)
    assert shape.parameters == sum(int(np.prod(each)) for each in tensors.values())
    assert (report["dtype"], report["tokenizer"]) == ("float32", {})


@pytest.mark.speculation
def test_a_head_that_says_nothing_of_its_target_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 1}))
    save_file({"0.0.linear.weight": torch.zeros(64, 64)}, tmp_path / "model.safetensors")
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    assert "hidden_size" in str(_refused(paths, "safetensors"))
