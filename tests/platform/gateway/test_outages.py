"""What is away: Redis, the database, web, the control plane. Models keep answering."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from redis.asyncio import Redis
from tursiops import secrets
from tursiops.gateway import metrics, records, snapshot
from tursiops.gateway.snapshot import KeyEntry, Snapshot
from tursiops.settings import env

from tests.gateway_bench import TEAM, instance, route, serving, until
from tests.services import start_valkey

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def valkey(folder):
    folder.mkdir(exist_ok=True)
    (folder / "valkey.sock").unlink(missing_ok=True)
    url, process = start_valkey(folder)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


def kept_snapshot(folder: Path, engine, *, age: float = 0.0, port_of=None) -> str:
    """A snapshot file as an earlier gateway left it; returns a key that it knows."""
    key = secrets.new_api_key()
    made = Snapshot(
        version=7,
        generated_at=time.time() - age,
        keys={key.sha256: KeyEntry(id="k", team=TEAM, rpm=100)},
        routes=(route("m", instance(engine, "a")),),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / snapshot.FILE_NAME).write_bytes(snapshot.seal(made))
    return key.secret


async def complete(session, url, key, **fields):
    body = {"model": "m", "prompt": "x"} | fields
    headers = {"Authorization": f"Bearer {key}"}
    async with session.post(url + "/v1/completions", json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_case_41_starts_and_serves_from_the_file_while_redis_is_away(config, engines, tmp_path):
    """Known keys keep working, usage waits on disk and arrives once when Redis is back, the age shows in metrics."""
    folder = tmp_path / "v"
    url = f"unix://{folder}/valkey.sock"
    config = msgspec.structs.replace(config, redis_url=url, snapshot_poll=0.2)
    key = kept_snapshot(config.run_dir, engines[0], age=90)
    async with serving(config) as (gateway, base_url), aiohttp.ClientSession() as session:
        for _ in range(3):
            assert (await complete(session, base_url, key))[0] == 200
        assert (await complete(session, base_url, "ts-unknown"))[0] == 401
        async with session.get(base_url + "/healthz") as response:
            health = await response.json()
        assert (response.status, health["snapshot_version"]) == (200, 7)
        assert health["snapshot_age_s"] > 80
        async with session.get(base_url + "/metrics") as response:
            assert "tursiops_gateway_snapshot_age_seconds" in await response.text()
        spilled = config.run_dir / "usage-spill"
        await until(lambda: sum(len(path.read_bytes().splitlines()) for path in spilled.glob("*.jsonl")) == 3)
        with valkey(folder):
            client = Redis.from_url(url)
            await until(lambda: not list(spilled.glob("*.jsonl")), 15)
            rows = await client.xrange(records.STREAM)
            assert len({records.decode(fields[records.FIELD]).request_id for _, fields in rows}) == len(rows) == 3
            fresh = Snapshot(version=8, generated_at=time.time())
            await client.set(snapshot.REDIS_KEY, snapshot.seal(fresh))
            await until(lambda: gateway.snapshot_version() == 8, 10)
            assert (await complete(session, base_url, key))[0] == 401
            await client.aclose()


async def test_case_41_a_snapshot_too_old_is_not_trusted(config, engines, tmp_path):
    config = msgspec.structs.replace(config, redis_url=f"unix://{tmp_path}/no.sock", snapshot_max_age=3600.0)
    key = kept_snapshot(config.run_dir, engines[0], age=3700)
    async with serving(config) as (_, url), aiohttp.ClientSession() as session:
        status, body = await complete(session, url, key)
    assert (status, body["error"]["code"]) == (503, "stale_configuration")


async def test_without_any_snapshot_it_says_so(config, tmp_path):
    config = msgspec.structs.replace(config, redis_url=f"unix://{tmp_path}/no.sock")
    async with serving(config) as (_, url), aiohttp.ClientSession() as session:
        status, body = await complete(session, url, "ts-x")
        assert (status, body["error"]["code"]) == (503, "no_configuration")
        async with session.get(url + "/healthz") as response:
            assert response.status == 200


async def test_broken_file_is_replaced_from_redis(bench, config, engines):
    config.run_dir.mkdir(parents=True, exist_ok=True)
    (config.run_dir / snapshot.FILE_NAME).write_bytes(b"torn")
    await bench.publish(route("m", instance(engines[0], "a")))
    async with serving(config) as (gateway, _):
        await until(lambda: gateway.snapshot_version() == bench.version)
    assert snapshot.unseal((config.run_dir / snapshot.FILE_NAME).read_bytes()).version == bench.version


async def test_case_16_addresses_change_and_models_serve_again_with_no_redeploy(bench, engines):
    """The control plane restarts and publishes engines under new addresses: the next request finds them."""
    await bench.publish(route("m", instance(engines[0], "a")))
    assert (await bench.stream())[0].status == 200
    await engines[0].stop()
    await bench.redis.delete(snapshot.REDIS_KEY)  # the controller is away: what is known stays known
    response, _ = await bench.stream()
    assert response.status == 503
    await engines[0].start()
    await bench.publish(route("m", instance(engines[0], "a", epoch=2)))
    response, _ = await bench.stream()
    assert (response.status, response.headers["x-tursiops-instance"]) == (200, "a")


@pytest.mark.slow
async def test_gateway_process_imports_no_django_and_serves_without_redis(engines, tmp_path):
    """`python -m tursiops.gateway` as it runs in production, with nothing else of the platform alive."""
    key = secrets.new_api_key()
    report = tmp_path / "modules.json"
    script = f"""
import atexit, json, signal, sys
from tursiops.gateway.__main__ import main
from tursiops.gateway import snapshot as s
from tursiops.settings import base
base.RUN_DIR.mkdir(parents=True, exist_ok=True)
route = s.RouteEntry(team="t", name="m", deployment="d", instances=(
    s.InstanceEntry(id="a", url={engines[0].url!r}, token={engines[0].token!r}),))
made = s.Snapshot(version=1, generated_at={time.time()}, routes=(route,),
    keys={{{key.sha256!r}: s.KeyEntry(id="k", team="t")}})
(base.RUN_DIR / s.FILE_NAME).write_bytes(s.seal(made))
atexit.register(lambda: open({str(report)!r}, "w").write(json.dumps(sorted(sys.modules))))
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
main()
"""
    port = 20_000 + time.time_ns() % 20_000
    environment = env.service_environment([str(ROOT / "platform"), str(ROOT)]) | {
        "TURSIOPS_DATA_DIR": str(tmp_path / "data"),
        "TURSIOPS_GATEWAY_PORT": str(port),
        "REDIS_URL": f"unix://{tmp_path}/no.sock",
    }
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=tmp_path)
    try:
        async with aiohttp.ClientSession() as session:
            for _ in range(300):
                with contextlib.suppress(aiohttp.ClientError):
                    assert (await complete(session, f"http://127.0.0.1:{port}", key.secret))[0] == 200
                    break
                await asyncio.sleep(0.1)
            else:
                pytest.fail("it did not start")
    finally:
        process.terminate()
        process.wait(20)
    loaded = {name.split(".")[0] for name in json.loads(report.read_text())}
    assert not loaded & {"django", "rest_framework", "channels", "celery", "torch"}
    assert {"tursiops", "uvicorn", "aiohttp"} <= loaded


def test_labels_are_bounded(monkeypatch):
    monkeypatch.setattr(metrics, "_known", set())
    labels = {metrics.label("t", f"model-{number}") for number in range(1_000)}
    assert len(labels) == metrics._MODELS + 1
