"""Which pages may open a websocket: those of the address that it is opened at, and those that the settings name.

A browser sends cookies with any page's websocket and no CSRF token; the Origin is all that tells a foreign page.
Which hosts the process answers to (ALLOWED_HOSTS, often "*") is another question and allows no page.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

import structlog
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

log = structlog.get_logger(__name__)

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class SameOrigin:
    """ASGI middleware of websockets: 403 before the handshake for pages of other origins."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        origins, hosts = _values(scope, b"origin"), _values(scope, b"host")
        if may_open(origins, hosts):
            await self._application(scope, receive, send)
            return
        log.info("websocket.foreign_origin", path=scope["path"][:200], origin=origins[:2], host=hosts[:2])
        await receive()
        await send({"type": "websocket.close", "code": 4403})  # before it is accepted: the server answers 403


def may_open(origins: list[str], hosts: list[str]) -> bool:
    """By the values of both headers. No Origin at all: no browser, and so nobody's cookies but the caller's own."""
    if len(hosts) != 1 or not validate_host(split_domain_port(hosts[0])[0], settings.ALLOWED_HOSTS):
        return False
    if not origins:
        return True
    try:
        origin = urlsplit(origins[0].lower())
    except ValueError:  # e.g. an unfinished IPv6 address
        return False
    if len(origins) > 1 or not origin.netloc:  # "null": a sandboxed page or a file
        return False
    port = _DEFAULT_PORTS.get(origin.scheme, "")
    same = origin.netloc.removesuffix(port) == hosts[0].lower().removesuffix(port)
    return same or any(_matches(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _matches(origin: SplitResult, trusted: str) -> bool:
    """As Django's CSRF check: `https://*.example.com` stands for its subdomains."""
    pattern = urlsplit(trusted.lower())
    return origin.scheme == pattern.scheme and is_same_domain(origin.netloc, pattern.netloc.lstrip("*"))


def _values(scope: dict[str, Any], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
