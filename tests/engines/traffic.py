"""Requests to an instance, one after another, for as long as something is watched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx

from tests.engines.instances import NAME, Running


@contextmanager
def traffic(running: Running, **body: Any) -> Iterator[list[int]]:
    """Gives the statuses of the answers so far; the last request has ended when it is left."""
    over, statuses = threading.Event(), list[int]()

    def ask() -> None:
        headers = {"Authorization": f"Bearer {running.token}"}
        with httpx.Client(headers=headers, timeout=60) as client:
            while not over.is_set():
                statuses.append(client.post(f"{running.url}/v1/completions", json={"model": NAME, **body}).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()
