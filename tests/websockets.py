"""Websockets of the web application: without a server (channels.testing needs daphne, which we don't ship), or
with the real one on a unix socket, as a gateway finds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.test import Client
from tursiops.asgi import application

from tests.prompt_server import PromptServer


class Socket:
    def __init__(self, path: str, cookie: str = "") -> None:
        path, _, query = path.partition("?")
        headers = [(b"origin", b"http://testserver"), (b"host", b"testserver")]
        if cookie:
            headers.append((b"cookie", f"sessionid={cookie}".encode()))
        scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": headers}
        self._app = ApplicationCommunicator(application, scope | {"subprotocols": [], "scheme": "ws"})

    async def connect(self) -> Socket:
        await self._app.send_input({"type": "websocket.connect"})
        accepted = await self._app.receive_output(5)
        assert accepted["type"] == "websocket.accept"
        return self

    async def send(self, message: Any) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self._app.send_input({"type": "websocket.receive", "text": text})

    async def receive(self, seconds: float = 5) -> Any:
        message = await self._app.receive_output(seconds)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def closed_with(self, seconds: float = 5) -> int:
        message = await self._app.receive_output(seconds)
        assert message["type"] == "websocket.close", message
        return message["code"]

    async def is_silent(self, seconds: float) -> bool:
        return await self._app.receive_nothing(seconds)

    async def disconnect(self) -> None:
        await self._app.send_input({"type": "websocket.disconnect", "code": 1001})
        await self._app.wait(5)


@contextlib.asynccontextmanager
async def web_process(path: str) -> AsyncIterator[None]:
    """The web application served in this loop, so that tests can watch what it does."""
    config = uvicorn.Config(application, uds=path, log_level="info", access_log=False, timeout_graceful_shutdown=1)
    server = PromptServer(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.end()
        await task


async def socket_of(user: Any, path: str) -> Socket:
    """Connected, with the session of `user`; None: of a stranger."""
    return await Socket(path, await sync_to_async(session_of)(user) if user else "").connect()


def session_of(user: Any) -> str:
    """Value of the session cookie."""
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value
