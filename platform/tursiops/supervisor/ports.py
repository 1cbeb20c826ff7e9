"""Is the door free? And if not, who stands in it."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil

from tursiops.progress import SetupError

_LONGEST_SOCKET_PATH = 107  # bytes, Linux


def check_port(host: str, port: int) -> None:
    """Raises SetupError that names the process, where this user may see it, and the flag."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            why = f"{host}:{port} can't be used: {error.strerror or error}{owner_of(port)}"
            raise SetupError("port", why, f"choose another: up --port {port + 1}") from None


def owner_of(port: int) -> str:
    try:
        for connection in psutil.net_connections("inet"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f" (process {process.pid}: {' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        return ""
    return ""


def answers(path: str) -> bool:
    """Does somebody listen on this unix socket?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def check_socket_path(path: Path) -> None:
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        why = f"{path} is longer than {_LONGEST_SOCKET_PATH} bytes, the kernel's limit for a socket"
        raise SetupError("data folder", why, "choose a shorter one: up --data-dir …")
