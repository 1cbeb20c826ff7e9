"""A whole platform for a test: `up` as a process on the embedded defaults, a free port and a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
OF_THE_TESTS = ("DATABASE_URL", "REDIS_URL", "TEST_SERVICES_DIR", "DJANGO_SETTINGS_MODULE", "PYTEST_CURRENT_TEST")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment(**more: str) -> dict[str, str]:
    """As on a machine that runs no tests: the embedded database and broker are used."""
    kept = {n: v for n, v in os.environ.items() if n not in OF_THE_TESTS and not n.startswith("TURSIOPS_")}
    return {**kept, "no_proxy": "127.0.0.1,localhost", **more}


class Running:
    """`with Running(folder, "--no-demo") as up:` ends with everything ended, whatever happened inside."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        argv: list[str] | None = None,
        port: int = 0,
        paths: str = f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
        **env: str,
    ) -> None:
        self.folder, self.port = folder, port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.run_dir = folder / "run"
        command = argv or [sys.executable, "-m", "tursiops.supervisor"]
        self.argv = [*command, "--data-dir", str(folder), "--port", str(self.port), *flags]
        self.env = environment(PYTHONPATH=paths, **env)
        self.lines: list[str] = []
        self.began = time.monotonic()

    def __enter__(self) -> Running:
        self.process = subprocess.Popen(
            self.argv,
            cwd=self.folder.parent,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def __exit__(self, *_: object) -> None:
        everything = self.family()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        for each in [*everything, *self.engines()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(10)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = 120) -> re.Match[str]:
        """The first match in what `up` has printed."""
        end = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.output):
                return found
            if self.process.poll() is not None:
                time.sleep(0.3)
                if found := re.search(pattern, self.output):
                    return found
                raise AssertionError(f"`up` ended with {self.process.returncode}:\n{self.output}\n{self.words()}")
            assert time.monotonic() < end, f"no {pattern!r} within {seconds} s:\n{self.output}\n{self.words()}"
            time.sleep(0.05)

    def words(self) -> str:
        """The last lines of every log, for a failure's message."""
        logs = sorted([*self.run_dir.glob("logs/*.log"), *self.run_dir.glob("instances/*/engine.log")])
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def children(self) -> dict[str, psutil.Process]:
        """Supervised processes by name, as the state file names them."""
        state = json.loads((self.run_dir / "supervisor.json").read_text())
        found = {}
        for name, child in state["children"].items():
            with contextlib.suppress(psutil.NoSuchProcess):
                found[name] = psutil.Process(child["pid"])
        return found

    def engines(self) -> list[psutil.Process]:
        """API and core processes of all instances."""
        leaders = []
        for path in self.run_dir.glob("instances/*/launch.json"):
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                launch = json.loads(path.read_text())
                process = psutil.Process(launch["pid"])
                if abs(process.create_time() - launch["pid_start_time"]) < 1.5:
                    leaders.append(process)
        return [each for leader in leaders for each in [leader, *leader.children(recursive=True)]]

    def worker(self) -> psutil.Process | None:
        """The job worker, which is not the supervisor's child but the node's; None while it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess, OSError, ValueError):
            process = psutil.Process(json.loads((self.run_dir / "worker" / "launch.json").read_text())["pid"])
            return process if process.status() != psutil.STATUS_ZOMBIE else None
        return None

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        return []

    def answers(self, path: str = "/api/v1/auth/session") -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(self.url + path, timeout=5).status_code < 500
        return False


def until(condition, seconds: float = 30, what: str = "it") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)
