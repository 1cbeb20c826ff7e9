"""Dequantization of each block format against the gguf package, on its own quantization and on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from engines.native.loader.quants import BY_NAME, dequantize

ROWS, COLUMNS = 6, 512


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_equals_the_gguf_package(name):
    form = BY_NAME[name]
    kind = gguf.GGMLQuantizationType[name]
    assert gguf.GGML_QUANT_SIZES[kind] == (form.values, form.bytes)
    assert kind.value == form.id
    raw = _random_blocks(form, np.random.default_rng(form.id))
    ours = dequantize(memoryview(raw.tobytes()), name, (ROWS, COLUMNS))
    theirs = gguf.dequantize(raw.reshape(ROWS, -1), kind).reshape(ROWS, COLUMNS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    assert ours.std() > 0


def _random_blocks(form, random) -> np.ndarray:
    """Random bytes, with finite half-precision scales where the format has them: every bit pattern of values."""
    raw = random.integers(0, 256, (ROWS * COLUMNS // form.values, form.bytes), dtype=np.uint8)
    if form.values == 1:
        values = random.standard_normal(ROWS * COLUMNS).astype(np.float32)
        if form.name == "F32":
            return values.view(np.uint8).reshape(-1, 4)
        if form.name == "F16":
            return values.astype(np.float16).view(np.uint8).reshape(-1, 2)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1, 2)
    for at in {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2)}.get(form.name, (0,)):
        scales = random.standard_normal(len(raw)).astype(np.float16)
        raw[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_reads_what_the_gguf_package_quantizes(name):
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    raw = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    ours = dequantize(memoryview(raw.tobytes()), name, values.shape)
    assert np.abs(ours - values).max() < 0.4
    np.testing.assert_array_equal(ours, gguf.dequantize(raw, gguf.GGMLQuantizationType[name]))
