"""What verifying guesses costs on a GPU, and what it brings where acceptance is given.

    python -m evaluation.benchmarks.speculation_gpu [--only attention steps engine checks] [--out FOLDER]

attention  8 queries of a tree beside a decode, at the rows of shared/BENCHMARKS.md
steps      Llama-3.1-8B's shape, random weights: a pass with drafts beside a plain one and the floor, by batch and
           drafts; the ceiling that follows, (1 + drafts) / cost ratio; what the budget makes of it
engine     end to end with a replayed continuation of which a given share holds: TPOT = (T(256) − T(1)) / 255
checks     kernels against plain torch, graphs against the host's way, engines with and without guesses; last, as it
           takes the longest: what the other parts time, they check themselves

Floor: the matrix products through cuBLAS at M = batch × (1 + drafts), measured, and the bytes of the KV cache at
4.2 TB/s. Head and embedding are set so that a token's successor is drawn: what is said is known, whatever the last
bits of a product are; what a step computes is as dear as ever. Each part is written as it comes.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from engines.native.config import EngineConfig
from engines.native.layers.embedding import TableEmbedding
from engines.native.layers.linear import DenseLinear
from engines.native.offline import Offline
from engines.native.ops.triton_ops import TritonOps
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.speculation.budget import StepCosts, choose
from engines.native.step import Drafts, StepPlan
from engines.native.verify_graph import VerifyGraphs
from evaluation.benchmarks import report, shapes, speculation_checks
from evaluation.benchmarks.engine_cases import BATCHED, LENGTH
from evaluation.benchmarks.engine_gpu import prompts
from evaluation.benchmarks.gpu_timing import microseconds
from evaluation.benchmarks.kernel_cases import paged
from evaluation.benchmarks.kernel_checks import attention_reference
from evaluation.benchmarks.kernel_times import BF16, FA3_DECODE, LLAMA, PAGE, attend
from evaluation.benchmarks.random_model import TINY, random_runner
from evaluation.benchmarks.replay import Script, replaying
from evaluation.benchmarks.report import Row

PARTS = ("attention", "steps", "engine", "checks")
PRODUCTS = {1: 4.03, 8: 4.12, 16: 4.19, 32: 4.29, 64: 4.41, 128: 4.71, 256: 6.26, 512: 10.6, 8192: 168.0}
"""Tokens of a pass → ms of Llama-3.1-8B's matrix products through cuBLAS, head included (shared/BENCHMARKS.md)."""
BANDWIDTH = 4.2e12
KEYS = 32 * 2 * 8 * 128 * 2  # bytes of the KV cache for a token
BATCHES, DRAFTS = (1, 8, 32, 64, 128), (1, 3, 7, 15, 31)
CONTEXT = 512
RATIO = {(1, 7): 1.10, (32, 7): 1.40}
"""(batch, drafts) → the most that a pass with drafts may take, in plain ones."""
ABOVE_FLOOR = 1.06
EFFECTIVE = {1: 0.9, 32: 1.2}
"""Batch → ms a token where 4.86 of 5 guesses hold; vLLM 0.26.0: 1.50 and 2.38."""
VLLM = {1: 1.50, 32: 2.38}
HIT = 0.9907
"""Of a guess where those before it hold: 4.86 of 5 on average."""
HITS = (0.6, 0.8, 0.95)
ROUNDS = 7

Keep = Callable[..., None]


def runner_of(tiny: bool) -> tuple[EngineConfig, ModelRunner]:
    if tiny:
        config = EngineConfig(
            format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=48, max_num_seqs=2,
            max_batched_tokens=32, prefix_cache=False, ops="triton", speculation="off", kv_cache_bytes=1 << 20,
        )  # fmt: skip
        made = random_runner(replace(TINY, layers=1, windows=(0,), vocab=64), config, seed=1)
    else:
        config = EngineConfig(
            format="safetensors", paths={}, device="cuda", dtype="bfloat16", max_model_len=LENGTH, max_num_seqs=128,
            max_batched_tokens=BATCHED, prefix_cache=False, speculation="off", kv_cache_bytes=60 << 30,
        )  # fmt: skip
        made = random_runner(shapes.shape("llama8b"), config, seed=1)
    weights = made.model.weights
    assert isinstance(weights.embed, TableEmbedding)
    weights.embed.table.mul_(4.0)  # so that a token outweighs what the layers add to it
    weights.head = DenseLinear(weights.embed.table.roll(1, 0), None)
    return config, made


def verify_graphs(made: ModelRunner) -> VerifyGraphs:
    if made._verify_graphs is not None:
        return made._verify_graphs
    assert isinstance(made.sampler, TritonSampler)
    return VerifyGraphs(made.model, made.rows, made.sampler, lambda compute, what: None)


def attention() -> Iterator[Row]:
    device, ops, chooser = torch.device("cuda"), TritonOps(), np.random.default_rng(1)
    for batch, context in FA3_DECODE:
        case = paged([1] * batch, [context] * batch, LLAMA, PAGE, BF16, device)
        plain = microseconds(partial(attend, case, ops))
        for tokens in (2, 4, 8, 16, 32) if (batch, context) in ((1, 8192), (64, 1024)) else (8,):
            case.q = torch.randn(batch * tokens, LLAMA.query, LLAMA.dim, device=device).to(BF16)
            case.batch.cu_query = torch.arange(0, tokens * batch + 1, tokens, dtype=torch.int32, device=device)
            case.batch.max_query, case.batch.shared = tokens, {}
            case.batch.ancestors = speculation_checks.words_of(chooser, [tokens] * batch, device)
            out = attend(case, ops)
            wanted = attention_reference(case, range(1), LLAMA.dim**-0.5, 0)
            error = float((out[:tokens].double() - wanted).norm() / wanted.norm())
            name = f"tree of {tokens} tokens {batch} × {context}"
            yield Row(name, "relative error", error, "", "lower", target=1e-2)
            taken = microseconds(partial(attend, case, ops))
            limit = None if tokens != 8 else 1.15 if context >= 8192 else 1.5
            yield Row(name, "time ÷ decode", taken / plain, "×", "lower", target=limit)
            yield Row(name, "time", taken, "µs", "lower", "decode, ours", plain)
        del case


def products_ms(tokens: int) -> float:
    """Straight lines between what was measured."""
    sizes = sorted(PRODUCTS)
    at = min(max(bisect_left(sizes, tokens), 1), len(sizes) - 1)
    a, b = sizes[at - 1], sizes[at]
    return PRODUCTS[a] + (PRODUCTS[b] - PRODUCTS[a]) * (tokens - a) / (b - a)


def step_ms(launch: Callable[[], Any]) -> float:
    """Of one of ROUNDS passes that follow each other; the median of some such runs."""
    cuda, taken = torch.cuda.is_available(), []
    count = ROUNDS if cuda else 1
    for _ in range(2 if cuda else 0):  # compiles, and captures
        launch().wait()
    for _ in range(3 if cuda else 1):
        if cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            last = launch()
        last.wait()
        taken.append((time.perf_counter() - begun) / count * 1e3)
    return median(taken)


def steps(made: ModelRunner, tiny: bool) -> Iterator[Row]:
    """Rows with `CONTEXT` random keys; guesses that all hold, in one chain, as is most likely; then a fork whose second
    way holds, so that all keys move."""
    batches, widths, context = (BATCHES, DRAFTS, CONTEXT) if not tiny else ((2,), (1, 3), 9)
    graphs, size, most = verify_graphs(made), made.block_size, 1 + context + 32
    each = -(-most // size)
    for keys, values in made.model.kv:
        for pool in (keys, values):
            assert isinstance(pool, torch.Tensor)
            pool[1 : 1 + each * max(batches)].normal_()
    costs = StepCosts([(1, 1.0)])  # until each is seen
    for batch in batches:
        rows = np.arange(batch, dtype=np.int32)
        blocks = [(row, 0, list(range(1 + row * each, 1 + (row + 1) * each))) for row in range(batch)]
        for row in range(batch):
            made.add(row, list(range(context + 1)), SamplingParams(temperature=0), context + 1)
        start, one = np.full(batch, context, np.int32), np.ones(batch, np.int32)
        plan = StepPlan(rows, start, one, sample=one > 0, new_blocks=blocks)
        made.launch(plan).wait()
        plan.new_blocks = []
        plain = step_ms(partial(made.launch, plan))
        floor = products_ms(batch) + batch * context * KEYS / BANDWIDTH * 1e3
        yield Row(f"plain step {batch} × {context}", "time", plain, "ms", "lower", floor=None if tiny else floor)
        costs.saw_plain(batch, plain / 1e3)
        for width in widths:
            taken = _verify_ms(graphs, rows, start, _chain(batch, context, width))
            costs.saw_verify(batch, batch * (width + 1), taken / 1e3)
            case = f"verify {batch} × {width} drafts"
            floor = products_ms(batch * (width + 1)) + batch * (context + width) * KEYS / BANDWIDTH * 1e3
            yield Row(case, "time", taken, "ms", "lower", floor=None if tiny else floor,
                      target=None if tiny else ABOVE_FLOOR * floor)  # fmt: skip
            yield Row(case, "÷ plain step", taken / plain, "×", "lower", target=RATIO.get((batch, width)))
            yield Row(case, "ceiling", (1 + width) * plain / taken, "×", "higher")
        fork = _verify_ms(graphs, rows, start, _fork(batch, context, widths[1]))
        yield Row(f"verify {batch} × {widths[1]} drafts, all keys move", "time", fork, "ms", "lower")
        for hit in HITS:
            survival = (hit ** np.arange(1, 32, dtype=np.float32)).tolist()
            choice = choose([survival] * batch, batch, 31 * batch, costs, padded=True)
            name = f"budget at batch {batch}, {hit} of the guesses hold"
            yield Row(name, "drafts", choice.width, "a row", "higher")
            yield Row(name, "speed-up", choice.gain, "×", "higher")


def _chain(batch: int, context: int, width: int) -> Drafts:
    """The successors of the last token, number `context`."""
    tokens = np.tile(np.arange(context + 1, context + 1 + width, dtype=np.int32), (batch, 1))
    parents = np.tile(np.arange(width, dtype=np.int32), (batch, 1))
    return Drafts(tokens, parents, np.full(batch, width, np.int32), chains=True)


def _fork(batch: int, context: int, width: int) -> Drafts:
    made = _chain(batch, context, width)
    made.tokens[:, 0], made.parents[:, 1] = 3, 0
    made.tokens[:, 1:] -= 1
    return replace(made, chains=False)


def _verify_ms(graphs: VerifyGraphs, rows: Any, start: Any, drafts: Drafts) -> float:
    """Raises RuntimeError where what is said is not what is known."""
    plan = StepPlan(rows, start, 1 + drafts.nodes, sample=start >= 0, drafts=drafts)
    with torch.inference_mode():
        said = graphs.launch(plan).wait().verified
        hold = drafts.width + 1 - (not drafts.chains)
        if said is None or said.counts.tolist() != [hold] * len(rows):
            raise RuntimeError(f"{drafts.width} drafts: {said and said.counts.tolist()} tokens said, not {hold}")
        return step_ms(lambda: graphs.launch(plan))


def engine(config: EngineConfig, made: ModelRunner, tiny: bool) -> Iterator[Row]:
    """Plain passes, then with 5 and 7 guesses a row."""
    batches, outputs, inputs = ((1, 32), 256, 128) if not tiny else ((2,), 5, 4)
    for batch in batches:
        asked = prompts(random.Random(1), batch, inputs, made.config)
        vocab = made.config.vocab
        answers = {tuple(each): [(each[-1] + 1 + i) % vocab for i in range(outputs)] for each in asked}
        plain, _ = _tpot(config, made, asked, outputs, None)
        yield Row(f"engine, batch {batch}", "TPOT, plain", plain, "ms", "lower")
        for drafts in (5, 7):
            script = Script(answers, drafts, HIT)
            taken, counts = _tpot(config, made, asked, outputs, script)
            case = f"engine, batch {batch}, {drafts} guesses"
            row = Row(case, "TPOT, effective", taken, "ms", "lower")
            if drafts == 5 and not tiny:
                row = replace(row, peer="vLLM 0.26.0", peer_value=VLLM[batch], target=EFFECTIVE[batch])
            yield row
            yield Row(case, "speed-up", plain / taken, "×", "higher")
            yield Row(case, "held of a row's guesses", counts.accepted / max(counts.rows, 1), "tokens", "higher")
            yield Row(case, "passes that verify", counts.verified / max(counts.steps, 1), "of all", "higher")


def _tpot(
    config: EngineConfig, made: ModelRunner, asked: list[list[int]], outputs: int, script: Script | None
) -> tuple[float, Any]:
    """ms a token of each request, after a call that captures; what the speculator counted in the last call."""
    whole: list[float] = []
    first: list[float] = []
    unseen: list[float] = []
    counts = None
    proposers = None if script is None else replaying(script)
    for taken, count in [(unseen, outputs), *[(whole, outputs)] * 3, (unseen, 1), *[(first, 1)] * 3]:
        call = Offline(config, made, proposers)
        params = SamplingParams(temperature=0, max_tokens=count)
        begun = time.perf_counter()
        results = call.generate(asked, params)
        taken.append(time.perf_counter() - begun)
        for prompt, result in zip(asked, results, strict=True):
            wanted = [(prompt[-1] + 1 + i) % made.config.vocab for i in range(count)]
            if result.token_ids != wanted:
                raise RuntimeError(f"{result.finish} {result.message}: {result.token_ids[:9]} is not {wanted[:9]}")
        if count > 1 and call.scheduler.speculator is not None:
            counts = call.scheduler.speculator.counts
    return (median(whole) - median(first)) / (outputs - 1) * 1e3, counts


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tiny", action="store_true", help="on a CPU, with TRITON_INTERPRET=1: shows that it works")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not options.tiny:
        parser.error("torch sees no GPU here: only --tiny runs, with TRITON_INTERPRET=1")
    name = "CPU" if options.tiny else torch.cuda.get_device_name()
    rows: list[Row] = []

    def keep(*more: Row) -> None:
        rows.extend(more)
        print(report.table(list(more)), flush=True)
        if not options.tiny:
            report.write("speculation", options.device, name, rows, options.out, ("torch", "triton"),
                         "python -m evaluation.benchmarks.speculation_gpu", options.commit)  # fmt: skip

    loaded: list[tuple[EngineConfig, ModelRunner]] = []

    def model() -> tuple[EngineConfig, ModelRunner]:
        if not loaded:
            gc.collect()
            loaded.append(runner_of(options.tiny))
        return loaded[0]

    device = torch.device("cpu" if options.tiny else "cuda")
    parts: dict[str, Callable[[], Iterator[list[Row]]]] = {
        "checks": lambda: speculation_checks.run(device),
        "attention": lambda: ([row] for row in attention()),
        "steps": lambda: ([row] for row in steps(model()[1], options.tiny)),
        "engine": lambda: ([row] for row in engine(*model(), options.tiny)),
    }
    failed = False
    for part in options.only:
        if part == "attention" and options.tiny:
            continue  # times of the interpreter say nothing
        begun = time.monotonic()
        try:
            for found in parts[part]():
                keep(*found)
        except Exception:  # the other parts are still to be seen
            traceback.print_exc()
            failed = True
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    wrong = [row for row in rows if row.metric in speculation_checks.METRICS and not row.ok]
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
