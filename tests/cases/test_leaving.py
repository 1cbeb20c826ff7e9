"""Cases C, E7, F5 and J2 of cases/engine.md (docs/cases.md) together: a real model in a cache too small for its load,
clients of every kind that leave at any moment. Whoever stays gets what they would have got alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from evaluation.quality import fuzz_model
from tests.engines.instances import NAME, Running, read_events

TEXT = "the quick brown fox"
TURN = {"messages": [{"role": "user", "content": TEXT}]}
TOOLS = [{"type": "function", "function": {"name": "name", "parameters": {"type": "object"}}}]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 60}),
    ("/v1/completions", {"prompt": [TEXT, "a", TEXT * 4], "n": 3, "max_tokens": 20}),
    ("/v1/completions", {"prompt": TEXT * 8, "max_tokens": 8, "echo": True, "logprobs": 3}),
    ("/v1/completions", {"prompt": TEXT, "use_beam_search": True, "beam_width": 4, "max_tokens": 12}),
    ("/v1/completions", {"prompt": TEXT, "guided_regex": "[a-f]{40}", "max_tokens": 60}),
    ("/v1/chat/completions", {**TURN, "max_tokens": 60, "stop": ["e", "zz"], "min_tokens": 9}),
    ("/v1/chat/completions", {**TURN, "tools": TOOLS, "tool_choice": "required", "max_tokens": 60}),
    ("/v1/chat/completions", {**TURN, "max_tokens": 40, "presence_penalty": 1.5, "top_k": 7, "seed": 3}),
    ("/v1/responses", {"input": TEXT, "max_output_tokens": 30}),
    ("/v1/messages", {**TURN, "max_tokens": 30}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 200, "timeout": {"total": 0.02}}),
    ("/v1/completions", {"prompt": TEXT, "stop_token_ids": [10**6]}),
]
PROBE = {"prompt": TEXT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("leaving") / "model"
    fuzz_model.write(folder)
    block = 2 * fuzz_model.KV_HEADS * fuzz_model.HEAD_DIM * 4 * 16  # bytes of 16 tokens
    one = Running(Path(folder), max_num_seqs=12, kv_cache_bytes=19 * block, options={"max_queued": 200})
    try:
        yield one
    finally:
        one.stop()


def ask(running: Running, seed: int) -> int:
    """One client. Some read all, some leave after a few events, some before the first."""
    chosen = random.Random(seed)
    path, body = chosen.choice(ASKED)
    stays, events = chosen.random() < 0.4, chosen.choice((0, 0, 1, 2, 5))
    asked = {"model": NAME, **body, "stream": chosen.random() < 0.8, "temperature": chosen.choice((0, 1))}
    headers = {"Authorization": f"Bearer {running.token}"}
    try:
        with httpx.stream(
            "POST", running.url + path, json=asked, headers=headers, timeout=60 if stays else chosen.choice((0.05, 60))
        ) as response:
            for number, _ in enumerate(read_events(response)):
                if not stays and number >= events:
                    break
            return response.status_code
    except httpx.ReadTimeout:
        return 0  # left


@pytest.mark.nightly
def test_c_e7_f5_j2_clients_that_leave_at_any_moment(running: Running) -> None:
    core = running.core.pid
    alone = running.complete(**PROBE)["choices"][0]["token_ids"]
    with ThreadPoolExecutor(8) as clients:
        statuses = set(clients.map(lambda seed: ask(running, seed), range(120)))
        assert running.complete(**PROBE)["choices"][0]["token_ids"] == alone
    assert statuses <= {0, 200, 400, 504}, statuses
    assert 200 in statuses
    for name in ("requests_running", "requests_waiting"):
        running.eventually(lambda name=name: running.metric(name) == 0, 10)
    assert running.metric("kv_blocks_used") == 0
    assert running.metric("preemptions_total") > 0, "the cache was large enough: the test says less than it should"
    assert running.core.pid == core
    log = running.run_dir.log_path.read_text()
    assert "Traceback" not in log
    assert "KV pool rebuilt" not in log
    assert running.complete(**PROBE)["choices"][0]["token_ids"] == alone
    finished = sum(running.metric(f'requests_finished_total{{reason="{reason}"}}') for reason in REASONS)
    assert finished == running.metric("request_e2e_seconds_count") > 120


REASONS = ("stop", "length", "abort", "timeout", "error", "repetition")
