"""Cases F1, F4, E7 and F9 of cases/engine.md (docs/cases.md) as clients see them: a pool too small for what runs, over
HTTP, with two steps in flight."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.engines.instances import Running
from tests.engines.serve.conftest import SCRIPTED
from tests.engines.weights import smollm2

TOKENS = 150


class Reader(threading.Thread):
    """Streams one answer and keeps its token ids."""

    def __init__(self, running: Running, prompt: list[int]) -> None:
        super().__init__()
        self.running, self.prompt = running, prompt
        self.got: list[int] = []
        self.finish = ""
        self.usage: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        body = {
            "prompt": self.prompt, "max_tokens": len(self.prompt), "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        for event in self.running.events("/v1/completions", body)[:-1]:
            self.usage = event["usage"] or self.usage
            for choice in event["choices"]:
                self.got += choice["token_ids"]
                self.finish = choice["finish_reason"] or self.finish


@pytest.mark.slow
def test_f1_f4_streams_go_on_exactly_when_their_requests_lose_their_memory() -> None:
    running = Running(smollm2(), module=SCRIPTED, script={"step_s": 0.001, "blocks": 42, "depth": 2})
    try:
        for _ in range(8):
            running.complete(prompt=[5, 6, 7], max_tokens=1)  # outputs look short, so all eight are let in
        prompts = [[1000 + 200 * number + place for place in range(TOKENS)] for number in range(8)]
        readers = [Reader(running, prompt) for prompt in prompts]
        for reader in readers:
            reader.join(60)
        assert running.metric("preemptions_total") > 0
        for reader in readers:
            assert reader.got == reader.prompt, "no token lost, none twice, none of another"
            assert reader.finish == "length"
            assert reader.usage["completion_tokens"] == TOKENS
        running.eventually(lambda: running.metric("requests_running") == 0)
        assert running.metric("kv_blocks_used") == 0
        assert running.metric('requests_finished_total{reason="length"}') == 16
        assert "KV pool rebuilt" not in running.run_dir.log_path.read_text()
    finally:
        running.stop()
