from __future__ import annotations

from pathlib import Path

from tursiops.fleet.inventory import parse_gpus, read_inventory


def test_this_host(tmp_path: Path):
    found = read_inventory(tmp_path)
    assert found.cpu_count >= 1
    assert 0 < found.memory_available <= found.memory_total
    assert found.disk_free > 0
    assert found.versions["python"].startswith("3.")
    assert "torch" in found.versions


def test_gpus_as_nvidia_smi_prints_them():
    text = (
        "0, GPU-1a, NVIDIA L20, 46068, 512, 37\n1, GPU-2b, NVIDIA L20, 46068, 0, [N/A]\n2, [Unknown Error], ERR!, , ,\n"
    )
    first, second = parse_gpus(text)
    assert (first.index, first.uuid, first.name) == (0, "GPU-1a", "NVIDIA L20")
    assert first.memory_total == 46068 * 1024 * 1024
    assert first.memory_used == 512 * 1024 * 1024
    assert first.utilization == 0.37
    assert second.utilization is None
