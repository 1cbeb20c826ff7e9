"""The client's verdict of itself."""

import pytest

from evaluation.client.calibrate import calibrate
from evaluation.client.health import judge
from evaluation.client.messages import Vitals


def vitals(**changed) -> Vitals:
    told = {"process": 0, "wall_s": 10.0, "cpu_s": 2.0, "loop_lags_ms": [0.1] * 100, "chunks": 5_000,
            "files_open": 20, "files_limit": 1_000}  # fmt: skip
    return Vitals(**(told | changed))


def test_a_healthy_client():
    health = judge([0.2] * 99 + [1.0], [100.0], [vitals(), vitals(process=1, cpu_s=4.0)])
    assert (health.healthy, health.reasons, health.processes) == (True, [], 2)
    assert (health.pacing_p99_ms, health.loop_p99_ms, health.cpu_share) == (0.2, 0.1, 0.4)
    assert health.chunks_per_s == 1_000


@pytest.mark.parametrize(
    ("lags", "ttft", "changed", "reasons"),
    [
        ([6.0] * 10, [100.0], {}, ["pacing_lag"]),
        ([6.0] * 10, [700.0], {}, []),  # a hundredth of the TTFT is allowed
        ([0.1], [100.0], {"loop_lags_ms": [0.1] * 90 + [12.0] * 10}, ["loop_lag"]),
        ([0.1], [100.0], {"cpu_s": 9.5}, ["cpu"]),
        ([0.1], [100.0], {"files_open": 950}, ["file_descriptors"]),
        ([], [], {}, []),
    ],
)
def test_what_makes_it_unhealthy(lags, ttft, changed, reasons):
    health = judge(lags, ttft, [vitals(**changed)])
    assert (health.reasons, health.healthy) == (reasons, not reasons)


async def test_a_null_server_tells_what_the_client_can_do():
    """An easy rate is reached, on any machine; one that none can send is said to be too much."""
    assert "null_server" not in (await calibrate(20.0, seconds=0.5)).reasons
    beyond = await calibrate(200_000.0, seconds=0.003)
    assert not beyond.healthy
    assert "null_server" in beyond.reasons
    assert 0 < beyond.null_server_rate < 400_000
