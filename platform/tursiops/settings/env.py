"""Every environment variable that Tursiops reads, in one typed table. Nothing else reads `os.environ`.

`manage.py settings_doc` prints this table; an unknown TURSIOPS_* variable stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _bool(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("use true or false")


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


@dataclass(frozen=True)
class Variable:
    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


VARIABLES = [
    Variable(
        "DATABASE_URL",
        str,
        "",
        "PostgreSQL as postgres://user:password@host:port/name; empty: SQLite in the data folder",
    ),
    Variable("REDIS_URL", str, "", "Redis or Valkey as redis://… or unix:///path; empty: the broker that `up` starts"),
    Variable("HF_ENDPOINT", str, "https://huggingface.co", "hub, or a mirror of it, that models are fetched from"),
    Variable("HF_TOKEN", str, "", "token for gated models; never stored"),
    Variable(
        "TURSIOPS_DATA_DIR",
        str,
        "",
        "folder of database, file store, logs and run folders; default: .data in a clone, else ~/.local/share/tursiops",
    ),
    Variable("TURSIOPS_DEBUG", _bool, False, "tracebacks in the browser; never in production"),
    Variable("TURSIOPS_ALLOWED_HOSTS", _list, ["*"], "host names that the web process answers to, comma-separated"),
    Variable(
        "TURSIOPS_TRUSTED_ORIGINS",
        _list,
        [],
        "origins trusted for forms and websockets behind a TLS proxy, e.g. https://ai.example.com",
    ),
    Variable("TURSIOPS_SECURE_COOKIES", _bool, False, "cookies over TLS only; set it behind https"),
    Variable("TURSIOPS_NODE_NAME", str, "", "name of this host in the fleet; default: the host name"),
    Variable("TURSIOPS_GATEWAY_HOST", str, "127.0.0.1", "address that the gateway binds"),
    Variable("TURSIOPS_GATEWAY_PORT", int, 8000, "port of the gateway, the one door of the platform"),
    Variable(
        "TURSIOPS_WEB_SOCKET", str, "", "unix socket of the web process; default: run/web.sock in the data folder"
    ),
    Variable(
        "TURSIOPS_MODEL_PATHS",
        _list,
        [],
        "folders that models may be registered from; empty: any readable one, admins only",
    ),
    Variable(
        "TURSIOPS_EVALUATION_HOSTS",
        _list,
        [],
        "hosts inside this network (host or host:port) that evaluations may be aimed at as external endpoints",
    ),
    Variable("TURSIOPS_EVALUATION_KEEP_DAYS", int, 90, "days that files of evaluation runs are kept; figures stay"),
    Variable("TURSIOPS_LOG_FORMAT", str, "console", "console or json"),
]

_PLATFORM = Path(__file__).resolve().parents[2]  # <clone>/platform, or site-packages
_BY_NAME = {variable.name: variable for variable in VARIABLES}
_INTERNAL = {"TURSIOPS_SETTINGS_CHECKED"}


class SettingsError(Exception):
    """A variable that can't be used; says which, why and what is accepted."""


def read(name: str) -> Any:
    """The value of a declared variable, parsed. Raises SettingsError."""
    variable = _BY_NAME[name]
    text = os.environ.get(name)
    if text is None:
        return variable.default
    try:
        return variable.parse(text)
    except ValueError as error:
        raise SettingsError(f"{name}={text!r}: {error} ({variable.help})") from None


def check_unknown() -> None:
    """Raises SettingsError for a TURSIOPS_* variable that nothing reads: a typing error would go unnoticed."""
    unknown = sorted(
        name for name in os.environ if name.startswith("TURSIOPS_") and name not in _BY_NAME and name not in _INTERNAL
    )
    if unknown:
        raise SettingsError(f"unknown {', '.join(unknown)}; known: {', '.join(sorted(_BY_NAME))}")


_PASSED_ON = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE"}
_PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "TRITON_", "OMP_", "GOMP_")


def engine_environment(python_path: list[str]) -> dict[str, str]:
    """What an engine process inherits: where programs and GPUs are. No setting of ours and no secret is in it."""
    passed = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    # Two torch threads that spin on a busy machine turn a step of 31 ms into more than a second.
    # GPU numbers are nvidia-smi's: CUDA's own order would put the fastest first.
    fixed = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONPATH": os.pathsep.join(python_path), "PYTHONUNBUFFERED": "1"}
    return {"OMP_WAIT_POLICY": "PASSIVE", **passed, **fixed}


def service_environment(python_path: list[str]) -> dict[str, str]:
    """What a process of our own inherits: everything, plus where our packages are."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(python_path)}


_NETWORK = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}


def job_environment() -> dict[str, str]:
    """What a job's child inherits: as an engine, plus the way to the network (proxies, package index)."""
    network = {name: value for name, value in os.environ.items() if name.upper() in _NETWORK or name.startswith("PIP_")}
    roots = [_PLATFORM, _PLATFORM.parent] if _PLATFORM.name == "platform" else [_PLATFORM]
    return {**engine_environment([str(root) for root in roots]), **network}
