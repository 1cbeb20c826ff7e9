"""Subprocesses that several tests wait for, two at a time, so that a core does not idle beside the one that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

Result = TypeVar("Result")


@contextmanager
def side_by_side(
    request: pytest.FixtureRequest, jobs: Mapping[str, Callable[[], Result]]
) -> Iterator[Callable[[str], Result]]:
    """For a module's fixture. Begins the jobs whose name a selected test of the module has, in the order of `jobs`;
    gives `wait(name)`: what the job gave, or raised."""
    selected = {item.name for item in request.session.items if item.path == request.path}
    threads = ThreadPoolExecutor(2)
    futures = {name: threads.submit(job) for name, job in jobs.items() if name in selected}
    try:
        yield lambda name: futures[name].result()
    finally:
        threads.shutdown(cancel_futures=True)
