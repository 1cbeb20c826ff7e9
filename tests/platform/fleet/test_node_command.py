"""`manage.py node` as a real process: what it leaves running, what the next one adopts, what it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from django.db import OperationalError, connection
from tursiops.deployments.controller import Controller
from tursiops.deployments.models import InstanceState
from tursiops.fleet import wake
from tursiops.fleet.agent import stop_engines
from tursiops.fleet.backends.local import LocalBackend
from tursiops.fleet.heart import Heart
from tursiops.fleet.lease import Lease
from tursiops.fleet.management.commands import node as command
from tursiops.fleet.models import ControllerLease, Node
from tursiops.fleet.services import node_heartbeat, node_started
from tursiops.gateway.config import Config
from tursiops.jobs.models import JobState
from tursiops.settings import base

from tests import factories, services
from tests.gateway_bench import serving, until
from tests.processes import alive

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db


class Nodes:
    """Starts node processes on the test's database, with the tiny engine installed as a package would be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "secret-key").write_text(base.SECRET_KEY)  # one installation with this process
        info = folder / "site" / "tiny_engine-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-engine\nVersion: 1.0\n")
        point = "tiny = tests.platform.fleet.tiny_engine:TinyEngine"
        (info / "entry_points.txt").write_text(f"[tursiops.engines]\n{point}\n")
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **changes: str) -> subprocess.Popen[bytes]:
        """`changes`: of its environment."""
        database = connection.settings_dict
        host = urlencode({"host": database["HOST"]})
        environment = {
            **os.environ,
            "DATABASE_URL": f"postgres://{database['USER']}@/{database['NAME']}?{host}",
            "DJANGO_SETTINGS_MODULE": "tursiops.settings.prod",
            "TURSIOPS_DATA_DIR": str(self.folder / "data"),
            "TURSIOPS_NODE_NAME": "n1",
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), str(ROOT), str(ROOT / "platform")]),
            **changes,
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


@pytest.mark.django_db
def test_the_job_worker_starts_after_engines_that_load_unless_a_job_waits():
    loop, now = SimpleNamespace(loading=True), time.monotonic()
    assert not command._worker_is_due(loop, now)
    assert command._worker_is_due(loop, now - command.WORKER_WAITS_S - 1), "an engine that loads for ever"
    assert command._worker_is_due(SimpleNamespace(loading=False), now)
    factories.make_job(state=JobState.RUNNING)
    assert not command._worker_is_due(loop, now)
    factories.make_job(state=JobState.QUEUED)
    assert command._worker_is_due(loop, now)
    assert command._worker_is_due(loop, float("-inf")), "once started, it is started again at once"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_case_16_control_plane_at_new_addresses_finds_its_engines_serving(nodes, tiny_deployment, settings, tmp_path):
    """Database, broker and gateway come back elsewhere, the broker empty. The node reports again, a new controller
    publishes what it reads, and the model answers from the very process that ran before."""
    first = nodes.start()
    nodes.until(lambda: Node.objects.filter(name="n1", heartbeat_at__isnull=False).exists())
    deployment = tiny_deployment()
    key = factories.make_api_key(deployment.team)
    row = factories.make_instance(deployment, node=Node.objects.get(), state=InstanceState.SCHEDULED)

    def seen_ready() -> bool:
        row.refresh_from_db()
        return row.state == InstanceState.READY

    nodes.until(seen_ready)
    before = Path(settings.RUN_DIR) / "before"
    assert asked_anew(settings.REDIS_URL, before, deployment.name, key.secret) == f"pid {row.pid}"
    pid, seen = row.pid, row.seen_at

    first.kill()
    first.wait()
    elsewhere = tmp_path / "pg"
    elsewhere.symlink_to(connection.settings_dict["HOST"])
    database = f"postgres://{connection.settings_dict['USER']}@/{connection.settings_dict['NAME']}?host={elsewhere}"
    (tmp_path / "broker").mkdir()
    broker, valkey = services.start_valkey(tmp_path / "broker")
    try:
        nodes.start(DATABASE_URL=database, REDIS_URL=broker)
        nodes.until(lambda: seen_ready() and row.seen_at > seen)
        settings.REDIS_URL = broker
        wake.client.cache_clear()
        after = Path(settings.RUN_DIR) / "after"
        assert asked_anew(broker, after, deployment.name, key.secret) == f"pid {pid}"
    finally:
        wake.client.cache_clear()
        valkey.terminate()
        valkey.wait()
    assert (row.pid, row.epoch, row.restarts) == (pid, 1, 0)
    assert deployment.revisions.count() == 1, "no redeploy"


def asked_anew(broker: str, run_dir: Path, model: str, key: str) -> str:
    """What a new controller and a new gateway, which know nothing, let the model answer."""
    controller = Controller(Lease("controller", f"at {broker}"))
    ControllerLease.objects.all().delete()  # the one before is gone
    controller.tick()
    controller.close()
    config = Config(host="127.0.0.1", port=0, web_socket="", redis_url=broker, run_dir=run_dir)

    async def ask() -> str:
        async with serving(config) as (gateway, url), aiohttp.ClientSession() as session:
            await until(lambda: gateway.snapshot_version() >= 0)
            body = {"model": model, "prompt": "who are you?"}
            answer = await session.post(f"{url}/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.status == 200, await answer.text()
            return str((await answer.json())["choices"][0]["text"])

    return asyncio.run(ask())


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
