"""An engine started for an evaluation: ready inside, gone after, and its reason where it does not start."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from evaluation.quality.instance import Instance
from tests.processes import alive
from tests.tiny_models import write_gguf, write_safetensors

pytestmark = pytest.mark.slow


def answer(running: Instance) -> str:
    body = json.dumps({"model": running.name, "prompt": [65, 66], "max_tokens": 3, "temperature": 0}).encode()
    headers = {"Authorization": f"Bearer {running.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{running.url}/v1/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["finish_reason"])


def test_ready_inside_and_gone_after(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path / "model")
    with Instance(folder, "tiny", dtype="float32", device="cpu", max_model_len=64, kv_cache_bytes=2**20) as running:
        assert answer(running) in ("length", "stop")
        pid = running.pid
        assert alive(pid)
    assert not alive(pid)


def test_the_engines_reason_is_told(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "tiny.gguf", without="blk.0.ffn_down.weight")
    with pytest.raises(RuntimeError, match=r"ffn_down"), Instance(model, "tiny", dtype="float32", device="cpu"):
        pytest.fail("it started")
