"""A gateway in this process on a free port, engines that only speak, and the snapshot between them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from redis.asyncio import Redis
from tursiops import secrets
from tursiops.gateway import records, snapshot
from tursiops.gateway.app import Gateway
from tursiops.gateway.config import Config
from tursiops.settings import base

from evaluation.fake_engine import FakeEngine
from tests.prompt_server import PromptServer

TEAM = "0198a000-0000-7000-8000-000000000001"
OTHER_TEAM = "0198a000-0000-7000-8000-000000000002"


def instance(engine: FakeEngine, name: str, **changes: Any) -> snapshot.InstanceEntry:
    return snapshot.InstanceEntry(**({"id": name, "url": engine.url, "token": engine.token} | changes))


def route(name: str, *instances: snapshot.InstanceEntry, **changes: Any) -> snapshot.RouteEntry:
    fields = {"team": TEAM, "name": name, "deployment": f"deployment-{name}", "instances": instances}
    return snapshot.RouteEntry(**(fields | changes))


@dataclass
class Bench:
    """What a test has in hand."""

    config: Config
    redis: Redis
    gateway: Gateway
    session: aiohttp.ClientSession
    url: str = ""
    key: str = ""
    version: int = 0
    keys: dict[str, snapshot.KeyEntry] = field(default_factory=dict)

    def new_key(self, **limits: Any) -> str:
        made = secrets.new_api_key()
        fields = {"id": str(uuid.uuid4()), "team": TEAM} | limits
        self.keys[made.sha256] = snapshot.KeyEntry(**fields)
        return made.secret

    async def publish(self, *routes: snapshot.RouteEntry) -> None:
        """As the controller does; returns when the gateway serves from it."""
        self.version += 1
        made = snapshot.Snapshot(version=self.version, generated_at=time.time(), keys=dict(self.keys), routes=routes)
        await self.redis.set(snapshot.REDIS_KEY, snapshot.seal(made))
        await self.redis.publish(snapshot.REDIS_CHANNEL, self.version)
        await until(lambda: self.gateway.snapshot_version() == self.version)

    def post(self, body: Any, *, path: str = "/v1/chat/completions", key: str = "") -> Any:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return self.session.post(self.url + path, json=body, headers=headers)

    async def stream(
        self, model: str = "m", *, path: str = "/v1/chat/completions", **fields: Any
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        asked = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}
        async with self.post({"model": model, **asked, "stream": True} | fields, path=path) as response:
            return response, await response.read()

    async def usage(self, count: int, seconds: float = 5) -> list[records.UsageEntry]:
        """All records in the stream, once there are `count` of them."""
        await until_async(lambda: self.redis.xlen(records.STREAM), count, seconds)
        rows = await self.redis.xrange(records.STREAM)
        return [records.decode(fields[records.FIELD]) for _, fields in rows]


async def until(condition: Any, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        await asyncio.sleep(0.01)


async def until_async(ask: Any, least: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while await ask() < least:
        assert time.monotonic() < end, f"fewer than {least} in time"
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def full_port() -> Iterator[str]:
    """The URL of a port that takes no more connections, and refuses none."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


@contextlib.asynccontextmanager
async def serving(config: Config) -> AsyncIterator[tuple[Gateway, str]]:
    gateway = Gateway(config)
    server = PromptServer(
        uvicorn.Config(
            gateway,
            host="127.0.0.1",
            port=0,
            lifespan="on",
            log_level="error",
            server_header=False,  # as in production
            timeout_graceful_shutdown=1,
        )
    )
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield gateway, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.end()
        await task


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        host="127.0.0.1",
        port=0,
        web_socket=str(tmp_path / "web.sock"),
        redis_url=base.REDIS_URL,
        run_dir=tmp_path / "run",
        backoff=0.01,
        cooldown=0.1,
    )


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    client = Redis.from_url(base.REDIS_URL)
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()


@pytest.fixture
async def bench(config: Config, redis: Redis) -> AsyncIterator[Bench]:
    async with serving(config) as (gateway, url), aiohttp.ClientSession() as session:
        made = Bench(config, redis, gateway, session, url)
        made.key = made.new_key()
        yield made


@pytest.fixture
async def engines() -> AsyncIterator[list[FakeEngine]]:
    """Two of them."""
    made = [await FakeEngine().start(), await FakeEngine().start()]
    yield made
    for engine in made:
        await engine.stop()
