"""An instance from start to end, and what its clients see when parts of it die."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from engines.api import Phase, Role
from tests.engines.instances import NAME, ROOT, Running, read_events
from tests.engines.serve.conftest import SCRIPTED
from tests.engines.weights import smollm2
from tests.processes import alive

pytestmark = pytest.mark.slow

LONG = {"prompt": list(range(100, 600)), "max_tokens": 1500, "ignore_eos": True}


class Client(threading.Thread):
    """Streams one answer in the background and keeps what came."""

    def __init__(self, running: Running, body: dict[str, Any] = LONG) -> None:
        super().__init__()
        self._running, self._body = running, body
        self.status = 0
        self.broken = False  # the connection ended inside the answer
        self.events: list[Any] = []
        self.first = threading.Event()
        self.start()

    def run(self) -> None:
        url = self._running.url + "/v1/completions"
        body = {"model": NAME, "stream": True, **self._body}
        headers = {"Authorization": f"Bearer {self._running.token}"}
        with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as response:
            self.status = response.status_code  # an error before the first event is no stream, so no events come
            try:
                for event in read_events(response):
                    self.events.append(event)
                    self.first.set()
            except httpx.RemoteProtocolError:
                self.broken = True

    def ended_with_error(self, part: str) -> None:
        self.join(20)
        assert self.status == 200
        assert part in self.events[-1]["error"]["message"]
        assert "[DONE]" not in self.events


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Running] = []

    def begin(**options: Any) -> Running:
        running = Running(options.pop("gguf", None) or smollm2(), module=SCRIPTED, **options)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.stop()


def test_sigterm_drains_running_requests_and_refuses_new_ones(start: Any) -> None:
    running = start(script={"step_s": 0.02})
    client = Client(running, {"prompt": list(range(100, 200)), "max_tokens": 60, "ignore_eos": True})
    client.first.wait(10)
    running.process.send_signal(signal.SIGTERM)
    running.wait_for(Phase.DRAINING)
    health = httpx.get(running.url + "/health")
    assert (health.status_code, health.json()["status"]) == (503, "draining")
    refused = running.post("/v1/completions", {"model": NAME, "prompt": "x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_draining")
    assert refused.headers["retry-after"]
    client.join(20)
    assert client.events[-1] == "[DONE]"
    assert running.process.wait(10) == 0
    state = running.wait_for(Phase.STOPPED)
    assert state.pid == running.process.pid


def test_drain_has_an_end_and_the_rest_is_told(start: Any) -> None:
    running = start(script={"step_s": 0.05}, options={"drain_s": 1})
    client = Client(running)
    client.first.wait(10)
    running.process.send_signal(signal.SIGTERM)
    client.ended_with_error("did not finish within 1 s")
    assert running.process.wait(10) == 0


def test_core_killed_while_streaming_is_an_error_event_and_comes_back(start: Any) -> None:
    running = start(script={"step_s": 0.02})
    clients = [Client(running) for _ in range(4)]
    for client in clients:
        client.first.wait(10)
    pid = running.core.pid
    running.core.kill()
    for client in clients:
        client.ended_with_error("was killed by SIGKILL")
    running.wait_for(Phase.READY)
    assert running.core.pid != pid
    assert running.complete(prompt="again", max_tokens=5)["choices"][0]["text"] == "again"
    assert running.metric('requests_finished_total{reason="error"}') == 4
    assert running.metric("core_restarts_total") == 1


def test_health_says_failed_then_loading_after_the_core_died(start: Any) -> None:
    running = start()
    seen = set()
    running.core.kill()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        answer = httpx.get(running.url + "/health")
        seen.add((answer.status_code, answer.json()["status"]))
        if answer.status_code == 200 and len(seen) > 1:
            break
        time.sleep(0.02)
    assert {(503, "failed"), (503, "loading"), (200, "ready")} <= seen | {(200, "ready")}
    assert (503, "failed") in seen


def test_core_that_keeps_dying_ends_the_instance(start: Any) -> None:
    running = start()
    for _ in range(3):
        running.wait_for(Phase.READY)
        running.core.kill()
        running.eventually(lambda: running.state.phase is not Phase.READY)
    running.wait_for(Phase.READY)
    running.core.kill()
    assert running.process.wait(20) == 1
    state = running.state
    assert state is not None
    assert (state.phase, state.error_code) == (Phase.FAILED, "core_lost")
    assert "4 times within 300 s" in state.reason


def test_core_dies_with_the_api_process(start: Any) -> None:
    running = start(script={"step_s": 0.02})
    core = running.core
    client = Client(running)
    client.first.wait(10)
    os.kill(running.process.pid, signal.SIGKILL)
    psutil.wait_procs([core], timeout=5)
    assert not alive(core.pid)
    client.join(10)
    assert client.broken


@pytest.mark.parametrize("depth", [1, 2], ids=["one step at a time", "two steps in flight"])
def test_failed_step_ends_its_requests_only(start: Any, depth: int) -> None:
    running = start(script={"step_s": 0.02, "fail_token": 4242, "depth": depth})
    good = Client(running, {"prompt": list(range(100, 130)), "max_tokens": 20})
    good.join(20)
    bad = running.post("/v1/completions", {"model": NAME, "prompt": [4242, 7]})
    assert bad.status_code == 500
    assert "RuntimeError: this token is poison" in bad.json()["error"]["message"]
    assert good.events[-1] == "[DONE]"
    assert running.complete(prompt="fine", max_tokens=5)["choices"][0]["text"] == "fine"
    assert "step" in running.run_dir.log_path.read_text()


def test_load_failure_is_the_reason_in_state_and_is_not_tried_again(start: Any) -> None:
    running = start(script={"load_error": "kv_cache_bytes is 5; at least 100 are needed"}, wait=False)
    assert running.process.wait(30) == 1
    state = running.state
    assert (state.phase, state.error_code) == (Phase.FAILED, "cannot_load")
    assert state.reason == "kv_cache_bytes is 5; at least 100 are needed"
    assert state.port > 0


def test_while_it_loads_the_port_is_known_and_health_says_how_far_it_is(start: Any) -> None:
    running = start(script={"load_s": 60}, wait=False)
    running.eventually(lambda: running.state is not None and running.state.progress == 0.5, 30)
    health = httpx.get(running.url + "/health")
    assert (health.status_code, health.json()) == (503, {"status": "loading", "progress": 0.5, "reason": "half way"})
    early = running.post("/v1/completions", {"model": NAME, "prompt": "x"})
    assert (early.status_code, early.json()["error"]["code"]) == (503, "engine_loading")
    running.process.send_signal(signal.SIGTERM)  # nobody waits for a load that nobody wants
    assert running.process.wait(5) == 0


def test_core_that_stands_still_is_started_again(start: Any) -> None:
    running = start(script={"stall_token": 4242}, options={"stall_s": 1})
    client = Client(running, {"prompt": [5, 6, 4242], "max_tokens": 9})
    client.join(20)
    assert client.status == 500  # nothing had been sent yet
    running.wait_for(Phase.READY)
    assert running.complete(prompt="again", max_tokens=5)["choices"][0]["text"] == "again"


def test_sockets_of_a_killed_instance_are_removed_by_the_next(start: Any) -> None:
    running = start()
    folder = (running.folder / "sockets").readlink()
    assert folder.is_dir()
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()
    again = subprocess.Popen(running.process.args, cwd=ROOT, stdout=running.log, stderr=running.log)
    try:
        running.eventually(lambda: not folder.exists(), 30)
    finally:
        again.terminate()
        assert again.wait(20) == 0
    assert not (running.folder / "sockets").is_symlink()


@pytest.mark.parametrize(
    ("spec", "code", "part"),
    [
        ({"role": Role.PREFILL}, "bad_spec", "role is prefill"),
        ({"options": {"drain_s": -1}}, "bad_spec", "drain_s"),
        ({"options": {"max_queued": "many"}}, "bad_spec", "max_queued"),
        ({"gguf": Path(__file__)}, "bad_magic", ""),
    ],
)
def test_spec_that_cannot_be_served_names_the_field(start: Any, spec: dict[str, Any], code: str, part: str) -> None:
    running = start(wait=False, **spec)
    assert running.process.wait(30) == 1
    state = running.state
    assert (state.phase, state.error_code) == (Phase.FAILED, code)
    assert part in state.reason


def test_full_queue_is_refused_with_retry_after(start: Any) -> None:
    running = start(script={"step_s": 0.05}, options={"max_queued": 2})
    clients = [Client(running, {**LONG, "max_tokens": 100}) for _ in range(2)]
    for client in clients:
        client.first.wait(10)
    refused = running.post("/v1/completions", {"model": NAME, "prompt": "x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"
    for client in clients:
        client.join(30)
        assert client.events[-1] == "[DONE]"


def test_time_outs_end_with_504_or_an_error_event(start: Any) -> None:
    running = start(script={"step_s": 0.05}, options={"request_timeout_s": 1})
    client = Client(running)
    client.ended_with_error("not finished within 1 s")
    whole = running.post("/v1/completions", {"model": NAME, **LONG})
    assert (whole.status_code, whole.json()["error"]["code"]) == (504, "timeout")
    assert running.metric('requests_finished_total{reason="timeout"}') == 2
    assert running.metric("kv_blocks_used") == 0
