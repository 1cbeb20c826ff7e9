"""The table of devices: every value has a source, and the rows at which products stop waiting for memory."""

from __future__ import annotations

import pytest

from evaluation.planner import hardware


def test_every_value_has_a_mark_and_a_source():
    assert {"a10", "l20", "l40s", "rtx4090", "a100", "h20", "h100", "h200", "b200"} <= set(hardware.table())
    for gpu in hardware.table().values():
        assert {"memory_mib", "bandwidth", "bf16", "link"} <= set(gpu.sources)
        for each in gpu.sources.values():
            assert each.mark in {"V", "M", "C"}
            assert each.source
            assert each.value > 0


@pytest.mark.parametrize(
    ("key", "knee"),
    [
        ("a10", 208), ("l20", 138), ("rtx4090", 164), ("a100", 153), ("h20", 37), ("h100", 295), ("h200", 206),
        ("l40s", 419),
    ],
)  # fmt: skip
def test_rows_at_the_knee(key, knee):
    """B* of reference/evaluation.md 2.3, at 16 bits."""
    assert hardware.gpu(key).knee(2) == pytest.approx(knee, abs=0.6)


def test_found_by_key_and_by_the_driver_s_name():
    assert hardware.gpu("NVIDIA H200").key == "h200"
    assert hardware.gpu("H20").key == "h20"
    with pytest.raises(hardware.UnknownGpu, match="a10, l20"):
        hardware.gpu("v100")


def test_a_driver_s_memory_replaces_the_table_s():
    own = hardware.with_memory(hardware.gpu("a10"), 22 * 2**30)
    assert own.memory == 22 * 2**30
    assert own.sources["memory_mib"].mark == "declared"
