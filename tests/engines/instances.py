"""Starts an engine instance the way a node does, and talks to it."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil

from engines.api import Draft, EngineState, LaunchSpec, Local, ModelFile, Phase, RunDir

ROOT = Path(__file__).parents[2]
NAME = "smollm2"


class Running:
    """One instance in a session of its own. `stop` in a finally."""

    def __init__(
        self,
        model: Path,
        *,
        module: str = "engines.native.serve",
        wait: bool = True,
        script: Any = None,
        draft: Path | None = None,
        cache_dir: str = "",
        **spec: Any,
    ) -> None:
        """model, draft: a GGUF file, or a folder as the hub holds it."""
        self.folder = Path(tempfile.mkdtemp(prefix="ts-inst-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)  # tests read state and log after the end
        self.run_dir = RunDir(self.folder)
        self.token = secrets.token_hex(8)
        paths, files, kind = _files(model)
        settings: dict[str, Any] = {"device": "cpu", "dtype": "float32", "format": kind, **spec}
        beside: dict[str, str] = {}
        if draft is not None:
            beside, draft_files, draft_kind = _files(draft)
            settings["draft"] = Draft(draft_files, draft_kind)
        self.run_dir.write_spec(
            LaunchSpec(instance_id="i-1", served_name=NAME, files=files, **settings),
            Local(paths, "127.0.0.1", 0, self.token, epoch=1, draft_paths=beside, cache_dir=cache_dir),
        )
        if script is not None:
            (self.folder / "script.json").write_text(json.dumps(script))
        self.log = open(self.run_dir.log_path, "wb")  # noqa: SIM115 - lives as long as the process
        argv = [sys.executable, "-m", module, "--run-dir", str(self.folder)]
        self.process = subprocess.Popen(
            argv, cwd=ROOT, stdout=self.log, stderr=self.log, start_new_session=True, env={**os.environ}
        )
        self.client = httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=60)
        if wait:
            self.wait_for(Phase.READY)

    @property
    def state(self) -> EngineState | None:
        return self.run_dir.read_state()

    @property
    def url(self) -> str:
        state = self.state
        assert state is not None
        return f"http://127.0.0.1:{state.port}"

    @property
    def core(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def wait_for(self, phase: Phase, seconds: float = 60) -> EngineState:
        end = time.monotonic() + seconds
        while True:
            state = self.state
            if state is not None and state.phase is phase:
                return state
            if time.monotonic() > end or (self.process.poll() is not None and phase is not Phase.STOPPED):
                state = self.state
                if state is not None and state.phase is phase:
                    return state
                raise AssertionError(f"not {phase}: {state}\n{self.run_dir.log_path.read_text()[-3000:]}")
            time.sleep(0.02)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(self.url + path, json=body, **options)

    def complete(self, **body: Any) -> dict[str, Any]:
        response = self.post("/v1/completions", {"model": NAME, **body})
        assert response.status_code == 200, response.text
        return response.json()

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """All events of a stream, [DONE] as a string."""
        with self.client.stream("POST", self.url + path, json={"model": NAME, "stream": True, **body}) as response:
            assert response.status_code == 200, response.read()
            return list(read_events(response))

    def metric(self, name: str) -> float:
        """Value of one sample of /metrics, 0 where there is none."""
        for line in self.client.get(self.url + "/metrics").text.splitlines():
            if line.startswith(f"tursiops_engine_{name} "):
                return float(line.split()[-1])
        return 0.0

    def eventually(self, condition: Any, seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.run_dir.log_path.read_text()[-3000:]
            time.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL for one that does not obey."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.client.close()
        self.log.close()
        return self.process.returncode


def _files(model: Path) -> tuple[dict[str, str], list[ModelFile], str]:
    """(paths by name, files, format)."""
    paths = sorted(model.iterdir()) if model.is_dir() else [model]
    files = [ModelFile(path.name, "0" * 64, path.stat().st_size) for path in paths]
    return {path.name: str(path) for path in paths}, files, "safetensors" if model.is_dir() else "gguf"


def read_events(response: httpx.Response) -> Any:
    for line in response.iter_lines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)
