"""Speculation on real weights: tokens per pass and end-to-end speed beside plain decoding and prompt lookup, by task.

    python -m evaluation.benchmarks.speculation --device cuda|cpu --model MODEL.gguf [--prompts FILE.json]
        [--draft DRAFT.gguf] [--batches 1 8 32 64 128] [--per-task 10] [--tokens 128] [--dtype auto] [--out DIR]

Contenders, each with the same runner, in the same process, one after the other for each batch and task:
    plain       one token a pass
    ngram       prompt lookup (n 2 to 4, k 5, the newest place), every guess tried: the baseline
    lookahead   the default, with its budget, an empty cache
    seasoned    the default, once it has answered as many other prompts of the task: it knows what passes cost here and
                what its guesses are worth. Not where there are no others
    warm        the default, once more over the same prompts: the cache has seen what is said
    draft, draft+lookahead   with --draft, at batch 1 and 8
Each contender runs before on engines of their own, which are not counted, until a run captures no more graphs (at most
REHEARSALS times): kernels and graphs belong to the runner, and a server makes each of them once in its life.
At batch 1 the prompts of a task follow each other on one engine. tokens per pass: (accepted + 1) per row and pass that
decodes. speed-up: decode seconds of plain (each call less its time to the last first token) over the contender's.
Answers are compared with plain's: `same answers`; where they differ a tie between two tokens was broken the other way,
which happens without strict mode (docs/strict.md).
Greedy, up to --tokens tokens or the model's own end. Prompts: `evaluation.benchmarks.speculation_prompts`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean

import engines.native  # noqa: F401  settles how threads wait, before torch is imported
from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Generated, Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.speculation.proposer import Proposer, ProposerSettings, factory
from engines.native.speculation.setup import prior_of
from evaluation.benchmarks.replay import FreeGuesses
from evaluation.benchmarks.report import ROOT, Row, table, write

Make = Callable[[ProposerSettings], Proposer]
REHEARSALS = 6
ENDS = ("<|im_end|>", "<|endoftext|>", "<end_of_turn>")
COPYING = ("summarization", "code")
"""Tasks whose answers repeat what was said."""


@dataclass(frozen=True, slots=True)
class Contender:
    """proposers: None is plain. free: every guess is tried. passes: how often the prompts are run on one engine; the
    last one counts."""

    name: str
    proposers: tuple[str, ...] | None
    free: bool = False
    passes: int = 1
    seasoned: bool = False


CONTENDERS = (
    Contender("plain", None),
    Contender("ngram", ("ngram",), free=True),
    Contender("lookahead", ("lookahead",)),
    Contender("seasoned", ("lookahead",), seasoned=True),
    Contender("warm", ("lookahead",), passes=2),
)
DRAFTS = (Contender("draft", ("draft",)), Contender("draft+lookahead", ("lookahead", "draft")))


@dataclass(slots=True)
class Measured:
    """seconds: of decoding. steps: row-passes; drafted, accepted: tokens of them."""

    answers: list[list[int]]
    seconds: float
    tokens: int
    steps: float
    drafted: int
    accepted: int
    speculated: float  # share of passes with drafts

    @property
    def per_pass(self) -> float:
        return self.tokens / self.steps


class Bench:
    def __init__(self, config: EngineConfig, options: argparse.Namespace) -> None:
        self.config, self.options = config, options
        self.runner: ModelRunner = build_runner(config)
        self.prior = prior_of(self.runner)
        tokenizer, _ = load_tokenizer(open_model(config.format, dict(config.paths)))
        self.ends = [found for text in ENDS if (found := tokenizer.token_to_id(text)) is not None]

    def measure(self, contender: Contender, groups: list[list[list[int]]], others: list[list[list[int]]]) -> Measured:
        """groups: prompts that run side by side; one group after the other. others: what a seasoned engine has answered
        before."""
        for _ in range(REHEARSALS if self.config.device == "cuda" else 0):
            before = self.runner.captured
            self._run(contender, groups, others)
            if self.runner.captured == before:
                break
        return self._run(contender, groups, others)

    def _run(self, contender: Contender, groups: list[list[list[int]]], others: list[list[list[int]]]) -> Measured:
        proposers = None
        if contender.proposers is not None:
            proposers = {name: factory(name) for name in contender.proposers}
        engine = Offline(self.config, self.runner, proposers or {})
        if contender.free:
            assert engine.scheduler.speculator is not None
            engine.scheduler.speculator.costs = FreeGuesses()
        params = SamplingParams(temperature=0, max_tokens=self.options.tokens, stop_token_ids=self.ends)
        for group in others if contender.seasoned else ():
            engine.generate(group, params)
        for _ in range(contender.passes):
            before, found, seconds = _counts(engine), list[Generated](), 0.0
            for group in groups:
                begun = time.monotonic()
                said = engine.generate(group, params)
                seconds += time.monotonic() - begun - max(each.first_token_s for each in said)
                found += said
        after = _counts(engine)
        tokens = sum(len(each.token_ids) - 1 for each in found)
        steps, verified, drafted, accepted = (b - a for a, b in zip(before, after, strict=True))
        engine.close()
        if engine.scheduler.speculator is not None:
            engine.scheduler.speculator.close()
        return Measured(
            [each.token_ids for each in found], seconds, tokens, tokens - accepted, drafted, accepted,
            verified / steps if steps else 0.0,
        )  # fmt: skip


def _counts(engine: Offline) -> tuple[int, int, int, int]:
    if (speculator := engine.scheduler.speculator) is None:
        return (0, 0, 0, 0)
    counts = speculator.counts
    return (counts.steps, counts.verified, counts.drafted, counts.accepted)


def sweep(
    bench: Bench, prompts: dict[str, list[list[int]]], batch: int, contenders: tuple[Contender, ...]
) -> list[Row]:
    """Rows of one batch size."""
    rows: list[Row] = []
    ratios: dict[str, list[float]] = {}
    speeds: dict[str, dict[str, float]] = {}
    for task, own in prompts.items():
        chosen = own[: bench.options.per_task] if batch == 1 else list(islice(cycle(own), batch))
        groups = [[prompt] for prompt in chosen] if batch == 1 else [chosen]
        fresh = [prompt for prompt in own if prompt not in chosen]
        others = (
            [[prompt] for prompt in fresh[: bench.options.per_task]]
            if batch == 1
            else [list(islice(cycle(fresh), batch))]
        )
        able = [each for each in contenders if fresh or not each.seasoned]
        found = {each.name: bench.measure(each, groups, others) for each in able}
        plain, baseline = found["plain"], found.get("ngram")
        for name, one in found.items():
            if name == "plain":
                rows.append(
                    Row(f"batch {batch}, {task}, plain", "rate", plain.tokens / plain.seconds, "tok/s", "higher")
                )
                continue
            case = f"batch {batch}, {task}, {name}"
            speed = (one.tokens / one.seconds) / (plain.tokens / plain.seconds)
            speeds.setdefault(name, {})[task] = speed
            beside = baseline.per_pass if baseline is not None and name != "ngram" else None
            if beside is not None:
                ratios.setdefault(name, []).append(one.per_pass / beside)
            wanted = _wanted_tokens(name, task, batch)
            rows.append(Row(case, "tokens per pass", one.per_pass, "", "higher", "ngram" if beside else "", beside,
                            target=wanted * beside if beside and wanted else None))  # fmt: skip
            rows.append(Row(case, "speed-up", speed, "×", "higher", target=_wanted_speed(name, task, batch)))
            rows.append(Row(case, "drafts accepted", one.accepted / max(one.drafted, 1), "", "higher"))
            rows.append(Row(case, "passes with drafts", one.speculated, "", "higher"))
            same = sum(a == b for a, b in zip(one.answers, plain.answers, strict=True)) / len(plain.answers)
            rows.append(Row(case, "same answers", same, "", "higher"))
        print(table(rows[-(5 * (len(found) - 1) + 1) :]), flush=True)
    for name, each in ratios.items():
        target = {"lookahead": 1.15, "seasoned": 1.15, "warm": 1.5}.get(name) if batch == 1 else None
        rows.append(Row(f"batch {batch}, all tasks, {name}", "tokens per pass over ngram's", fmean(each), "×", "higher",
                        target=target))  # fmt: skip
    for name, tasks in speeds.items():
        rows.append(Row(f"batch {batch}, all tasks, {name}", "speed-up, mean", fmean(tasks.values()), "×", "higher"))
        rows.append(Row(f"batch {batch}, all tasks, {name}", "speed-up, least", min(tasks.values()), "×", "higher",
                        target=0.98 if name in ("lookahead", "seasoned", "warm") else None))  # fmt: skip
    return rows


def _wanted_tokens(name: str, task: str, batch: int) -> float | None:
    if name == "warm":
        return None
    return 1.25 if name == "lookahead" and task in COPYING and batch == 1 else None


def _wanted_speed(name: str, task: str, batch: int) -> float | None:
    if name not in ("lookahead", "seasoned"):
        return None
    if task in COPYING and batch in (1, 32):
        return 1.8 if batch == 1 else 1.3
    return 0.98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument(
        "--prompts", type=Path, help="as speculation_prompts writes it; without it, made from ../shared"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64, 128])
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--per-task", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--name", default="speculation")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args()
    prompts = _prompts(options)
    config = EngineConfig(
        format="gguf", paths={options.model.name: str(options.model)}, device=options.device, dtype=options.dtype,
        speculation="off", max_model_len=4096, max_num_seqs=max(options.batches),
        draft_format="gguf" if options.draft else "",
        draft_paths={options.draft.name: str(options.draft)} if options.draft else {},
    )  # fmt: skip
    bench = Bench(config, options)
    rows: list[Row] = [Row("passes", f"{tokens} rows", seconds * 1e3, "ms", "lower") for tokens, seconds in bench.prior]
    for batch in options.batches:
        contenders = CONTENDERS + (DRAFTS if options.draft and batch <= 8 else ())
        rows += sweep(bench, prompts, batch, contenders)
        gc.collect()
    print(table(rows))
    device = "h200" if options.device == "cuda" else "cpu"
    label = "NVIDIA H200" if options.device == "cuda" else f"{len(os.sched_getaffinity(0))} CPU cores"
    command = f"python -m evaluation.benchmarks.speculation --device {options.device} --model {options.model.name}"
    print(write(options.name, device, label, rows, options.out, ("torch", "triton"), command, options.commit))


def _prompts(options: argparse.Namespace) -> dict[str, list[list[int]]]:
    if options.prompts:
        found: dict[str, list[list[int]]] = json.loads(options.prompts.read_text())
    else:
        from evaluation.benchmarks.speculation_prompts import prompts

        found = prompts(options.model, max(options.per_task, max(options.batches)))
    return {task: each for task, each in found.items() if not options.tasks or task in options.tasks}


if __name__ == "__main__":
    main()
