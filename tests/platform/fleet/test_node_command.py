"""`manage.py node` as a real process: what it leaves running, what the next one adopts, what it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import OperationalError, connection
from tursiops.deployments.models import InstanceState
from tursiops.fleet.agent import stop_engines
from tursiops.fleet.backends.local import LocalBackend
from tursiops.fleet.heart import Heart
from tursiops.fleet.management.commands import node as command
from tursiops.fleet.models import Node
from tursiops.fleet.services import node_heartbeat, node_started

from tests import factories
from tests.processes import alive

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db


class Nodes:
    """Starts node processes on the test's database, with the tiny engine installed as a package would be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        info = folder / "site" / "tiny_engine-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-engine\nVersion: 1.0\n")
        point = "tiny = tests.platform.fleet.tiny_engine:TinyEngine"
        (info / "entry_points.txt").write_text(f"[tursiops.engines]\n{point}\n")
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        database = connection.settings_dict
        host = urlencode({"host": database["HOST"]})
        environment = {
            **os.environ,
            "DATABASE_URL": f"postgres://{database['USER']}@/{database['NAME']}?{host}",
            "DJANGO_SETTINGS_MODULE": "tursiops.settings.prod",
            "TURSIOPS_DATA_DIR": str(self.folder / "data"),
            "TURSIOPS_NODE_NAME": "n1",
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), str(ROOT), str(ROOT / "platform")]),
        }
        with (self.folder / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "node", "--no-worker", *options],
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.running.append(process)
        return process

    def until(self, done: Callable[[], Any], seconds: float = 150) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise AssertionError((self.folder / "node.log").read_text()[-3000:])
            time.sleep(0.1)


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.wait()
    stop_engines(LocalBackend(tmp_path / "data" / "run" / "instances"), drain_s=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_case_16_life_of_a_node_process(nodes, tiny_deployment):
    """Start, kill -9, adoption, SIGTERM, and the stop of all engines, one after another on one instance."""
    first = nodes.start()
    nodes.until(lambda: Node.objects.filter(name="n1", heartbeat_at__isnull=False).exists())
    node = Node.objects.get()
    row = factories.make_instance(tiny_deployment(), node=node, state=InstanceState.SCHEDULED)

    def state() -> str:
        row.refresh_from_db()
        return row.state

    nodes.until(lambda: state() == InstanceState.READY)
    engine = row.pid
    maps = Path(f"/proc/{first.pid}/maps").read_text()
    assert "torch" not in maps

    first.kill()
    first.wait()
    second = nodes.start()
    nodes.until(lambda: Node.objects.get().epoch == node.epoch + 1)
    seen = row.seen_at
    nodes.until(lambda: state() == InstanceState.READY and row.seen_at > seen)
    assert (row.pid, row.epoch, row.restarts) == (engine, 1, 0)

    os.kill(engine, signal.SIGKILL)
    nodes.until(lambda: state() == InstanceState.READY and row.epoch == 2)
    assert row.restarts == 1

    second.terminate()
    assert second.wait(30) == 0
    assert alive(row.pid), "SIGTERM of the node must leave engines running"

    stop = nodes.start("--stop-engines")
    assert stop.wait(90) == 0
    assert not alive(row.pid)
    assert state() == InstanceState.SCHEDULED
    assert row.restarts == 1


def test_only_one_node_process_per_data_folder(tmp_path):
    with command.OnlyOne(tmp_path / "node.lock"), pytest.raises(command.CommandError, match=f"pid {os.getpid()}"):
        command.OnlyOne(tmp_path / "node.lock", patience_s=0.2).__enter__()
    with command.OnlyOne(tmp_path / "node.lock", patience_s=0.2):
        pass


def test_earlier_process_of_the_same_name_learns_that_it_is_over(tmp_path):
    import threading

    first = node_started(name="n1", address="127.0.0.1")
    stop = threading.Event()
    heart = Heart(first, tmp_path, stop)
    heart.beat()
    assert not heart.superseded
    second = node_started(name="n1", address="127.0.0.1")
    assert (second.pk, second.epoch) == (first.pk, first.epoch + 1)
    heart.beat()
    assert heart.superseded
    assert stop.is_set()


def test_heartbeat_writes_what_the_host_has(tmp_path, monkeypatch):
    from tursiops.fleet import inventory

    node = node_started(name="n1", address="127.0.0.1")
    gpus = [
        inventory.GpuReading(0, "GPU-1", "L20", 46_000, 1_000, 0.5),
        inventory.GpuReading(1, "GPU-2", "L20", 46, 0, None),
    ]
    found = inventory.read_inventory(tmp_path)
    for listed in (gpus, gpus[1:]):
        reading = inventory.Inventory(4, found.memory_total, found.memory_available, found.disk_free, {}, listed)
        assert node_heartbeat(node_id=node.pk, epoch=node.epoch, inventory=reading)
    node.refresh_from_db()
    assert node.heartbeat_at is not None
    assert node.cpu_count == 4
    assert [gpu.uuid for gpu in node.gpus.all()] == ["GPU-2"], "an absent GPU is still listed"


def test_case_16_database_away_changes_nothing_on_the_node(tmp_path, monkeypatch):
    class Loop:
        def tick(self) -> float:
            raise OperationalError("the database is away")

    monkeypatch.setattr(command, "close_old_connections", lambda: None)
    monkeypatch.setattr(command.connection, "close", lambda: None)
    assert command._tick(Loop()) > 0  # type: ignore[arg-type] # only tick is asked
