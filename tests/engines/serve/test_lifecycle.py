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
SHORT = {"prompt": list(range(100, 152)), "ignore_eos": True}  # four steps for eight of them


class Client(threading.Thread):
    """Streams one answer in the background and keeps what came."""

    def __init__(self, running: Running, body: dict[str, Any] = LONG, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self._running, self._body, self._headers = running, body, headers or {}
        self.status = 0
        self.broken = False  # the connection ended inside the answer
        self.events: list[Any] = []
        self.first = threading.Event()
        self.start()

    def run(self) -> None:
        url = self._running.url + "/v1/completions"
        body = {"model": NAME, "stream": True, **self._body}
        headers = {"Authorization": f"Bearer {self._running.token}", **self._headers}
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
    clients = [Client(running, {**SHORT, "max_tokens": 50}) for _ in range(2)]
    for client in clients:
        client.first.wait(10)
    refused = running.post("/v1/completions", {"model": NAME, "prompt": "x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert 1 <= int(refused.headers["retry-after"]) <= 300
    assert running.metric('requests_refused_total{reason="overloaded"}') == 1
    for client in clients:
        client.join(30)
        assert client.events[-1] == "[DONE]"


def test_a_team_over_its_share_is_refused_and_another_is_served(start: Any) -> None:
    running = start(script={"step_s": 0.05}, options={"max_queued": 5})
    team = {"X-Tursiops-Team": "greedy"}
    clients = [Client(running, {**SHORT, "max_tokens": 50}, team) for _ in range(4)]
    for client in clients:
        client.first.wait(10)
    body = {"model": NAME, "prompt": "x", "max_tokens": 2}
    refused = running.post("/v1/completions", body, headers=team)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "tenant_queue_full")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(refused.headers["retry-after"]) <= 300
    other = running.post("/v1/completions", body, headers={"X-Tursiops-Team": "modest"})
    assert other.status_code == 200
    assert running.metric('requests_refused_total{reason="tenant_queue_full"}') == 1
    for client in clients:
        client.join(30)
        assert client.events[-1] == "[DONE]"


def test_total_time_out_ends_a_stream_with_what_there_is_and_a_whole_answer_with_504(start: Any) -> None:
    running = start(script={"step_s": 0.05}, options={"request_timeout_s": 1})
    client = Client(running)
    client.join(20)
    assert client.events[-1] == "[DONE]"
    assert client.events[-2]["choices"][0]["finish_reason"] == "timeout"
    assert len(client.events) > 5
    whole = running.post("/v1/completions", {"model": NAME, **LONG})
    assert (whole.status_code, whole.json()["error"]["code"]) == (504, "total_timeout")
    assert whole.json()["error"]["message"] == "not finished within 1 s"
    assert running.metric('requests_finished_total{reason="timeout"}') == 2
    assert running.metric('timeouts_total{layer="total_timeout"}') == 2
    assert running.metric("kv_blocks_used") == 0


def test_a_request_sets_its_own_time_outs_by_layer(start: Any) -> None:
    running = start(script={"step_s": 0.1}, options={"request_timeout_s": 600, "max_queued": 100})
    slow = {"model": NAME, "prompt": list(range(100, 1100)), "max_tokens": 5}  # eight steps to the first token
    first = running.post("/v1/completions", {**slow, "timeout": {"first_token": 0.3}})
    assert (first.status_code, first.json()["error"]["code"]) == (504, "first_token_timeout")
    stream = running.post("/v1/completions", {**slow, "stream": True, "timeout": {"first_token": 0.3}})
    assert (stream.status_code, stream.json()["error"]["code"]) == (504, "first_token_timeout")  # nothing was streamed
    total = running.post("/v1/completions", {**slow, "timeout": 0.3})
    assert (total.status_code, total.json()["error"]["message"]) == (504, "not finished within 0.3 s")
    clients = [Client(running, {**SHORT, "max_tokens": 25}) for _ in range(8)]  # all rows
    for client in clients:
        client.first.wait(10)
    queue = running.post("/v1/completions", {"model": NAME, "prompt": "x", "timeout": {"queue": 0.2}})
    assert (queue.status_code, queue.json()["error"]["code"]) == (504, "queue_timeout")
    wrong = running.post("/v1/completions", {"model": NAME, "prompt": "x", "timeout": {"first": 1}})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "timeout.first")
    for client in clients:
        client.join(30)
        assert client.events[-1] == "[DONE]"
    assert running.metric('timeouts_total{layer="first_token_timeout"}') == 2
    assert running.metric('timeouts_total{layer="queue_timeout"}') == 1
    assert running.metric("request_queue_seconds_count") == 11
