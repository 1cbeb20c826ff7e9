"""Websockets of the web process, passed on message by message; each side's slowness holds back the other."""

from __future__ import annotations

import asyncio

import aiohttp
import structlog
from yarl import URL

from tursiops.gateway import metrics
from tursiops.gateway.asgi import Receive, Scope, Send
from tursiops.gateway.passing import forwarded, target

log = structlog.get_logger()

_HANDSHAKE = frozenset(
    b"sec-websocket-key sec-websocket-version sec-websocket-extensions sec-websocket-protocol content-length".split()
)
_MESSAGE_LIMIT = 4 * 2**20
_RESTARTING = 1012
_NEVER_SENT = (1005, 1006, 1015)  # codes that tell of a missing close frame


async def serve(session: aiohttp.ClientSession, scope: Scope, receive: Receive, send: Send) -> None:
    if (await receive())["type"] != "websocket.connect":
        return
    try:
        web = await session.ws_connect(
            URL(target(scope), encoded=True),
            headers=forwarded(scope, _HANDSHAKE),
            protocols=scope.get("subprotocols", []),
            max_msg_size=_MESSAGE_LIMIT,
            compress=0,
        )
    except aiohttp.WSServerHandshakeError as error:
        await _deny(scope, send, error.status)
        return
    except (aiohttp.ClientError, OSError) as error:
        metrics.web_errors.inc()
        log.warning("gateway.web_unreachable", path=scope["path"], reason=f"{type(error).__name__}: {error}")
        await _deny(scope, send, 502)
        return
    async with web:
        await send({"type": "websocket.accept", "subprotocol": web.protocol})
        await _both_ways(web, receive, send)


async def _both_ways(web: aiohttp.ClientWebSocketResponse, receive: Receive, send: Send) -> None:
    up = asyncio.create_task(_to_web(web, receive))
    down = asyncio.create_task(_to_client(web, send))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():  # web has closed
            code = web.close_code
            if code is None or code in _NEVER_SENT:
                code = _RESTARTING
            await send({"type": "websocket.close", "code": code})
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _to_web(web: aiohttp.ClientWebSocketResponse, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code", 1000)
            await web.close(code=1001 if code in _NEVER_SENT else code)
            return
        try:
            if message.get("text") is not None:
                await web.send_str(message["text"])
            else:
                await web.send_bytes(message.get("bytes") or b"")
        except (aiohttp.ClientError, ConnectionError):
            await asyncio.sleep(1)  # web's side ends in a moment, and says so to the client
            return


async def _to_client(web: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    async for message in web:
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})


async def _deny(scope: Scope, send: Send, status: int) -> None:
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({"type": "websocket.http.response.start", "status": status, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b""})
    else:
        await send({"type": "websocket.close", "code": 1013})
