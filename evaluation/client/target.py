"""An endpoint made ready: its address looked up, the constant parts of every request written."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from evaluation.schema import Endpoint
from evaluation.workload.item import Turn


class EndpointError(Exception):
    """Nothing can be sent at all. `code`, and a sentence that says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Target:
    """Where requests go. `connect_to` is (address, port), looked up once, so that no request waits for a name."""

    def __init__(self, endpoint: Endpoint, api_key: str = "") -> None:
        """Raises EndpointError for a URL without a host."""
        parts = urlsplit(endpoint.url)
        try:
            port = parts.port
        except ValueError as error:
            raise EndpointError("invalid_url", f"{endpoint.url}: {error}; write it as http://host:8000") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EndpointError("invalid_url", f"{endpoint.url} names no host; write it as http://host:8000")
        self.endpoint = endpoint
        self.host = parts.hostname
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.connect_to = (self.host, port or (443 if self.tls else 80))
        self.prefix = parts.path.rstrip("/").removesuffix("/v1")
        self.chat = endpoint.api == "chat"
        authorization = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._common = f"Host: {parts.netloc.rpartition('@')[2]}\r\n{authorization}"
        self.stream_head = self.head("POST", "/v1/chat/completions" if self.chat else "/v1/completions")
        self._fields = {
            "model": endpoint.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        } | endpoint.extra_body

    def head(self, method: str, path: str) -> bytes:
        """A request's head up to the number of its Content-Length."""
        return (
            f"{method} {self.prefix}{path} HTTP/1.1\r\n{self._common}Content-Type: application/json\r\n"
            "Accept: text/event-stream, application/json\r\nAccept-Encoding: identity\r\nContent-Length: "
        ).encode("latin-1")

    async def look_up(self) -> None:
        """Raises EndpointError where the name is unknown."""
        host, port = self.connect_to
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise EndpointError("unknown_host", f"{host} has no address ({error}); check the endpoint's url") from error
        addresses = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first: `localhost` of most
        self.connect_to = (str(addresses[0][4][0]), port)

    def body(self, turn: Turn, history: list[dict[str, Any]]) -> bytes:
        """The whole request in JSON. `history`: messages of a session's turns before."""
        fields: dict[str, Any] = dict(self._fields)
        if self.chat:
            fields["messages"] = history + turn.messages
        else:
            fields["prompt"] = turn.prompt
        if turn.max_tokens is not None:
            fields["max_tokens"] = turn.max_tokens
        return msgspec.json.encode(fields | turn.extra)
