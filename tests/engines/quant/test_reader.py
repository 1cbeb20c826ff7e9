"""Whole checkpoints: opened with the strictness that float ones have, read as they are and as floats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.names import file_name
from engines.native.loader.quants import BY_NAME, dequantize
from engines.native.loader.tensors import TensorInfo
from engines.native.loader.weights import Weights
from engines.native.quant.reader import from_blocks
from engines.native.quant.scheme import WeightScheme
from engines.native.quant.stored import KEPT_BLOCKS
from tests.engines.quant.checkpoints import DOWN, SCHEMES, STATIC, Tensors, changed, written
from tests.tiny_models import write_gguf, write_safetensors


def opened(folder: Path) -> ModelFiles:
    return open_model("safetensors", {path.name: str(path) for path in folder.iterdir()})


def edited(folder: Path, edit: Callable[[Tensors], object]) -> BadModel:
    """What is said of the checkpoint after `edit` of its tensors."""
    path = folder / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(state)
    save_file(state, path)
    with pytest.raises(BadModel) as caught:
        read_whole(folder)
    return caught.value


def read_whole(folder: Path) -> None:
    files = opened(folder)
    with Weights(files) as weights:
        for name in files.quantized:
            weights.quantized(name)


@pytest.mark.parametrize("kind", SCHEMES)
def test_a_checkpoint_is_read_as_it_is_and_as_floats(tmp_path: Path, kind: str) -> None:
    scheme = SCHEMES[kind]
    folder, expected = written(tmp_path, scheme)
    files = opened(folder)
    assert files.quant is not None
    assert files.quant.of(DOWN) == scheme
    assert len(files.quantized) == len(expected) == 7
    with Weights(files) as weights:
        for name, stored in files.quantized.items():
            theirs = file_name(name, "safetensors")
            matrix, info = expected[theirs], files.tensors[name]
            weight = weights.quantized(name)
            assert (weight.scheme, weight.activations, weight.name) == (
                scheme.weight,
                scheme.activations,
                stored.module,
            )
            assert (info.shape, info.type, info.nbytes) == (matrix.shape, str(scheme.weight), stored.nbytes)
            assert torch.equal(weight.dequantize(), matrix)
            assert torch.equal(weights.read(name, torch.float32), matrix)
            assert torch.equal(weights.read(name, torch.float32, rows=slice(3, 9)), matrix[3:9])
            assert torch.equal(weights.lent(name, torch.bfloat16), matrix.to(torch.bfloat16))
            turned = torch.empty(8, 5).t()
            weights.into(name, turned, rows=slice(2, 7), columns=slice(1, 9))
            assert torch.equal(turned, matrix[2:7, 1:9])
            if scheme.activations is STATIC:
                assert weight.input_scale == 0.5
        assert "embed.weight" not in files.quantized
        assert weights.read("embed.weight", torch.float32).std() > 0
        assert weights.kv_scales(0) is None


@pytest.mark.parametrize(("strategy", "shape"), [("tensor", (1,)), ("attn_head", (2,)), ("attn_head", (2, 1, 1))])
def test_scales_of_keys_and_values(tmp_path: Path, strategy: str, shape: tuple[int, ...]) -> None:
    kv = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False}
    folder, _ = written(tmp_path, SCHEMES["fp8"], kv)
    with Weights(opened(folder)) as weights:  # kv_cache measures what the files lack
        assert weights.kv_scales(0) is None
    path = folder / "model.safetensors"
    keys, values = torch.rand(shape).to(torch.bfloat16), torch.rand(shape)
    scales = {"model.layers.0.self_attn.k_scale": keys, "model.layers.0.self_attn.v_scale": values}
    save_file(load_file(path) | {"model.layers.0.self_attn.k_scale": keys}, path)
    with pytest.raises(BadModel, match=r"model\.layers\.0\.self_attn\.v_scale is missing, and the other one"):
        opened(folder)
    save_file(load_file(path) | scales, path)
    with Weights(opened(folder)) as weights:
        read = weights.kv_scales(0)
    assert read is not None
    assert torch.equal(read[0], keys.float().reshape(-1))
    assert torch.equal(read[1], values.reshape(-1))
    changed(folder, num_key_value_heads=2)
    error = edited(folder, lambda state: state.update({"model.layers.0.self_attn.v_scale": torch.rand(3)}))
    assert (error.code, "self_attn.v_scale is F32 of shape [3]" in error.message) == ("wrong_shape", True)


@pytest.mark.parametrize(
    ("edit", "code", "named"),
    [
        (lambda state: state.pop(f"{DOWN}.weight_scale"), "missing_tensor", f"{DOWN}.weight_scale is missing"),
        (lambda state: state.pop(f"{DOWN}.weight_packed"), "missing_tensor", f"{DOWN}.weight_packed is missing"),
        (
            lambda state: state.update({f"{DOWN}.weight_packed": state[f"{DOWN}.weight_packed"][:, :-1].contiguous()}),
            "wrong_shape", f"{DOWN}.weight_packed has shape [32, 7]; int4 group 16 asymmetric of a matrix of [32, 64]",
        ),
        (
            lambda state: state.update({f"{DOWN}.weight_scale": state[f"{DOWN}.weight_scale"].double()}),
            "unknown_type", f"{DOWN}.weight_scale has dtype F64",
        ),
        (
            lambda state: state.update({f"{DOWN}.weight_zero_point": state[f"{DOWN}.weight_zero_point"].long()}),
            "unknown_type", f"{DOWN}.weight_zero_point has dtype I64",
        ),
        (
            lambda state: state.update({f"{DOWN}.weight_shape": torch.tensor([32, 60])}),
            "wrong_shape", f"{DOWN}.weight_shape says [32, 60]",
        ),
        (
            lambda state: state.update({f"{DOWN}.weight_scale_2": torch.ones(1)}),
            "unknown_architecture", f"{DOWN}.weight_scale_2 has no place",
        ),
        (
            lambda state: state.update({"model.norm.weight": torch.ones(32).to(torch.int8)}),
            "unknown_type", "model.norm.weight has dtype I8, and quantization_config does not say",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, edit: Any, code: str, named: str) -> None:
    folder, _ = written(tmp_path, SCHEMES["w4"])
    error = edited(folder, edit)
    assert error.code == code
    assert named in error.message, error.message


def test_a_truncated_packed_tensor_is_named(tmp_path: Path) -> None:
    folder, _ = written(tmp_path, SCHEMES["w4"])
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadModel, match=r"tensor \S+ ends at byte .* of model\.safetensors") as caught:
        opened(folder)
    assert caught.value.code == "truncated"


def test_what_stays_float_in_the_file_is_float(tmp_path: Path) -> None:
    """A head or a router that the configuration doesn't name, as fp8 checkpoints have it."""
    folder, expected = written(tmp_path, SCHEMES["w4"])
    path = folder / "model.safetensors"
    state = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(DOWN)}
    save_file(state | {f"{DOWN}.weight": expected[f"{DOWN}.weight"]}, path)
    files = opened(folder)
    assert "layers.0.down.weight" not in files.quantized
    with Weights(files) as weights:
        assert torch.equal(weights.read("layers.0.down.weight", torch.float32), expected[f"{DOWN}.weight"])


def test_gptq_biases_of_zeros_are_passed_over_and_others_refused(tmp_path: Path) -> None:
    """AutoGPTQ writes a bias for each matrix, whatever the model has."""
    write_safetensors(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    draw = torch.Generator().manual_seed(0)
    for name in [name for name in state if name.endswith("proj.weight")]:
        rows, columns = state.pop(name).shape
        module = name.removesuffix(".weight")
        state |= {
            f"{module}.qweight": torch.randint(-(2**31), 2**31 - 1, (columns // 8, rows), generator=draw).int(),
            f"{module}.qzeros": torch.full((columns // 16, rows // 8), 0x77777777, dtype=torch.int32),
            f"{module}.scales": torch.rand(columns // 16, rows, generator=draw).half(),
            f"{module}.g_idx": torch.arange(columns, dtype=torch.int32) // 16,
            f"{module}.bias": torch.zeros(rows).half(),
        }
    save_file(state, path)
    changed(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 16, "sym": True})
    files = opened(tmp_path)
    with Weights(files) as weights:
        weight = weights.quantized("layers.0.up.weight")
    assert (weight.scheme, weight.zeros, weight.groups_of) == (WeightScheme("int", 4, "group", 16), None, None)
    assert weight.scales.dtype == torch.float16
    error = edited(tmp_path, lambda state: state.update({f"{DOWN}.bias": torch.ones(32).half()}))
    assert (error.code, f"{DOWN}.bias has no place" in error.message) == ("unknown_architecture", True)


@pytest.mark.parametrize(
    ("about", "scale", "shape"),
    [
        ({"weight_block_size": [16, 16]}, "weight_scale_inv", None),
        ({"activation_scheme": "static"}, "weight_scale", (1,)),
        ({"activation_scheme": "static"}, "weight_scale_inv", ()),
    ],
)
def test_fp8_of_hugging_face(tmp_path: Path, about: dict[str, Any], scale: str, shape: tuple[int, ...] | None) -> None:
    """DeepSeek's and transformers' names of scales, and vLLM's; norms and embedding in bfloat16."""
    write_safetensors(tmp_path)
    path = tmp_path / "model.safetensors"
    state = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()}
    static = "activation_scale" if scale.endswith("inv") else "input_scale"
    for name in [name for name in state if name.endswith("proj.weight")]:
        rows, columns = state[name].shape
        module = name.removesuffix(".weight")
        state[name] = state[name].to(torch.float8_e4m3fn)
        state[f"{module}.{scale}"] = torch.rand(shape if shape is not None else (rows // 16, columns // 16))
        if "activation_scheme" in about:
            state[f"{module}.{static}"] = torch.tensor(0.5)
    save_file(state, path)
    changed(tmp_path, quantization_config={"quant_method": "fp8"} | about)
    files = opened(tmp_path)
    with Weights(files) as weights:
        weight, read = weights.quantized("layers.0.down.weight"), weights.read("layers.0.down.weight", torch.float32)
    scales = state[f"{DOWN}.{scale}"]
    if shape is None:
        scales = scales.repeat_interleave(16, 0).repeat_interleave(16, 1)
    assert torch.equal(read, state[f"{DOWN}.weight"].float() * scales)
    assert weight.scheme.strategy == ("block" if shape is None else "tensor")
    assert (weight.input_scale is None) is (shape is None)


# GGUF


@pytest.mark.parametrize("kind", KEPT_BLOCKS)
def test_blocks_are_kept_bit_for_bit(kind: str) -> None:
    rows, columns = 6, 512
    form, draw = BY_NAME[kind], np.random.default_rng(7)
    raw = draw.integers(0, 256, (rows * columns // form.values, form.bytes), dtype=np.uint8)
    for at in {"Q6_K": (208,), "Q4_K": (0, 2), "Q4_1": (0, 2)}.get(kind, (0,)):
        raw[:, at : at + 2] = draw.standard_normal(len(raw)).astype(np.float16).view(np.uint8).reshape(-1, 2)
    info = TensorInfo("blk.0.ffn_up.weight", (rows, columns), kind, Path(), 0, raw.nbytes)
    weight = from_blocks(info, memoryview(raw.tobytes()))
    theirs = gguf.dequantize(raw.reshape(rows, -1), gguf.GGMLQuantizationType[kind]).reshape(rows, columns)
    expected = torch.from_numpy(theirs)
    assert torch.equal(weight.dequantize(torch.float32), expected)
    assert torch.equal(torch.from_numpy(dequantize(memoryview(raw.tobytes()), kind, (rows, columns))), expected)
    assert weight.scheme == KEPT_BLOCKS[kind]
    assert weight.values.dtype == (torch.uint8 if weight.scheme.bits == 4 else torch.int8)
    assert weight.name == "blk.0.ffn_up"
    half = weight.columns(slice(256, 512)).rows(slice(1, 4))
    assert torch.equal(half.dequantize(torch.float32), expected[1:4, 256:])


def test_a_gguf_models_blocks_are_quantized_weights(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "plain.gguf")
    files = open_model("gguf", {path.name: str(path)})
    assert (files.quant, files.quantized) == (None, {})
    blocks = tmp_path / "blocks.gguf"
    requantized(path, blocks)
    files = open_model("gguf", {blocks.name: str(blocks)})
    assert files.quant is not None
    assert files.quant.method == "gguf"
    assert len(files.quantized) == 8
    with Weights(files) as weights:
        for name in files.quantized:
            read = weights.read(name, torch.float32)
            assert torch.equal(weights.quantized(name).dequantize(torch.float32), read)
            assert torch.equal(weights.read(name, torch.float32, rows=slice(1, 5)), read[1:5])


def requantized(source: Path, target: Path) -> None:
    """The same model with its matrices as Q8_0."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        if len(tensor.shape) > 1:
            blocks = gguf.quantize(tensor.data, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(tensor.name, blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
