"""A small real engine: a process that speaks the engine contract over HTTP and serves no model.

`options` steer it: load_s (seconds of loading), fail (error code after loading), exit_code (ends with it after
loading), drain_s (seconds that SIGTERM takes), ignore_term, deaf (answers no /health), helper (starts a child).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from engines.api import Capabilities, EngineState, Fit, LaunchSpec, ModelShape, Phase, Role, RunDir


class TinyEngine:
    name = "tiny"
    label = "Tiny (tests)"

    def capabilities(self) -> Capabilities:
        return Capabilities(
            formats=["gguf"],
            architectures=["llama"],
            devices=["cpu", "cuda"],
            dtypes=["float32"],
            roles=[Role.UNIFIED, Role.PREFILL, Role.DECODE],
            features=[],
        )

    def options_schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "load_s": {**number, "default": 0},
                "drain_s": number,
                "exit_code": {"type": "integer"},
                "fail": {"type": "string"},
                "ignore_term": {"type": "boolean"},
                "deaf": {"type": "boolean"},
                "helper": {"type": "boolean"},
            },
        }

    def command(self, run_dir: Path) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), str(run_dir)]

    def inspect_command(self) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('the tiny engine inspects nothing')"]

    def fit(self, shape: ModelShape, spec: LaunchSpec, weights_bytes: int, available: int) -> Fit:
        """Weights, and 1 KiB of cache per layer and token."""
        tokens = spec.max_model_len or shape.context_length
        cache = spec.kv_cache_bytes or tokens * shape.layers * 1024
        total = weights_bytes + cache
        short = total - available
        return Fit(
            weights=weights_bytes,
            kv_cache=cache,
            activations=0,
            overhead=0,
            available=available,
            fits=short <= 0,
            kv_tokens=tokens,
            reason="It fits." if short <= 0 else f"{short} bytes are missing.",
            suggestions=[] if short <= 0 else ["Use a shorter max_model_len."],
        )


class Server:
    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.spec, self.local = run.read_spec()
        self.options = self.spec.options
        self.phase = Phase.LOADING
        self.port = 0

    def tell(self, phase: Phase, **fields: Any) -> None:
        self.phase = phase
        pid = os.getpid()
        state = EngineState(
            instance_id=self.spec.instance_id,
            pid=pid,
            pid_start_time=psutil.Process(pid).create_time(),
            epoch=self.local.epoch,
            phase=phase,
            host=self.local.host,
            port=self.port,
            updated_at=time.time(),
            facts={"max_model_len": self.spec.max_model_len or 8192},
            **fields,
        )
        self.run.write_state(state)

    def serve(self) -> int:
        server = ThreadingHTTPServer((self.local.host, self.local.port), self.handler())
        server.daemon_threads = True
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serving {self.spec.served_name} on {self.port}", flush=True)
        self.tell(Phase.LOADING, progress=0.5)
        ended = threading.Event()
        if not self.options.get("ignore_term"):
            signal.signal(signal.SIGTERM, lambda *_: ended.set())
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.options.get("helper"):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        ended.wait(self.options.get("load_s", 0))
        if "fail" in self.options:
            self.tell(Phase.FAILED, reason="The model file can't be used.", error_code=self.options["fail"])
            return 1
        if "exit_code" in self.options:
            print("the last words of the engine", flush=True)
            return int(self.options["exit_code"])
        self.tell(Phase.READY, progress=1.0)
        ended.wait()
        self.tell(Phase.DRAINING)
        time.sleep(self.options.get("drain_s", 0))
        self.tell(Phase.STOPPED)
        return 0

    def handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/health":
                    if engine.options.get("deaf"):
                        time.sleep(60)
                    ready = engine.phase == Phase.READY
                    self.answer(200 if ready else 503, {"status": str(engine.phase)})
                elif self.headers.get("Authorization") != f"Bearer {engine.local.token}":
                    self.answer(401, {"error": {"message": "wrong token"}})
                else:
                    self.answer(200, {"data": [{"id": engine.spec.served_name}]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != f"Bearer {engine.local.token}":
                    self.answer(401, {"error": {"message": "wrong token"}})
                    return
                usage = {"prompt_tokens": 1, "completion_tokens": 1}
                choice = {"index": 0, "text": f"pid {os.getpid()}", "finish_reason": "stop"}
                self.answer(200, {"object": "text_completion", "choices": [choice], "usage": usage})

            def answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


if __name__ == "__main__":
    sys.exit(Server(RunDir(Path(sys.argv[1]))).serve())
