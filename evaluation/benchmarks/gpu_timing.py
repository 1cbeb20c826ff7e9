"""Times of short GPU work: a captured graph, replayed on a cold L2, median of many."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

REPEATS = 30
_FLUSH_BYTES = 256 * 2**20  # several times the L2


def microseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median device time of `work`, µs, without its launches' host cost. `work` must read nothing on the host."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compile, and let workspaces grow, before the capture
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times: list[float] = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call] # torch's
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return statistics.median(times)


def chain_microseconds(works: list[Callable[[], object]], repeats: int = 7) -> float:
    """Median device time of one of `works` where they follow each other in one graph, µs: with what a launch can hide
    behind the one before it. Their inputs together should be several times the L2 cache."""

    def chain() -> None:
        for work in works:
            work()

    chain()  # compile
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    times: list[float] = []
    for _ in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call] # torch's
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / len(works))
    return statistics.median(times[2:])


def copy_bandwidth() -> float:
    """Bytes read and written per second by a kernel that copies 2 GiB (a memcpy node of a graph is slower)."""
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / (microseconds(lambda: torch.mul(source, 1.0, out=target), 10) * 1e-6)


def matmul_rate(size: int = 8192) -> float:
    """bf16 FLOP/s of a large product of random matrices."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / (microseconds(lambda: torch.mm(a, b, out=out), 10) * 1e-6)
