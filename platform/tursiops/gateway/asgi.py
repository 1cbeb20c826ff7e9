"""The few ASGI helpers that the gateway needs: headers, whole answers, bounded bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

from tursiops.gateway.errors import GatewayError

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HeaderList = list[tuple[bytes, bytes]]

_READ_ON = 4  # times the limit: what of a body that is too large is still taken, and thrown away

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


async def send_error(
    send: Send, error: GatewayError, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes = b""
) -> None:
    """`body`: the refusal in another shape than OpenAI's."""
    await send_whole(send, error.status, body or error.json(), [JSON, *error.headers(), *headers])


async def read_body(scope: Scope, receive: Receive, limit: int, patience_s: float) -> bytes:
    """The request's body. Raises GatewayError: 413 past `limit` bytes, 408 where nothing of it came for `patience_s`;
    ClientGone if the client leaves.

    A body somewhat too large is read to its end first: many clients send all of it before they look at the answer,
    and would see a broken connection in place of the refusal.
    """
    declared = header(scope, b"content-length")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit * _READ_ON):
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(patience_s):
                message = await receive()
        except TimeoutError:
            said = f"The rest of the request body did not come for {patience_s:.0f} s; send it again."
            raise GatewayError(408, "body_timeout", said) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        last = not message.get("more_body", False)
        if size > limit:
            parts.clear()
            if last or size > limit * _READ_ON:
                raise too_large(limit)
            continue
        parts.append(part)
        if last:
            return b"".join(parts)


def too_large(limit: int) -> GatewayError:
    return GatewayError(413, "body_too_large", f"The request body is over the limit of {limit} bytes; send less text.")
