"""Every kernel compiles for the GPUs that we name, within their shared memory and with nothing spilled."""

import json
import sys
from functools import partial
from typing import Any

import pytest

from tests import background

pytestmark = [pytest.mark.kernels, pytest.mark.slow]

SHARED_LIMIT = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
KERNELS = {
    "linear_kernel",
    "paged_attention_kernel",
    "rms_norm_kernel",
    "add_rms_norm_kernel",
    "silu_mul_kernel",
    "rope_and_cache_kernel",
    "prepare_kernel",
    "score_kernel",
    "threshold_kernel",
    "draw_kernel",
    "finish_kernel",
    "int8_head_kernel",
    "mask_kernel",
    "quantize_kernel",
    "add_rms_norm_quantize_kernel",
    "silu_mul_quantize_kernel",
    "scaled_linear_kernel",
    "upcast_linear_kernel",
    "widen_kernel",
    "widen_pages_kernel",
    "quantized_rope_and_cache_kernel",
    "prepare_trees_kernel",
    "accept_kernel",
    "compact_kernel",
}


HOPPER = {"scaled_product_kernel"}


def compiled(capability: int) -> list[dict[str, Any]]:
    argv = [sys.executable, "-m", "tests.engines.kernels.compile_kernels", str(capability)]
    done = background.run(argv, env={"TRITON_INTERPRET": None}, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


BACKGROUND = {f"test_compiles_without_spills[{each}]": partial(compiled, each) for each in SHARED_LIMIT}


@pytest.mark.timeout(1200)  # it may wait behind others; each compilation has its own end
@pytest.mark.parametrize("capability", SHARED_LIMIT)
def test_compiles_without_spills(capability, from_background):
    found = from_background()
    assert {entry["kernel"] for entry in found} == KERNELS | (HOPPER if capability == 90 else set())
    attention = [entry for entry in found if entry["kernel"] == "paged_attention_kernel"]
    assert len(attention) == 6 + 12 + 3 + 1, "decode, chunk, prefill of two head sizes; of 8-bit pools; trees; strict"
    products = [entry for entry in found if entry["kernel"].endswith(("linear_kernel", "product_kernel"))]
    whole = [entry for entry in attention + products if not entry.get("pairs")]
    frame = 0 if capability == 90 else 8  # of a product elsewhere, with registers to spare
    assert [e for e in whole if e["stack"] > (frame if e in products else 0) or e["local"]] == []
    pairs = [entry for entry in attention if entry.get("pairs")]
    assert [e for e in pairs if e["stack"] > 32] == []  # prefill tiles spill a few of 128 or 255 registers
    rest = [entry for entry in found if entry not in pairs]
    assert [e for e in rest if e["stack"] > 16] == []  # a division's slow path has a frame of 8 bytes, nothing spilled
    assert [e for e in found if e["shared"] > SHARED_LIMIT[capability]] == []
