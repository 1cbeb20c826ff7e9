"""Strict mode: the ids of 300 prompts of real data sets are the same with and without speculation, alone and in
batches. 30 of them here, all in the nightly tier."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import build_runner
from engines.native.speculation.proposer import factory
from tests.engines.speculation.test_losslessness import every_guess_is_tried
from tests.engines.weights import smollm2

pytestmark = [pytest.mark.speculation, pytest.mark.weights, pytest.mark.slow]
DATA = Path(__file__).parents[4] / "shared" / "data"
KEPT = Path(__file__).parents[2] / "data" / "speculation_prompts.json"
"""Of the 30: the first 24 tokens of their texts, so that the data sets need not be there."""


def texts(per_set: int) -> list[str]:
    questions = [json.loads(line) for line in (DATA / "spec_bench" / "question.jsonl").read_text().splitlines()]
    chosen = [one["turns"][0] for one in questions[:: max(1, len(questions) // (per_set * 2))]][: per_set * 2]
    with gzip.open(DATA / "human_eval" / "HumanEval.jsonl.gz", "rt") as file:
        chosen += [json.loads(line)["prompt"] for line in file][:per_set]
    for path in (DATA / "gsm8k" / "test.jsonl", DATA / "mt_bench" / "question.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        chosen += [one.get("question") or one["turns"][0] for one in lines][:per_set]
    return chosen


def compared(prompts: list[list[int]], tokens: int, groups: int, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """groups: how many run side by side with guesses; alone: whether none do without."""
    path = smollm2()
    config = EngineConfig(
        format="gguf", paths={path.name: str(path)}, dtype="float32", strict=True, speculation="off", max_num_seqs=32,
        max_model_len=1024,
    )  # fmt: skip
    runner = build_runner(config)
    every_guess_is_tried(monkeypatch)
    monkeypatch.setattr("engines.native.speculation.setup.prior_of", lambda _: [(1, 1.0), (32, 1.1), (256, 4.0)])
    greedy = SamplingParams(temperature=0, max_tokens=tokens)
    plain = Offline(config, runner)
    single = [[prompt] for prompt in prompts] if alone else [prompts]
    wanted = [answer.token_ids for group in single for answer in plain.generate(group, greedy)]
    engine = Offline(config, runner, {"lookahead": factory("lookahead"), "ngram": factory("ngram")})
    found = []
    for first in range(0, len(prompts), groups):
        found += [answer.token_ids for answer in engine.generate(prompts[first : first + groups], greedy)]
    assert engine.scheduler.speculator is not None
    accepted = engine.scheduler.speculator.counts.accepted
    different = [place for place, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other]
    assert not different
    assert accepted > 5


def test_30_prompts_say_the_same_g1(monkeypatch):
    compared(json.loads(KEPT.read_text()), 16, 30, False, monkeypatch)


@pytest.mark.nightly
def test_300_prompts_say_the_same(monkeypatch):
    if not DATA.is_dir():
        pytest.skip(f"the data sets are not at {DATA}")
    path = smollm2()
    tokenizer, _ = load_tokenizer(open_model("gguf", {path.name: str(path)}))
    prompts = [tokenizer.encode(text).ids[:400] for text in texts(60)]
    assert len(prompts) == 300
    compared(prompts, 48, 32, True, monkeypatch)


def write_kept() -> None:
    """python -c 'from tests.engines.speculation.test_prompts import write_kept; write_kept()'"""
    path = smollm2()
    tokenizer, _ = load_tokenizer(open_model("gguf", {path.name: str(path)}))
    found = [tokenizer.encode(text).ids[:24] for text in texts(6)]
    KEPT.write_text(json.dumps(found) + "\n")
