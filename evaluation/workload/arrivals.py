"""When requests come: one sequence of offsets for a whole run, whatever the number of processes that send it.

A tool whose processes each draw the gaps from the same seed sends in clumps (index of dispersion 4 with 4 processes);
here the parent alone draws, and hands each process every n-th arrival.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from evaluation.schema import MmppState, Shape
from evaluation.workload.seeds import rng

STATES = [MmppState(factor=0.5, mean_s=10.0), MmppState(factor=2.0, mean_s=5.0)]  # the mean factor is 1
BLOCK = 1024  # gaps drawn at once


def offsets_ns(
    shape: Shape, rate: float | None, seed: int, *, ramp_s: float = 0.0, trace_s: Sequence[float] = ()
) -> Iterator[int]:
    """Rising offsets from the schedule's zero, in ns: endless, but of a trace.

    rate: requests/s; of a trace it may be None (its own). ramp_s: the rate grows from 0 in a straight line for so long.
    Raises ValueError where the shape needs a rate and has none.
    """
    if shape.arrivals == "trace":
        times: Iterator[float] = iter(trace_s)
    elif rate is None or rate <= 0:
        raise ValueError(f"arrivals '{shape.arrivals}' need a rate above 0, not {rate}")
    elif shape.arrivals == "constant":
        times = (number / rate for number in itertools.count())
    elif shape.arrivals == "mmpp":
        times = _mmpp(shape.states or STATES, rate, rng(seed, "arrivals"))
    else:
        burstiness = 1.0 if shape.arrivals == "poisson" else shape.burstiness
        times = _renewal(burstiness, rate, rng(seed, "arrivals"))
    for time in times:
        yield round((_ramped(time, ramp_s) if ramp_s else time) * 1e9)


def _renewal(burstiness: float, rate: float, random: np.random.Generator) -> Iterator[float]:
    """Gamma gaps of mean 1/rate; their coefficient of variation is 1/sqrt(burstiness). Burstiness 1 is Poisson.

    The gaps are not rescaled to end at n/rate: that would take away the variance of counts that tails come from.
    """
    now = 0.0
    while True:
        for gap in random.gamma(burstiness, 1 / (burstiness * rate), BLOCK):
            now += gap
            yield now


def _mmpp(states: Sequence[MmppState], rate: float, random: np.random.Generator) -> Iterator[float]:
    """Poisson at factor x rate in each state; stays are exponential, states follow each other in a circle."""
    begin = 0.0
    start = random.choice(len(states), p=_shares(states))
    for state in itertools.islice(itertools.cycle(states), int(start), None):
        end = begin + random.exponential(state.mean_s)
        now = begin
        while state.factor > 0 and (now := now + random.exponential(1 / (state.factor * rate))) < end:
            yield now
        begin = end


def _shares(states: Sequence[MmppState]) -> list[float]:
    whole = sum(state.mean_s for state in states)
    return [state.mean_s / whole for state in states]


def _ramped(time: float, ramp_s: float) -> float:
    """The moment by which a ramped schedule has had as many arrivals as one at full rate at `time`."""
    return math.sqrt(2 * ramp_s * time) if time < ramp_s / 2 else time + ramp_s / 2


def dispersion(times_s: Sequence[float], bin_s: float) -> float:
    """Variance over mean of the counts in bins of `bin_s`: 1 of a Poisson process, more of a burstier one."""
    edges = np.arange(0.0, max(times_s), bin_s)
    counts, _ = np.histogram(times_s, edges)
    return float(counts.var(ddof=1) / counts.mean())
