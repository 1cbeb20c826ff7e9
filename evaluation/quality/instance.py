"""One instance of the native engine in a process of its own, for as long as an evaluation needs it.

    python -m evaluation.quality.instance MODEL --dtype int8 --max-model-len 4096

prints its address and token as a line of JSON, and ends it on Ctrl-C or SIGTERM. MODEL: a GGUF file, or a folder as the
hub holds it. It is started by the files of docs/contracts.md §9 and spoken to over HTTP; nothing of it is imported.
"""

from __future__ import annotations

import argparse
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
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
START_S = 3600.0


class Instance:
    """`with Instance(model, …) as running`: `running.url` (without /v1) and `running.token`; ready inside, gone after.

    spec: further fields of LaunchSpec (engines/api.py), as dtype, max_model_len, max_num_seqs, options.
    Raises RuntimeError, with the engine's reason or the end of its log, where it does not become ready.
    """

    def __init__(self, model: Path, name: str, **spec: Any) -> None:
        paths = sorted(path for path in model.iterdir() if path.is_file()) if model.is_dir() else [model]
        self.name = name
        self.token = secrets.token_hex(16)
        self.url = ""
        self._folder = Path(tempfile.mkdtemp(prefix="ts-quality-"))
        launch = {
            "instance_id": "quality",
            "served_name": name,
            "files": [{"name": path.name, "sha256": "0" * 64, "size": path.stat().st_size} for path in paths],
            "format": "safetensors" if model.is_dir() else "gguf",
            "version": 1,
            **spec,
        }
        local = {
            "paths": {path.name: str(path.resolve()) for path in paths},
            "host": "127.0.0.1",
            "port": 0,
            "token": self.token,
            "epoch": 1,
        }
        place = os.open(self._folder / "spec.json", os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(place, "w", encoding="utf-8") as file:
            json.dump({"spec": launch, "local": local}, file)

    def __enter__(self) -> Instance:
        with (self._folder / "engine.log").open("wb") as log:
            argv = [sys.executable, "-m", "engines.native.serve", "--run-dir", str(self._folder)]
            self._process = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def pid(self) -> int:
        """Of the API process; its core is a child of it."""
        return self._process.pid

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while True:
            state = self._state()
            if state.get("phase") == "ready":
                self.url = f"http://127.0.0.1:{state['port']}"
                return
            if state.get("phase") == "failed" or self._process.poll() is not None or time.monotonic() > end:
                log = (self._folder / "engine.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"the engine did not start: {state.get('reason') or log[-2000:]}")
            time.sleep(0.2)

    def _state(self) -> dict[str, Any]:
        path = self._folder / "state.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its core ends with it: the kernel tells it
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def end_on_signals() -> None:
    """SIGTERM and SIGINT leave by an exception, so that a `with Instance` ends its engine. For a main program."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", default="model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-model-len", type=int, default=0)
    parser.add_argument("--max-num-seqs", type=int, default=0)
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object of the engine's own options")
    options = parser.parse_args()
    end_on_signals()
    with Instance(
        options.model,
        options.name,
        dtype=options.dtype,
        device=options.device,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        options=options.options,
    ) as running:
        print(json.dumps({"url": running.url, "token": running.token, "name": running.name}), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
