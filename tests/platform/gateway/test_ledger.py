"""What a gateway that was killed had not billed is billed by the next one, once."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from redis.asyncio import Redis
from tursiops.gateway import ledger, records
from tursiops.gateway.ledger import Ledger
from tursiops.settings import base, env

from tests.gateway_bench import TEAM, instance, route, serving, until

ROOT = Path(__file__).parents[3]


def entry(name: str = "r", **changes) -> records.UsageEntry:
    fields = {"request_id": name, "team": TEAM, "served_name": "m", "path": "/v1/completions", "status": 0}
    return records.UsageEntry(**(fields | {"started_at": time.time()} | changes))


def run_and_die(folder: Path, lines: str) -> None:
    """A process that keeps a ledger in `folder` and is killed."""
    script = f"""
import os, signal, sys
from pathlib import Path
from tests.platform.gateway.test_ledger import Ledger, entry
made = Ledger(Path({str(folder)!r}))
{lines}
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = env.service_environment([str(ROOT / "platform"), str(ROOT)])
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def recovered(folder: Path) -> list[records.UsageEntry]:
    return [one for path, entries in Ledger(folder).left_behind() for one in entries]


def test_killed_process_leaves_what_it_counted(tmp_path):
    run_and_die(
        tmp_path,
        """
running = made.open(entry("running", instance_id="i"))
running.passed(41, 7)
made.open(entry("finished")).write(entry("finished", status=200, prompt_tokens=5, completion_tokens=6))
made.open(entry("billed")).free()
""",
    )
    running, finished = sorted(recovered(tmp_path), key=lambda one: one.request_id, reverse=True)
    assert (running.prompt_tokens, running.completion_tokens, running.status) == (7, 41, 502)
    assert (running.error_code, running.instance_id) == (ledger.INTERRUPTED, "i")
    assert running.duration_ms >= 0
    assert (finished.prompt_tokens, finished.completion_tokens, finished.status) == (5, 6, 200)


def test_living_process_is_left_alone(tmp_path):
    mine = Ledger(tmp_path)
    mine.open(entry())
    assert recovered(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_slots_are_used_again_and_an_orderly_end_leaves_no_file(tmp_path):
    mine = Ledger(tmp_path)
    for _ in range(3):
        for slot in [mine.open(entry(str(number))) for number in range(ledger._SLOTS + 1)]:
            slot.free()
    assert len(list(tmp_path.iterdir())) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    mine.close()
    assert not list(tmp_path.iterdir())


def test_what_is_open_at_an_orderly_end_stays(tmp_path):
    mine = Ledger(tmp_path)
    mine.open(entry("a"))
    mine.close()
    assert [one.request_id for one in recovered(tmp_path)] == ["a"]


def test_full_disk_does_not_stop_the_serving(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    slot = Ledger(tmp_path).open(entry())
    slot.passed(1, 1)
    slot.free()
    assert not list(tmp_path.iterdir())


def test_damaged_slots_are_left_out(tmp_path):
    run_and_die(tmp_path, "made.open(entry('a')); made.open(entry('b'))")
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[ledger._HEAD.size] = 0
    path.write_bytes(data)
    assert [one.request_id for one in recovered(tmp_path)] == ["b"]


@pytest.mark.slow
async def test_gateway_killed_in_a_stream_is_billed_by_the_next(bench, config, engines):
    engines[0].behaviour.interval = 0.01
    engines[0].behaviour.tokens = 5_000
    await bench.publish(route("m", instance(engines[0], "a")))
    data = config.run_dir.parent / "data"
    data.mkdir()
    shutil.copy(base.DATA_DIR / "secret-key", data)
    port = 20_000 + time.time_ns() % 20_000
    environment = env.service_environment([str(ROOT / "platform"), str(ROOT)]) | {
        "TURSIOPS_DATA_DIR": str(data),
        "TURSIOPS_GATEWAY_PORT": str(port),
        "REDIS_URL": config.redis_url,
    }
    process = subprocess.Popen([sys.executable, "-m", "tursiops.gateway"], env=environment, cwd=config.run_dir.parent)
    url = f"http://127.0.0.1:{port}"
    read = 0
    try:
        async with aiohttp.ClientSession() as session:
            for _ in range(300):
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url + "/v1/models", headers={"Authorization": f"Bearer {bench.key}"}) as got:
                        if got.status == 200:
                            break
                await asyncio.sleep(0.1)
            body = {"model": "m", "prompt": "x", "stream": True}
            headers = {"Authorization": f"Bearer {bench.key}"}
            async with session.post(url + "/v1/completions", json=body, headers=headers) as response:
                with contextlib.suppress(aiohttp.ClientError):
                    async for line in response.content:
                        read += line.startswith(b"data:")
                        if read == 50:
                            process.kill()
    finally:
        process.kill()
        process.wait(20)
    await until(lambda: engines[0].running == 0)
    assert not await bench.redis.xlen(records.STREAM)
    successor = msgspec.structs.replace(config, run_dir=data / "run")
    async with serving(successor):
        [record] = await bench.usage(1)
    assert (record.status, record.error_code) == (502, ledger.INTERRUPTED)
    assert 50 <= record.completion_tokens <= read + 20
    assert record.prompt_tokens > 0
    assert record.duration_ms >= 400
    assert not list((successor.run_dir / "usage-open").glob("*.open"))


@pytest.mark.slow
async def test_records_wait_while_redis_is_away(tmp_path, config):
    folder = config.run_dir / "usage-open"
    run_and_die(folder, "made.open(entry('a'))")
    away = msgspec.structs.replace(config, redis_url=f"unix://{tmp_path}/no.sock")
    async with serving(away):
        await asyncio.sleep(0.5)
    assert [one.request_id for one in recovered(folder)] == ["a"]
    async with serving(config):
        client = Redis.from_url(config.redis_url)
        await until(lambda: not [path for path, _ in Ledger(folder).left_behind()], 10)
        assert await client.xlen(records.STREAM) >= 1
        await client.flushdb()
        await client.aclose()
