"""The network addresses behind a host's name. Knows nothing of Django: importers run without it."""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def addresses(host: str) -> list[Address]:
    """Raises OSError where the name has none: behind a proxy, names may not resolve here."""
    return [ipaddress.ip_address(str(item[4][0]).split("%")[0]) for item in socket.getaddrinfo(host, None)]
