"""HTTP as the hub needs it: a token that never leaves its host, few redirects, ranges."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from engines.protocol import ChildError
from tursiops.core.addresses import Address, addresses

TIMEOUT_S = 30.0
MAX_REDIRECTS = 5
MAX_JSON = 32 * 1024 * 1024  # bytes
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, socket.gaierror)


class Client:
    """Requests to one endpoint. The endpoint is the admin's choice and may be private; where it redirects to may not
    be, unless it is on the same host."""

    def __init__(self, endpoint: str, token: str) -> None:
        self.endpoint = endpoint.rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ChildError("bad_endpoint", f"HF_ENDPOINT={endpoint!r} is no http or https address")
        self._token = token
        self._opener = urllib.request.build_opener(_Redirects(self.endpoint, token))

    def open(self, path: str, headers: dict[str, str] | None = None) -> Any:
        """The response to GET <endpoint><path>. Raises HTTPError for its status, or one of NETWORK_ERRORS."""
        request = urllib.request.Request(self.endpoint + path, headers={"User-Agent": "tursiops", **(headers or {})})
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return self._opener.open(request, timeout=TIMEOUT_S)

    def json(self, path: str) -> Any:
        with self.open(path, {"Accept": "application/json"}) as response:
            data = response.read(MAX_JSON + 1)
        if len(data) > MAX_JSON:
            raise ChildError("bad_answer", f"{self.endpoint}{path} answered more than {MAX_JSON:,} bytes")
        try:
            return json.loads(data)
        except ValueError as error:
            raise ChildError(
                "bad_answer", f"{self.endpoint}{path} did not answer JSON", "Is HF_ENDPOINT the address of a hub?"
            ) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MAX_REDIRECTS

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint = urlsplit(endpoint)
        self._token = token

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        target = urlsplit(newurl)
        same_host = (target.scheme, target.netloc) == (self._endpoint.scheme, self._endpoint.netloc)
        if not same_host:
            self._refuse_unsafe(newurl)
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and same_host and self._token:
            new.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return new

    def _refuse_unsafe(self, url: str) -> None:
        target = urlsplit(url)
        if target.scheme != "https" and self._endpoint.scheme == "https":
            raise ChildError("bad_redirect", f"the hub redirects from https to {target.scheme}: {url[:200]}")
        for address in _addresses(target.hostname or ""):
            if not address.is_global:
                raise ChildError(
                    "bad_redirect",
                    f"the hub redirects to {target.hostname}, a private address",
                    "Set HF_ENDPOINT to a mirror that serves its files itself.",
                )


def _addresses(host: str) -> list[Address]:
    try:
        return addresses(host)
    except OSError:
        return []  # the proxy decides then
