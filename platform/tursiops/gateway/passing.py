"""Everything that is not /v1 goes to the web process over its unix socket, bodies streamed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import aiohttp
import orjson
import structlog
from yarl import URL

from tursiops.gateway import metrics
from tursiops.gateway.asgi import JSON, ClientGone, HeaderList, Receive, Scope, Send, header, send_whole
from tursiops.gateway.config import Config

log = structlog.get_logger()

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_FORWARDED = frozenset((b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded", b"x-real-ip"))
_OURS = frozenset((b"expect",))  # the server in front of us has answered it
_SERVERS = frozenset((b"date", b"server"))  # our server says its own, once
_IDLE_S = 300.0
_RESTARTING = "The web process is restarting. Models keep answering under /v1; this page comes back within seconds."
_PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tursiops: restarting</title>
<meta http-equiv="refresh" content="2"></head><body><h1>Just a moment</h1><p>{_RESTARTING}</p></body></html>"""


def new_session(config: Config) -> aiohttp.ClientSession:
    """The client session to web. Cookies are the browser's, so the session keeps none."""
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(path=config.web_socket, limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout, sock_read=_IDLE_S),
        auto_decompress=False,
        skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type", "Accept"),
    )


def target(scope: Scope) -> str:
    """Path and query exactly as the client sent them, for the host that web believes to be reached by."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    path = raw.split(b"?", 1)[0].decode("latin-1")
    return f"http://web{path}" + (f"?{query.decode('latin-1')}" if query else "")


def forwarded(scope: Scope, drop: frozenset[bytes] = frozenset()) -> list[tuple[str, str]]:
    """The client's headers without hop-by-hop ones, and who it is. What it claims to be is not believed."""
    unwanted = HOP_BY_HOP | _FORWARDED | _named_in_connection(scope["headers"]) | drop
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name.lower() not in unwanted
    ]
    client = scope.get("client")
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    return [
        *headers,
        ("X-Forwarded-For", client[0] if client else ""),
        ("X-Forwarded-Proto", scheme),
        ("X-Forwarded-Host", header(scope, b"host")),
    ]


class Passing:
    """Owns the session to web. `serve` passes one HTTP request; websockets are in passing_ws."""

    def __init__(self, config: Config) -> None:
        self.session = new_session(config)

    async def close(self) -> None:
        await self.session.close()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(receive)
        work = asyncio.create_task(self._pass(scope, body, send))
        watch = asyncio.create_task(body.left())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not body.answered:
                work.cancel()
            await asyncio.wait((work,))
            if not work.cancelled() and (error := work.exception()) is not None:
                raise error
        finally:
            work.cancel()
            watch.cancel()

    async def _pass(self, scope: Scope, body: RequestBody, send: Send) -> None:
        begun = False
        try:
            async with self.session.request(
                scope["method"],
                URL(target(scope), encoded=True),
                headers=forwarded(scope, _OURS),
                data=body.parts(present=_has_body(scope)),
                allow_redirects=False,
            ) as response:
                await send({"type": "http.response.start", "status": response.status, "headers": _back(response)})
                begun = True
                while data := await response.content.readany():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                body.answered = True
                await send({"type": "http.response.body", "body": b""})
        except ClientGone:
            return
        except (aiohttp.ClientError, OSError) as error:
            metrics.web_errors.inc()
            log.warning("gateway.web_unreachable", path=scope["path"], reason=f"{type(error).__name__}: {error}")
            body.answered = True
            if begun:  # incomplete: close the connection, so that the client sees it
                raise WebBroke from None
            await send_restarting(scope, send)


class WebBroke(Exception):
    """Web went away in the middle of an answer."""


class RequestBody:
    """The one reader of `receive`: first the body's parts for web, then the news that the client has left."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()
        self.answered = False  # the last bytes are on their way

    def parts(self, *, present: bool) -> AsyncIterator[bytes] | None:
        """The body for aiohttp; None where the request has none."""
        if present:
            return self._parts()
        self._read.set()
        return None

    async def _parts(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]
        self._read.set()

    async def left(self) -> None:
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def send_restarting(scope: Scope, send: Send) -> None:
    later = [(b"retry-after", b"2"), (b"cache-control", b"no-store")]
    if "text/html" in header(scope, b"accept"):
        await send_whole(send, 502, _PAGE.encode(), [(b"content-type", b"text/html; charset=utf-8"), *later])
        return
    error = {"code": "web_restarting", "message": _RESTARTING, "hint": "Try again in a few seconds.", "fields": {}}
    await send_whole(send, 502, orjson.dumps({"error": error}), [JSON, *later])


def _has_body(scope: Scope) -> bool:
    return header(scope, b"content-length") not in ("", "0") or bool(header(scope, b"transfer-encoding"))


def _back(response: aiohttp.ClientResponse) -> HeaderList:
    unwanted = HOP_BY_HOP | _SERVERS | _named_in_connection(response.raw_headers)
    return [(name.lower(), value) for name, value in response.raw_headers if name.lower() not in unwanted]


def _named_in_connection(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """Headers that their sender has declared to be for this hop alone."""
    lists = [value for name, value in headers if name.lower() == b"connection"]
    return {name.strip().lower() for value in lists for name in value.split(b",")}
