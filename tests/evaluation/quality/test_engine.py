"""Suites against our own engine: perplexity as transformers has it, and two versions of one model side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.api import Phase
from tests.engines.instances import Running
from tests.engines.weights import DATA, smollm2
from tests.evaluation.quality.suites import run, task

pytestmark = [pytest.mark.slow, pytest.mark.weights]

WINDOWS = 1


@pytest.fixture(scope="module")
def versions() -> Iterator[tuple[Running, Running]]:
    """float32 and int8 of the demo model."""
    sizes: dict[str, Any] = {"max_model_len": 640, "max_num_seqs": 4, "kv_cache_bytes": 64 * 2**20}
    first = Running(smollm2(), **sizes, wait=False)
    second = Running(smollm2(), **(sizes | {"dtype": "int8"}), wait=False)
    try:
        for one in (first, second):
            one.wait_for(Phase.READY)
        yield first, second
    finally:
        first.stop()
        second.stop()


def endpoint(running: Running, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv(name, running.token)
    return {"url": running.url, "api_key_env": name}


def test_perplexity_and_consistency_of_the_demo_model(
    versions: tuple[Running, Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference's sums are transformers' of the same windows (tests/data/README.md)."""
    float32, int8 = versions
    base = {"data": "bundled:wikitext2", "window": 512, "windows": WINDOWS}
    spec = {
        "endpoint": endpoint(int8, "QUALITY_INT8", monkeypatch),
        "reference": endpoint(float32, "QUALITY_FLOAT32", monkeypatch),
        "concurrency": 1,
        "tasks": [
            {"kind": "consistency", "name": "int8", **base, "greedy_tokens": 4},
            {"kind": "rules", "name": "business", "data": "bundled:business_example", "rows": 1, "max_tokens": 8},
        ],
    }
    doc = run(spec, tmp_path)
    assert doc.state == "complete", doc.findings
    samples = [json.loads(line)["data"] for line in (tmp_path / "out/samples/int8.jsonl").read_text().splitlines()]
    known = json.loads((DATA / "smollm2_135m_wikitext2_ppl.json").read_text())["windows"][:WINDOWS]
    assert [each["reference_nll"] for each in samples] == pytest.approx([each["sum_nll"] for each in known], abs=0.05)
    figures = task(doc, "int8").figures
    assert figures["top1_match"].n == WINDOWS * 511
    found = {name: figure.value or 0.0 for name, figure in figures.items()}
    assert 0.85 < found["top1_match"] < 1
    assert 0 < found["kl_mean"] < found["kl_p99"] < 1
    assert 0.97 < found["perplexity_ratio"] < 1.05
    assert 0.5 < found["covered"] < 1
    business = [json.loads(line) for line in (tmp_path / "out/samples/business.jsonl").read_text().splitlines()]
    assert "Paris" in business[0]["answer"]
    assert business[0]["data"]["tokens"] > 0
