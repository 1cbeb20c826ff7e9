"""A node with real engine processes: the tiny engine, run folders in a temporary place, short times."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tursiops.core import registry, store
from tursiops.deployments.models import Deployment, Instance, InstanceState
from tursiops.fleet.agent import NodeAgent
from tursiops.fleet.backends.local import LocalBackend
from tursiops.fleet.decide import Limits
from tursiops.fleet.models import Node

from tests import factories
from tests.platform.fleet.tiny_engine import TinyEngine
from tests.processes import alive

FAST = Limits(drain_s=1.0, back_off_first_s=0.2, back_off_most_s=0.4, most_starts=3, silent_s=0.5, hung_s=600.0)


@pytest.fixture
def tiny() -> Iterator[None]:
    with registry.engines.register_temporarily("tiny", TinyEngine):
        yield


class Host:
    """One node as its process sees it. `agent` may be replaced, as a restart of the process does."""

    def __init__(self, root: Path, node: Node, limits: Limits = FAST) -> None:
        self.root, self.node, self.limits = root, node, limits
        self.restart()

    def restart(self) -> None:
        self.backend = LocalBackend(self.root)
        self.agent = NodeAgent(self.node, self.backend, self.limits)

    def until(self, done: Callable[[], Any], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while True:
            self.agent.tick()
            if done():
                return
            if time.monotonic() > end:
                rows = list(Instance.objects.values("state", "reason", "epoch", "restarts"))
                raise AssertionError(f"not within {seconds} s: {rows}")
            time.sleep(0.05)

    def until_state(self, row: Instance, state: str) -> Instance:
        def reached() -> bool:
            row.refresh_from_db()
            return row.state == state

        self.until(reached)
        return row

    def end_all(self) -> None:
        for instance_id in self.backend.runs():
            self.backend.kill(instance_id)
        self.agent.close()


@pytest.fixture
def stored_version(db, settings, tmp_path):
    """A ready version whose one file lies in the store."""
    settings.STORE_DIR = tmp_path / "data" / "store"
    blob = store.put_stream(io.BytesIO(b"weights"))
    return factories.make_version(files={"tiny.gguf": blob}, size_bytes=7)


@pytest.fixture
def tiny_deployment(tiny, stored_version) -> Callable[..., Deployment]:
    def make(replicas: int = 1, **options: Any) -> Deployment:
        return factories.make_deployment(
            version=stored_version,
            replicas={"unified": replicas},
            revision={"engine": "tiny", "options": options, "max_model_len": 64},
        )

    return make


@pytest.fixture
def host(db, settings, tmp_path) -> Iterator[Host]:
    settings.ENGINE_CACHE_DIR = tmp_path / "cache" / "engines"
    made = Host(tmp_path / "instances", factories.make_node())
    yield made
    made.end_all()


@pytest.fixture
def scheduled(host, tiny_deployment) -> Callable[..., Instance]:
    """An instance placed on `host`, with options of the tiny engine."""

    def make(**options: Any) -> Instance:
        return factories.make_instance(tiny_deployment(**options), node=host.node, state=InstanceState.SCHEDULED)

    return make


def kill_9(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if alive(pid) else [], timeout=5)
