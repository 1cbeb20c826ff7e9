"""Strict mode on a GPU: the same tokens and the same bits in any company, and what that costs.

    python -m evaluation.benchmarks.strict_gpu MODEL.gguf [--requests 200] [--tokens 16] [--out DIR]

Requests of 5 to 300 random ids, greedy, filtered, penalised and biased ones mixed, with log-probabilities, first each
alone; then 64 at once, twice with a prefix cache, with rows preempted at every second step, with guesses checked, and
without decode graphs. A row counts what differs from the answers alone, to the last bit of a log-probability.
Cost: decode of 1 and 32 rows and a prompt of 2,048 tokens, beside the same model without strict mode.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engines.native.config import EngineConfig
from engines.native.draft import Step
from engines.native.offline import Generated, Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from evaluation.benchmarks.report import ROOT, Row, table, write

Bits = list[tuple[list[int], list[float]]]


def requests(number: int, tokens: int, vocab: int) -> tuple[list[list[int]], list[SamplingParams]]:
    chooser = random.Random(7)
    prompts: list[list[int]] = []
    params = []
    for index in range(number):
        own = [chooser.randrange(vocab) for _ in range(chooser.choice((5, 17, 64, 130, 300)))]
        prompts.append([*prompts[-1][:96], *own[:40]] if index % 3 == 2 else own)
        one = SamplingParams(temperature=0, max_tokens=tokens, logprobs=0, seed=index)
        kinds: dict[int, dict[str, Any]] = {
            1: {"temperature": 0.9, "top_p": 0.9, "top_k": index % 5 * 20},
            2: {"frequency_penalty": 0.4, "repetition_penalty": 1.1},
            3: {"temperature": 1.2, "logit_bias": {index: 3.0}},
        }
        params.append(replace(one, **kinds.get(index % 5, {})))
    return prompts, params


def bits(found: list[Generated]) -> Bits:
    return [(one.token_ids, one.logprobs) for one in found]


def preempt(engine: Offline) -> None:
    """Every second step somebody loses row and blocks, and is computed again."""
    scheduler, steps = engine.scheduler, count(1)
    plan = scheduler.plan

    def preempting(now: float) -> Step | None:
        if next(steps) % 2 == 0 and scheduler.running:
            scheduler.settle(scheduler.running[len(scheduler.running) // 2], None)
        return plan(now)

    scheduler.plan = preempting  # type: ignore[method-assign] # of this engine alone


@contextmanager
def plainly(runner: ModelRunner) -> Iterator[None]:
    """Without decode graphs."""
    graphs, depth = runner._graphs, runner.depth
    runner._graphs, runner.depth = None, 1
    try:
        yield
    finally:
        runner._graphs, runner.depth = graphs, depth


def checks(config: EngineConfig, runner: ModelRunner, number: int, tokens: int) -> list[Row]:
    prompts, params = requests(number, tokens, runner.vocab_size)
    plain = replace(config, prefix_cache=False, speculation="off")
    engine = Offline(plain, runner)
    alone = bits([one for pair in zip(prompts, params, strict=True) for one in engine.generate([pair[0]], [pair[1]])])
    found: dict[str, Bits] = {"64 at once": bits(Offline(plain, runner).generate(prompts, params))}
    cached = Offline(replace(config, speculation="off"), runner)
    for turn in ("first", "again"):
        found[f"with a prefix cache, {turn}"] = bits(cached.generate(prompts, params))
    engine = Offline(plain, runner)
    preempt(engine)
    found["preempted"] = bits(engine.generate(prompts, params))
    found["with guesses"] = bits(Offline(replace(config, speculation="ngram"), runner).generate(prompts, params))
    if runner._graphs is not None:
        with plainly(runner):
            found["without graphs"] = bits(Offline(plain, runner).generate(prompts, params))
    rows = []
    for name, answers in found.items():
        wrong = sum(one != other for one, other in zip(alone, answers, strict=True))
        label = f"{number} requests, {name}"
        rows.append(Row(label, "answers unlike those alone", float(wrong), "answers", "lower", target=0))
    rows.append(Row(f"{number} requests, preempted", "preemptions", float(engine.scheduler.preemptions), "", "higher"))
    return rows


def cost(config: EngineConfig, runner: ModelRunner) -> dict[str, float]:
    """Milliseconds of a decode step and of a prompt, by case."""
    chooser = random.Random(1)
    plain = replace(config, prefix_cache=False, speculation="off")

    def seconds(rows: int, length: int, tokens: int) -> float:
        prompts = [[chooser.randrange(runner.vocab_size) for _ in range(length)] for _ in range(rows)]
        begun = time.perf_counter()
        Offline(plain, runner).generate(prompts, SamplingParams(temperature=0, max_tokens=tokens))
        return time.perf_counter() - begun

    found = {}
    for rows in (1, 32):
        seconds(rows, 64, 130)  # graphs are captured
        found[f"decode, {rows} rows"] = (seconds(rows, 64, 130) - seconds(rows, 64, 2)) / 128 * 1e3
    longest = min(2048, runner.max_model_len - 2)
    found[f"prompt of {longest}"] = median(seconds(1, longest, 1) for _ in range(4)) * 1e3
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("strict_gpu needs a GPU; on a CPU: pytest tests/engines/test_strict.py -m nightly")
        return 2
    config = EngineConfig(
        format="gguf", paths={options.model.name: str(options.model)}, device="cuda", dtype=options.dtype,
        max_model_len=4096, max_num_seqs=64, max_batched_tokens=2048, kv_cache_bytes=4 << 30, strict=True,
    )  # fmt: skip
    runner = build_runner(config)  # which tries the promise out
    rows = checks(config, runner, options.requests, options.tokens)
    strict = cost(config, runner)
    del runner
    torch.cuda.empty_cache()
    ordinary = replace(config, strict=False)
    for name, free in cost(ordinary, build_runner(ordinary)).items():
        rows.append(Row(name, "time", strict[name], "ms", "lower", peer="not strict", peer_value=free))
    print(table(rows))
    print(write("strict", "h200", torch.cuda.get_device_name(), rows, options.out, ("torch", "triton")))
    return int(any(row.target == 0 and row.value for row in rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
