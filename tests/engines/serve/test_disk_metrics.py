"""What an operator sees of the disk tier, over restarts of the core and the way to the API process."""

from __future__ import annotations

import numpy as np

from engines.native import ipc
from engines.native.disk_tier import DiskCounts
from engines.native.ipc import Ready, Update
from engines.native.serve.metrics import Metrics


def update(disk: DiskCounts | None) -> Update:
    """As it arrives."""
    said = Update(b"", np.zeros(0, np.int32).tobytes(), b"", {}, [], [], [], 0, 0, 0, 0, disk=disk)
    found = ipc.decode_from_core(ipc.encode(said))
    assert isinstance(found, Update)
    return found


def samples(metrics: Metrics) -> dict[str, float]:
    lines = metrics.text().decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("tursiops_engine_kv_disk"))
    return {name.removeprefix("tursiops_engine_kv_disk_"): float(value) for name, _, value in found}


def test_counts_go_on_over_restarts_of_the_core() -> None:
    metrics = Metrics()
    metrics.update(update(DiskCounts(hits=3, misses=5, read_bytes=300, written_bytes=500, bytes_used=700)))
    metrics.update(update(DiskCounts(hits=4, misses=5, read_bytes=400, written_bytes=500, bytes_used=800, late=1)))
    metrics.core_ready(Ready(10, 16, 64, 2, {}))
    last = DiskCounts(hits=2, dropped=6, evicted=7, invalid=8, errors=9, bytes_used=900, writing=False)
    metrics.update(update(last))
    assert samples(metrics) == {
        'lookups_total{result="hits"}': 6,
        'lookups_total{result="misses"}': 5,
        'lookups_total{result="late"}': 1,
        'bytes_total{direction="read"}': 400,
        'bytes_total{direction="written"}': 500,
        'lost_blocks_total{reason="dropped"}': 6,
        'lost_blocks_total{reason="evicted"}': 7,
        'lost_blocks_total{reason="invalid"}': 8,
        "errors_total": 9,
        "bytes_used": 900,
        "writing": 0,
    }


def test_without_a_disk_there_is_nothing_to_see() -> None:
    metrics = Metrics()
    metrics.update(update(None))
    assert samples(metrics) == {}
