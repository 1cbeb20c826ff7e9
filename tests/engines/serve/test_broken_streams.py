"""A stream that breaks ends with an error event in its API's own shape, and nothing that looks like an end after it."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import pytest

from tests.engines.instances import NAME, Running
from tests.engines.weights import smollm2

pytestmark = pytest.mark.slow

TURN = [{"role": "user", "content": "word " * 60}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TURN, "n": 2},
    "/v1/messages": {"messages": TURN, "max_tokens": 60},
    "/v1/responses": {"input": TURN},
}


def test_the_core_dies_in_the_middle_of_a_stream() -> None:
    running = Running(smollm2(), module="tests.engines.scripted_instance", script={"step_s": 0.05})
    begun = threading.Barrier(len(BODIES) + 1)
    frames: dict[str, list[str]] = {path: [] for path in BODIES}

    def read(path: str) -> None:
        body = {"model": NAME, "stream": True, "ignore_eos": True, **BODIES[path]}
        with running.client.stream("POST", running.url + path, json=body) as response:
            lines = response.iter_lines()
            frames[path].append(next(lines))
            begun.wait(20)
            frames[path] += [line for line in lines if line]

    threads = [threading.Thread(target=read, args=(path,)) for path in BODIES]
    try:
        for thread in threads:
            thread.start()
        begun.wait(20)
        running.core.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(20)
        last = {path: json.loads(lines[-1].removeprefix("data: ")) for path, lines in frames.items()}
        assert last["/v1/chat/completions"]["error"]["code"] == "engine_error"
        assert last["/v1/messages"]["type"] == "error"
        assert last["/v1/messages"]["error"]["type"] == "api_error"
        assert frames["/v1/messages"][-2] == "event: error"
        assert last["/v1/responses"]["type"] == "error"
        assert last["/v1/responses"]["code"] == "engine_error"
        assert last["/v1/responses"]["sequence_number"] > 1
        for lines in frames.values():
            assert not any("[DONE]" in line or "message_stop" in line or "completed" in line for line in lines)
    finally:
        running.stop()
