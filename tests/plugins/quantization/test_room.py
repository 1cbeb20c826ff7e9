"""What a job says that it needs, and needed: of a back end that holds the model whole, and of one that does not."""

from __future__ import annotations

import resource
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.quantization import job, spec
from plugins.quantization.observe import KEPT_BYTES

WIDE, LAYERS = 4096, 32


class Big:
    """As much of a target as sizes follow from: matrices of WIDE × WIDE."""

    config = SimpleNamespace(vocab=1000, hidden=WIDE)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"embed.weight": (1000, WIDE), **{f"layers.{n}.o.weight": (WIDE, WIDE) for n in range(LAYERS)}}

    def modules(self) -> dict[str, str]:
        return {f"model.layers.{n}.self_attn.o_proj": f"layers.{n}.o" for n in range(LAYERS)}


def needed(**recipe: Any) -> int:
    target: Any = Big()
    return job.needed_memory(spec.parse({"scheme": "w4a16_gptq", "group_size": 64, **recipe}), target)


def test_llm_compressor_holds_the_whole_model_in_float32() -> None:
    matrix = 4 * WIDE**2
    assert needed(backend="llm_compressor") > (LAYERS + 2) * matrix
    assert needed(samples=32, tokens=64) < LAYERS * matrix, "native holds a layer"


def test_native_keeps_inputs_between_the_stages_of_a_layer() -> None:
    few, many = needed(samples=32, tokens=64), needed(samples=128, tokens=512)
    streams = 2 * (128 * 512 - 32 * 64) * WIDE * 4
    kept = KEPT_BYTES - 32 * 64 * WIDE * 4
    assert many - few == streams + kept


def test_the_peak_is_the_childs_where_that_is_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {resource.RUSAGE_SELF: 10, resource.RUSAGE_CHILDREN: 30}
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=found[who]))
    assert job.peak_memory() == 30 * 1024
    found[resource.RUSAGE_SELF] = 50
    assert job.peak_memory() == 50 * 1024
