"""Tensors go from the file into their place: whole, in part, merged, turned over, converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engines.native.loader.model_files import ModelFiles
from engines.native.loader.quants import BY_NAME, dequantize
from engines.native.loader.safetensors import read_safetensors
from engines.native.loader.staging import Staging, pieces
from engines.native.loader.tensors import TensorInfo
from engines.native.loader.weights import Weights

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROWS, COLUMNS = 24, 20


def opened(path: Path, tensors: dict[str, TensorInfo]) -> ModelFiles:
    """Files of no architecture: `Weights` looks at nothing but the tensors."""
    return ModelFiles("safetensors", {path.name: path}, None, tensors, None)  # type: ignore[arg-type] # only tensors are read


@pytest.fixture(scope="module")
def values() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def files(values: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({str(dtype): values.to(dtype) for dtype in DTYPES} | {"bias": values[0].clone()}, path)
    return opened(path, read_safetensors(path))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kept=st.sampled_from(DTYPES), wanted=st.sampled_from(DTYPES), turned=st.booleans())
def test_any_part_is_what_slicing_the_whole_gives(
    files: ModelFiles, values: torch.Tensor, data: st.DataObject, kept: torch.dtype, wanted: torch.dtype, turned: bool
) -> None:
    rows = slice(*sorted(data.draw(st.sets(st.integers(0, ROWS), min_size=2, max_size=2))))
    columns = slice(*sorted(data.draw(st.sets(st.integers(0, COLUMNS), min_size=2, max_size=2))))
    expected = values.to(kept).to(wanted)[rows, columns]
    shape = expected.shape[::-1] if turned else expected.shape
    target = torch.full(shape, torch.nan, dtype=wanted)
    target = target.t() if turned else target
    with Weights(files) as weights:
        weights.into(str(kept), target, rows=rows, columns=columns)
        assert torch.equal(target, expected)
        assert torch.equal(weights.read(str(kept), wanted, rows=rows), values.to(kept).to(wanted)[rows])
        assert torch.equal(weights.read("bias", torch.float32), values[0])


def test_quantized_tensor_is_read_in_bands_and_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.native.loader.weights._BAND", 3 * 64)
    form, shape = BY_NAME["Q4_1"], (10, 64)
    blocks = np.random.default_rng(1).integers(0, 255, (10 * 64 // form.values, form.bytes), np.uint8)
    blocks[:, :4] = np.array([0.5, -1.0], np.float16).view(np.uint8)  # scale and minimum: numbers
    path = tmp_path / "blocks"
    path.write_bytes(b"head" + blocks.tobytes())
    info = TensorInfo("x", shape, "Q4_1", path, 4, blocks.nbytes)
    expected = torch.from_numpy(dequantize(memoryview(blocks.tobytes()), "Q4_1", shape))
    with Weights(opened(path, {"x": info})) as weights:
        assert torch.equal(weights.read("x", torch.float32), expected)
        assert torch.equal(weights.read("x", torch.float32, rows=slice(4, 9)), expected[4:9])
        turned = torch.empty(64, 10).t()
        weights.into("x", turned)
        assert torch.equal(turned, expected)


def test_lent_tensor_may_be_written_over_and_the_file_stays(files: ModelFiles, values: torch.Tensor) -> None:
    with Weights(files) as weights:
        lent = weights.lent("torch.float32", torch.float32)
        assert torch.equal(lent, values)
        lent.zero_()
        converted = weights.lent("torch.float16", torch.float32)
        assert torch.equal(converted, values.half().float())
    assert torch.equal(lent, torch.zeros_like(lent))  # still there after the files are closed
    with Weights(files) as weights:
        assert torch.equal(weights.read("torch.float32", torch.float32), values)


def test_what_was_read_is_no_longer_resident(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.ones(2**23)}, path)  # 32 MiB
    with Weights(opened(path, read_safetensors(path))) as weights:
        before = _resident_files()
        target = torch.empty(2**23)
        weights.into("x", target)
        assert bool((target == 1).all())
        assert _resident_files() - before < 4 * 2**20
        lent = weights.lent("x", torch.float32)
        assert float(lent.sum()) == 2**23
        assert _resident_files() - before > 24 * 2**20, "the measure sees mapped pages"


def _resident_files() -> int:
    """Bytes of mapped files that this process has resident."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssFile"].split()[0]) * 1024


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), most=st.integers(1, 100))
def test_pieces_cover_a_matrix_once_and_fit_a_buffer(rows: int, columns: int, most: int) -> None:
    seen = np.zeros((rows, columns), int)
    for high, wide in pieces(rows, columns, most):
        assert 0 < seen[high, wide].size <= most
        seen[high, wide] += 1
    assert (seen == 1).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kept", DTYPES)
def test_staged_copies_arrive_whole_whatever_the_buffer(kept: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.native.loader.staging.BUFFER", 1 << 16)
    device = torch.device("cuda")
    staging = Staging(device)
    source = torch.randn(700, 300).to(kept)
    for target in (
        torch.empty(700, 300, dtype=torch.bfloat16, device=device),
        torch.empty(900, 300, dtype=torch.bfloat16, device=device)[100:800],
        torch.empty(300, 700, dtype=torch.bfloat16, device=device).t(),
    ):
        for _ in range(3):
            target.zero_()
            staging.copy(source, target)
            assert torch.equal(target.cpu(), source.bfloat16())
    bias = torch.empty(700, dtype=torch.float32, device=device)
    staging.copy(source[:, 0], bias)
    assert torch.equal(bias.cpu(), source[:, 0].float())
