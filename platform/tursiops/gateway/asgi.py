"""The few ASGI helpers that the gateway needs: headers, whole answers, bounded bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

from tursiops.gateway.errors import GatewayError

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HeaderList = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client closed its connection."""


def header(scope: Scope, name: bytes) -> str:
    """The first header of that (lower-case) name, or an empty string."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


async def send_whole(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, content: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send_whole(send, status, orjson.dumps(content), [JSON, *headers])


async def send_error(send: Send, error: GatewayError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send_whole(send, error.status, error.json(), [JSON, *error.headers(), *headers])


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request's body. Raises GatewayError (413) past `limit` bytes, ClientGone if the client leaves."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def too_large(limit: int) -> GatewayError:
    return GatewayError(413, "body_too_large", f"The request body is over the limit of {limit} bytes; send less text.")
