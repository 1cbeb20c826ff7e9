"""Every kernel compiles for the GPUs that we name, within their shared memory and with nothing spilled."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.side_by_side import side_by_side

pytestmark = [pytest.mark.kernels, pytest.mark.slow]

SHARED_LIMIT = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
KERNELS = {
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


HOPPER = {"linear_kernel", "scaled_product_kernel"}


def compiled(capability: int) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.kernels.compile_kernels", str(capability)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def wait(request: pytest.FixtureRequest) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    jobs = {f"test_compiles_without_spills[{each}]": partial(compiled, each) for each in SHARED_LIMIT}
    with side_by_side(request, jobs) as wait:
        yield wait


@pytest.mark.timeout(600)  # each compilation has its own end
@pytest.mark.parametrize("capability", SHARED_LIMIT)
def test_compiles_without_spills(capability, wait, request):
    found = wait(request.node.name)
    assert {entry["kernel"] for entry in found} == KERNELS | (HOPPER if capability == 90 else set())
    attention = [entry for entry in found if entry["kernel"] == "paged_attention_kernel"]
    assert len(attention) == 6 + 12 + 3, "decode, chunk and prefill of two head sizes; of 8-bit pools as well; trees"
    products = [entry for entry in found if entry["kernel"].endswith(("linear_kernel", "product_kernel"))]
    whole = [entry for entry in attention + products if not entry.get("pairs")]
    assert [e for e in whole if e["stack"] or e["local"]] == []
    pairs = [entry for entry in attention if entry.get("pairs")]
    assert [e for e in pairs if e["stack"] > 32] == []  # prefill tiles spill a few of 128 or 255 registers
    rest = [entry for entry in found if entry not in pairs]
    assert [e for e in rest if e["stack"] > 16] == []  # a division's slow path has a frame of 8 bytes, nothing spilled
    assert [e for e in found if e["shared"] > SHARED_LIMIT[capability]] == []
