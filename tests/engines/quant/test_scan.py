"""A quantized checkpoint whose values can't be right is refused when it is registered, by the name of the tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.native.inspect import inspect
from engines.native.loader.errors import BadModel
from tests.engines.quant.checkpoints import DOWN, SCHEMES, written

NAN, INF = float("nan"), float("inf")


def report(folder: Path) -> dict[str, Any]:
    return inspect({"format": "safetensors", "paths": {path.name: str(path) for path in folder.iterdir()}})


@pytest.mark.parametrize(
    ("kind", "quantization"),
    [
        ("w4", "int4 group 16 asymmetric"),
        ("w8a8", "int8 per channel, int8 activations"),
        ("fp8", "fp8 per channel, fp8 activations"),
    ],
)
def test_facts(tmp_path: Path, kind: str, quantization: str) -> None:
    folder, expected = written(tmp_path, SCHEMES[kind])
    facts = report(folder)
    assert (facts["quantization"], facts["dtype"], facts["tensors"]) == (quantization, "float32", 11)
    assert facts["shape"]["quantized_parameters"] == sum(matrix.numel() for matrix in expected.values())
    assert facts["shape"]["quantized_bytes"] < facts["weights_bytes"]
    assert facts["shape"]["parameters"] > facts["shape"]["quantized_parameters"]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("w4", f"{DOWN}.weight_scale", NAN),
        ("w8a8", f"{DOWN}.weight_scale", INF),
        ("w8a8", "model.layers.0.input_layernorm.weight", -INF),
        ("fp8", f"{DOWN}.weight", NAN),
        ("fp8 static", f"{DOWN}.input_scale", NAN),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_value_that_is_no_number(tmp_path: Path, kind: str, name: str, value: float, dtype: torch.dtype) -> None:
    folder, _ = written(tmp_path, SCHEMES[kind])
    path = folder / "model.safetensors"
    state = load_file(path)
    values = state[name].clone() if state[name].dtype == torch.float8_e4m3fn else state[name].to(dtype)
    values.view(-1)[-1] = value
    save_file(state | {name: values}, path)
    with pytest.raises(BadModel) as caught:
        report(folder)
    assert caught.value.code == "bad_values"
    assert f"tensor {name} holds 1 values" in caught.value.message
    assert "sha256" in caught.value.hint


def test_the_greatest_numbers_are_numbers(tmp_path: Path) -> None:
    folder, _ = written(tmp_path, SCHEMES["fp8"])
    path = folder / "model.safetensors"
    state = load_file(path)
    values = state[f"{DOWN}.weight"].clone()
    values.view(-1)[:2] = torch.tensor([448.0, -448.0]).to(torch.float8_e4m3fn)
    norm = torch.full((32,), torch.finfo(torch.bfloat16).max).to(torch.bfloat16)
    save_file(state | {f"{DOWN}.weight": values, "model.norm.weight": norm}, path)
    assert report(folder)["quantization"].startswith("fp8")


def test_groups_and_shapes(tmp_path: Path) -> None:
    folder, _ = written(tmp_path, SCHEMES["w4"])
    path = folder / "model.safetensors"
    state = load_file(path)
    order = torch.arange(64, dtype=torch.int32) // 16
    save_file(state | {f"{DOWN}.weight_g_idx": order}, path)
    assert report(folder)["quantization"] == "int4 group 16 asymmetric"
    save_file(state | {f"{DOWN}.weight_g_idx": order + 1}, path)
    with pytest.raises(BadModel, match=r"down_proj\.weight_g_idx names groups 1 … 4, and there are 4"):
        report(folder)
    save_file(state | {f"{DOWN}.weight_shape": torch.tensor([64, 32])}, path)
    with pytest.raises(BadModel, match=r"down_proj\.weight_shape says \[64, 32\]"):
        report(folder)
