"""A live engine instance to ask, and what it may not do meanwhile: restart, or grow."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from evaluation.quality import fuzz_model

NAME = "fuzzed"
START_S = 120.0


class Instance:
    """One process pair, as a node starts it (docs/contracts.md §9). Use as a context."""

    def __init__(self, *, embeds: bool) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ts-fuzz-"))
        self.token = secrets.token_hex(8)
        paths = fuzz_model.write(self._folder / "model", embeds=embeds)
        files = [{"name": name, "sha256": "0" * 64, "size": Path(path).stat().st_size} for name, path in paths.items()]
        spec = {
            "instance_id": "fuzz", "served_name": NAME, "files": files, "format": "safetensors", "version": 1,
            "device": "cpu", "dtype": "float32", "max_num_seqs": 32, "options": {"max_queued": 64},
        }  # fmt: skip
        local = {"paths": paths, "host": "127.0.0.1", "port": 0, "token": self.token, "epoch": 1}
        (self._folder / "spec.json").write_text(json.dumps({"spec": spec, "local": local}))
        self.log_path = self._folder / "engine.log"

    def __enter__(self) -> Instance:
        with self.log_path.open("wb") as log:
            command = [sys.executable, "-m", "engines.native.serve", "--run-dir", str(self._folder)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while self._state().get("phase") != "ready":
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"the engine did not start: {self.log_path.read_text()[-2000:]}")
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{self._state()['port']}"
        self._core = self._core_pid()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self._folder / "state.json").read_bytes())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return state

    def _core_pid(self) -> int:
        children = psutil.Process(self._process.pid).children()
        return int(children[0].pid) if children else 0

    @property
    def restarted(self) -> bool:
        """Whether it is not the two processes any more that were started."""
        return self._process.poll() is not None or self._core_pid() != self._core

    def memory(self) -> dict[str, int]:
        """Bytes that each process has for itself."""
        pids = {"api": self._process.pid, "core": self._core}
        return {name: int(psutil.Process(pid).memory_full_info().uss) for name, pid in pids.items()}

    def metrics(self) -> dict[str, float]:
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("tursiops_engine_"): float(value) for name, value in pairs}

    def at_rest(self, seconds: float = 30.0) -> list[str]:
        """What is still held when nobody asks any more, one sentence each."""
        end = time.monotonic() + seconds
        while True:
            values = self.metrics()
            names = ("requests_running", "requests_waiting", "kv_blocks_used", "host_blocks_used")
            held = [f"{name} is {values[name]:.0f}" for name in names if values.get(name)]
            if not held or time.monotonic() > end:
                return held
            time.sleep(0.1)

    def tracebacks(self) -> list[str]:
        """Errors of its log, the last lines of each."""
        text = self.log_path.read_text(errors="replace")
        return [part[-600:] for part in text.split("Traceback (most recent call last)")[1:]]
