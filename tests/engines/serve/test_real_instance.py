"""The whole engine with the real model, as a node starts it and a client meets it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI

from engines.api import Phase
from engines.native.serve.core_process import QUIET
from tests.engines.instances import NAME, ROOT, Running, read_events
from tests.engines.weights import smollm2

pytestmark = [pytest.mark.slow, pytest.mark.weights]

QUESTION: Any = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    disk = {"kv_disk_path": str(tmp_path_factory.mktemp("blocks")), "kv_disk_bytes": 2**30}
    running = Running(smollm2(), max_model_len=512, max_num_seqs=4, kv_cache_bytes=48 * 2**20, options=disk)
    try:
        yield running
    finally:
        assert running.stop() == 0
        assert running.wait_for(Phase.STOPPED)


def test_real_answer_streamed_and_whole_twice_the_same_e4(real: Running) -> None:
    client = OpenAI(base_url=f"{real.url}/v1", api_key=real.token, max_retries=0)
    asked: dict[str, Any] = {"model": NAME, "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    usage = chunks[-1].usage
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    details = usage.prompt_tokens_details
    assert details is not None
    assert details.cached_tokens == usage.prompt_tokens // 16 * 16  # the second time the prompt lay in the cache


def test_the_core_loads_beside_the_api_process(real: Running) -> None:
    """Its torch takes seconds; so it is started before what the API process needs is imported."""
    state = real.state
    assert state is not None
    assert real.core.create_time() < state.started_at  # taken when those imports were done


def test_one_warning_of_torch_stays_out_of_the_log_and_no_other(real: Running) -> None:
    assert list(QUIET) == real.core.cmdline()[1:3]
    code = """
import warnings, torch
weight, one, zero = torch.ones(2, 2), torch.ones(2), torch.zeros(2, dtype=torch.int64)
torch.quantize_per_channel(weight, one, zero, 0, torch.qint8)
warnings.warn("another word of torch")
"""
    done = subprocess.run([sys.executable, *QUIET, "-c", code], capture_output=True, text=True, check=True)
    assert "quantize" not in done.stderr
    assert "another word of torch" in done.stderr


def test_a_spec_that_cannot_be_served_leaves_no_core(tmp_path: Path) -> None:
    """The core loads already when the API process finds the fault."""
    empty = tmp_path / "model.gguf"
    empty.write_bytes(b"GGUF")
    running = Running(empty, wait=False)
    try:
        assert running.process.wait(30) != 0
        state = running.state
        assert state is not None
        assert (state.phase, state.error_code) == (Phase.FAILED, "bad_magic")
        assert not processes_of(running)
        assert not (running.folder / "sockets").is_symlink()
        (running.folder / "spec.json").write_text("{")
        argv = [sys.executable, "-m", "engines.native.serve", "--run-dir", str(running.folder)]
        said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        assert said.returncode == 2
        assert "spec.json" in said.stderr.splitlines()[-1]
        assert not processes_of(running)
    finally:
        running.stop()


def test_state_names_what_is_in_effect(real: Running) -> None:
    state = real.state
    assert state is not None
    assert state.pid == real.process.pid
    assert state.facts["dtype"] == "float32"
    assert state.facts["max_model_len"] == 512
    assert real.metric("kv_blocks_total") == state.facts["kv_blocks"]


def test_logprobs_of_a_prompt_are_those_of_scoring_it(real: Running) -> None:
    tokens = real.post("/tokenize", {"prompt": "The capital of France is Paris"}).json()["tokens"]
    scored = real.complete(prompt=tokens, max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
    assert scored["token_logprobs"][0] is None
    assert len(scored["token_logprobs"]) == len(tokens)
    drawn = real.complete(prompt=tokens[:-1], max_tokens=1, temperature=0, logprobs=5)["choices"][0]["logprobs"]
    assert scored["tokens"][-1] in drawn["top_logprobs"][0]
    assert drawn["top_logprobs"][0][" Paris"] == pytest.approx(scored["token_logprobs"][-1], abs=1e-3)


def test_seed_repeats_a_sampled_answer_whatever_runs_beside_it(real: Running) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0.9, "seed": 11}
    alone = real.complete(**body)["choices"][0]["text"]
    beside = real.complete(**{**body, "prompt": ["Once upon a time", "A recipe for", "In 1969,"]})["choices"]
    assert beside[0]["text"] == alone
    assert real.complete(**{**body, "seed": 12})["choices"][0]["text"] != alone


def test_rapid_cancel_and_resubmit_of_overlapping_prompts_is_stable_e9(real: Running) -> None:
    """Blocks of a cancelled request are given away while a step may still write into them."""
    trunk = real.post("/tokenize", {"prompt": "Once upon a time there was a small boat on a wide sea. " * 8}).json()[
        "tokens"
    ]
    ends = [" It was", " The captain", " One day"]
    prompts = [[*trunk, *real.post("/tokenize", {"prompt": end}).json()["tokens"]] for end in ends]
    body: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
    wanted = [real.complete(prompt=prompt, **body)["choices"][0]["text"] for prompt in prompts]
    assert len(set(wanted)) == len(ends)

    def cancelled_and_asked_again(index: int) -> str:
        for kept in range(3):  # before its first token, after one, after two
            asked = {"model": NAME, "stream": True, "prompt": prompts[index], **body, "max_tokens": 200}
            with real.client.stream("POST", real.url + "/v1/completions", json=asked) as response:
                events = read_events(response)
                for _ in range(kept):
                    next(events)
        text: str = real.complete(prompt=prompts[index], **body)["choices"][0]["text"]
        return text

    with ThreadPoolExecutor(len(ends)) as threads:
        for _ in range(2):
            assert list(threads.map(cancelled_and_asked_again, range(len(ends)))) == wanted
    real.eventually(lambda: real.metric("requests_running") == 0)
    assert real.metric('requests_finished_total{reason="abort"}') >= 2 * len(ends) * 2


def test_a_killed_core_finds_its_prefixes_on_the_disk(real: Running) -> None:
    """Last in this file: what the others asked lies there, too."""
    asked: dict[str, Any] = {"prompt": "The quick brown fox jumps over the lazy dog. " * 20, "max_tokens": 6}
    first = real.complete(**asked, temperature=0)
    full = first["usage"]["prompt_tokens"] // 16 - (first["usage"]["prompt_tokens"] % 16 == 0)
    real.eventually(lambda: real.metric('kv_disk_bytes_total{direction="written"}') >= full * 16 * 46_080, 20)
    core = real.core
    core.kill()
    real.eventually(lambda: real.metric("core_restarts_total") == 1, 60)
    real.eventually(lambda: real.client.get(real.url + "/health").status_code == 200, 60)
    assert real.core.pid != core.pid
    assert real.complete(**asked, temperature=0)["choices"][0]["text"] == first["choices"][0]["text"]
    state = real.state
    assert state is not None
    assert state.facts["kv_disk_blocks_found"] >= full
    assert real.metric("kv_disk_writing") == 1
    if state.facts["kv_disk_min_tokens"] <= full * 16:  # a busy machine may have measured otherwise, or read late
        names = [f'kv_disk_lookups_total{{result="{result}"}}' for result in ("hits", "late")]
        real.eventually(lambda: sum(map(real.metric, names)) >= full)


def processes_of(running: Running) -> list[psutil.Process]:
    """`process_iter` leaves out what a process that ends meanwhile does not tell."""
    each = psutil.process_iter(["cmdline"])
    return [process for process in each if str(running.folder) in (process.info["cmdline"] or [])]
