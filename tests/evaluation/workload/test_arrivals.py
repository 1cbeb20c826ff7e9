"""Schedules: what they are by law, and that sharing them among processes changes nothing."""

import itertools

import numpy as np
import pytest

from evaluation.client.pool import send
from evaluation.client.servers import running
from evaluation.schema import Endpoint, MmppState, RequestRecord, Shape
from evaluation.workload.arrivals import dispersion, offsets_ns
from evaluation.workload.item import Item, Turn, plan
from evaluation.workload.seeds import fresh, rng


def times(shape: Shape, rate: float, count: int, seed: int = 7, **options: float) -> np.ndarray:
    return np.array(list(itertools.islice(offsets_ns(shape, rate, seed, **options), count))) / 1e9


def test_constant():
    assert times(Shape(arrivals="constant"), 8.0, 4).tolist() == [0, 0.125, 0.25, 0.375]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_counts_have_their_mean_as_variance(seed):
    arrivals = times(Shape(), 50.0, 20_000, seed)
    assert len(arrivals) / arrivals[-1] == pytest.approx(50, rel=0.03)
    assert dispersion(arrivals, 0.1) == pytest.approx(1.0, abs=0.1)


def test_processes_that_draw_alike_would_be_seen():
    """guidellm's way: each worker draws the same gaps and takes the shared sum of them (trap T1)."""
    for workers, index in ((4, 4), (10, 10)):
        clumps = np.repeat(times(Shape(), 50.0 / workers, 20_000 // workers), workers)
        assert dispersion(clumps, 0.1) == pytest.approx(index, rel=0.25)


def test_gamma_gaps_vary_as_told():
    for burstiness in (0.25, 4.0):
        gaps = np.diff(times(Shape(arrivals="gamma", burstiness=burstiness), 50.0, 20_000))
        assert gaps.mean() == pytest.approx(0.02, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_mmpp_changes_its_rate_and_keeps_the_mean():
    arrivals = times(Shape(arrivals="mmpp"), 50.0, 100_000)
    assert len(arrivals) / arrivals[-1] == pytest.approx(50, rel=0.1)
    assert dispersion(arrivals, 1.0) > 5
    quiet = Shape(arrivals="mmpp", states=[MmppState(factor=0, mean_s=5), MmppState(factor=1, mean_s=5)])
    assert np.diff(times(quiet, 50.0, 5_000)).max() > 2


def test_a_ramp_grows_in_a_straight_line():
    arrivals = times(Shape(arrivals="constant"), 100.0, 2_000, ramp_s=10.0)
    by_second = np.histogram(arrivals, np.arange(0, 14))[0]
    assert by_second[:10] == pytest.approx([10 * (second + 0.5) for second in range(10)], abs=1)
    assert by_second[10:] == pytest.approx([100, 100, 100], abs=1)


def test_a_seed_is_a_schedule():
    assert times(Shape(), 5.0, 50, 1).tolist() == times(Shape(), 5.0, 50, 1).tolist()
    assert times(Shape(), 5.0, 50, 1).tolist() != times(Shape(), 5.0, 50, 2).tolist()
    assert fresh() != fresh()


def test_streams_share_nothing():
    paths = [("measured", "text", 1), ("measured", "text", 2), ("warm_up", "text", 1), ("measured", "length", 1)]
    drawn = [tuple(rng(7, *path).integers(0, 2**62, 4)) for path in paths]
    assert len(set(drawn)) == len(paths)


def test_a_rate_is_needed():
    with pytest.raises(ValueError, match="'poisson' need a rate above 0, not None"):
        next(offsets_ns(Shape(), None, 1))
    assert list(offsets_ns(Shape(arrivals="trace"), None, 1, trace_s=[0.5, 2.0])) == [500_000_000, 2_000_000_000]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 4, 10])
async def test_what_leaves_is_the_sequence_whatever_the_number_of_processes(processes):
    """Poisson counts of what was sent, 1.0 +- 0.1, at 1,600/s; the seed is one whose own index is in the middle."""
    offsets = list(itertools.islice(offsets_ns(Shape(), 1_600.0, 5), 1_600))
    items = [Item(turns=[Turn(messages=[{"role": "user", "content": f"n {n}"}], max_tokens=2)]) for n in range(1_600)]
    records: list[RequestRecord] = []
    async with running(chunks=2) as url:
        endpoint = Endpoint(url=url, model="law")
        sent = await send(plan(items, offsets), endpoint, on_record=records.append, processes=processes)
    assert {record.process for record in records} == set(range(processes))
    assert sorted(record.intended_ns - sent.start_ns for record in records) == offsets
    assert all(record.status == "ok" for record in records)
    planned = dispersion([offset / 1e9 for offset in offsets], 0.0005)
    left = dispersion([(record.intended_ns - sent.start_ns) / 1e9 for record in records], 0.0005)
    assert left == planned == pytest.approx(1.0, abs=0.1)
