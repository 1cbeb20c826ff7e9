"""Random traffic on the native engine for minutes: blocks and rows add up after each step, each request ends once and
as it may, and memory stays flat. Random weights.

    python -m evaluation.benchmarks.soak [--minutes 10] [--device cpu|cuda] [--shape tiny] [--seed 1] [--out FOLDER]

A KV pool that a few requests fill, some host memory below it. Prompts of all lengths that begin alike or go on from an
answer, several answers to one; all kinds of sampling, grammars (where llguidance is installed), guesses, classes,
tenants, salts, time-outs; bursts and idle gaps. Requests are ended from outside while they wait, are in their prompt,
decode or were preempted, between steps and while one is on its way; some steps fail on purpose. What comes follows from
--seed and from what the engine does; guesses and compiled grammars go by the real clock, so that a seed leads back near
a failure, which is printed with what happened last. Flat: memory's median in the last fifth, beside that in the second.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path

import torch

from engines.native import heap
from engines.native.config import EngineConfig
from engines.native.grammar.compiler import Compiler
from engines.native.grammar.constraints import Constraints
from engines.native.offline import Offline
from engines.native.pipeline import Flight, Pipeline
from engines.native.request import Finish, Request
from engines.native.runner import ModelRunner
from engines.native.speculation.proposer import make_proposer
from evaluation.benchmarks import report, shapes
from evaluation.benchmarks.random_model import TINY, random_runner
from evaluation.benchmarks.report import Row
from evaluation.benchmarks.soak_checks import Ledger, Memory, every_size
from evaluation.benchmarks.soak_traffic import Asked, Traffic, vocabulary

TURN_S = 0.01
"""Seconds of the engine's clock in a turn."""
BLOCKS = {"tiny": (24, 8, 160, 12, 24), "qwen06b": (120, 16, 640, 24, 256)}
"""Of the KV pool, tokens in one, tokens of the longest request, rows, tokens of a step."""
MOST, ENDED, FAILED, STUCK = 60, 0.05, 0.001, 10_000
"""Requests beside which none arrives; share of turns in which one is ended from outside, and of steps that fail; turns
with work and without a step, after which none is expected any more."""
LOOKAHEAD_BYTES = 1 << 20
"""Of the text that guesses come from: by default 256 MiB, which it would take hours to fill, and which is no leak."""


def engine_of(shape: str, device: str) -> tuple[EngineConfig, ModelRunner]:
    model = replace(TINY, context_length=256) if shape == "tiny" else shapes.shape(shape)
    blocks, size, longest, rows, batched = BLOCKS[shape]
    dtype, width = ("bfloat16", 2) if device == "cuda" else ("float32", 4)
    pool = 2 * model.layers * model.kv_size * width * size * blocks
    config = EngineConfig(
        format="safetensors", paths={}, device=device, dtype=dtype, max_model_len=longest, max_num_seqs=rows,
        max_batched_tokens=batched, block_size=size, kv_cache_bytes=pool, swap_space_bytes=pool // 2,
        host_prefix_cache=True, threads=1,
    )  # fmt: skip
    runner = random_runner(model, config, seed=1)
    runner.swap_min_tokens = 2 * size
    if device == "cuda":
        runner.warm_up()
    else:
        torch.set_num_threads(config.cores)
        heap.keep()
        every_size(runner)
    return config, runner


class Soak:
    """Drives one engine."""

    def __init__(self, config: EngineConfig, runner: ModelRunner, seed: int) -> None:
        capped = {"lookahead_bytes": LOOKAHEAD_BYTES}
        guessing = {"lookahead": lambda settings: make_proposer("lookahead", replace(settings, options=capped))}
        self.scheduler, self.memory = Offline(config, runner, guessing).scheduler, Memory(runner.device)
        self.chooser = random.Random(seed)
        self.traffic = Traffic(self.chooser, runner.vocab_size, self.scheduler.max_len)
        if self.traffic.grammars:
            self.scheduler.constraints = Constraints(Compiler(lambda: vocabulary(runner.vocab_size)))
        self.pipeline, self.ledger = Pipeline(runner, self.scheduler), Ledger(runner.vocab_size)
        self.counts, self.events = Counter[str](), deque[str](maxlen=30)
        self._turns = self._still = 0

    def run(self, seconds: float) -> list[str]:
        """For so long, or until something is wrong: what, a sentence each."""
        chooser, until = self.chooser, time.monotonic() + seconds
        try:
            while time.monotonic() < until and not self.ledger.problems:
                self.traffic.long, rate = chooser.choice((0.05, 0.2, 0.5)), chooser.choice((0.02, 0.1, 0.4))
                for _ in range(chooser.choice((1, 1, 5, 30))):
                    self._ask()
                for _ in range(chooser.randrange(400)):
                    if chooser.random() < rate and len(self.ledger.living) < MOST:
                        self._ask()
                    self._turn()
                while self._busy and not self.ledger.problems:
                    self._turn()
                time.sleep(chooser.choice((0, 0, 0.02, 0.1)))
        except Exception:
            self.ledger.problems.append(traceback.format_exc())
        return self.ledger.problems

    @property
    def _busy(self) -> bool:
        return self.scheduler.has_work or self.pipeline.in_flight > 0

    def _ask(self) -> None:
        for asked in self.traffic.ask(self._turns * TURN_S):
            own = asked.request
            self._note(f"asked {own.id}, {own.prompt_len} tokens, class {own.priority}: {own.params}")
            self.counts["requests"] += 1
            self.ledger.living[own.id] = asked
            self.scheduler.add(own)
            self._collect()

    def _turn(self) -> None:
        if self.ledger.problems:
            return
        self._turns, busy = self._turns + 1, self._busy
        if self.chooser.random() < ENDED / 2:
            self._end("between steps")
        flight = self.pipeline.turn(self._turns * TURN_S)
        self._still = 0 if flight is not None or not busy else self._still + 1
        if flight is not None:
            self._take(flight)
        elif not self.pipeline.in_flight:
            time.sleep(0.001)  # a grammar is being compiled
        if self._still > STUCK:
            self.ledger.problems.append(f"{len(self.ledger.living)} requests, and no step in {STUCK} turns")
        self._collect()
        if busy and not self._busy:
            self.pipeline.flush()
            self.ledger.idle(self.scheduler)
        self.memory.sample()

    def _take(self, flight: Flight) -> None:
        output = flight.pending.wait()
        if self.chooser.random() < ENDED / 2:
            self._end("before a commit")
        if self.chooser.random() < FAILED:
            for number in self.ledger.living.keys() & self.scheduler.table.ids[flight.step.plan.rows].tolist():
                self.ledger.living[number].allowed.add(Finish.ERROR)
            self._note(f"step {flight.step.number} fails")
            self.counts["steps that failed on purpose"] += 1
            self.scheduler.fail(flight.step, "the soak had this step fail")
        else:
            self.ledger.said(self.scheduler.commit(flight.step, output))
        self.counts["steps"] += 1
        self.ledger.check(self.scheduler, flight.step.plan.tokens)

    def _end(self, when: str) -> None:
        states: dict[str, list[Asked]] = {}
        for asked in self.ledger.living.values():
            states.setdefault(self._state(asked.request), []).append(asked)
        if states:
            state, own, finish = self.traffic.victim(states)
            self.counts[f"ended from outside {state}"] += 1
            self._note(f"{own.id} ends with {finish} {state}, {when}")
            self.scheduler.end(own.id, finish)
            self._collect()

    def _state(self, request: Request) -> str:
        if request.row < 0:
            return "after a preemption" if request.preemptions else "while it waited"
        return "in its prompt" if self.scheduler.table.committed[request.row] < request.prompt_len else "in its answer"

    def _note(self, event: str) -> None:
        self.events.append(f"turn {self._turns}: {event}")

    def _collect(self) -> None:
        for asked in self.ledger.collect(self.scheduler):
            self.traffic.heard(asked)

    def rows(self, case: str, judged: bool) -> list[Row]:
        """judged: memory has a target."""
        scheduler, ledger = self.scheduler, self.ledger
        figures = dict(sorted(self.counts.items())) | {f"ended: {finish}": ledger.ended[finish] for finish in Finish}
        figures |= {"preemptions": scheduler.preemptions, "preempted to the host": scheduler.host.swaps}
        if scheduler.speculator is not None:
            guesses = scheduler.speculator.counts
            figures |= {"steps with guesses": guesses.verified, "guessed tokens that held": guesses.accepted}
        figures |= {"idle moments": ledger.idles, "check() calls": ledger.checks}
        found = [Row(case, name, float(value), "", "higher") for name, value in figures.items()]
        found.append(Row(case, "violations", float(len(ledger.problems)), "", "lower", target=0))
        return found + self.memory.rows(case, judged)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", choices=sorted(BLOCKS), help="if not given, tiny on a CPU, qwen06b on a GPU")
    parser.add_argument("--depth", type=int, choices=(1, 2), help="steps on their way at once, if not the device's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    shape = options.shape or {"cpu": "tiny", "cuda": "qwen06b"}[options.device]
    config, runner = engine_of(shape, options.device)
    runner.depth = options.depth or runner.depth
    soak = Soak(config, runner, options.seed)
    if problems := soak.run(options.minutes * 60):
        print("\n".join([*soak.events, *problems, f"with --seed {options.seed}, in step {soak.counts['steps']}"]))
    case = f"{shape}, {runner.num_blocks - 1} blocks, {options.minutes:g} min"
    rows = soak.rows(case, judged=options.minutes >= 1)
    print(report.table(rows))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    short = "h200" if "H200" in name else options.device
    command = f"python -m evaluation.benchmarks.soak --minutes {options.minutes:g} --seed {options.seed}"
    print(report.write("soak", short, name, rows, options.out, ("torch", "triton"), command, options.commit))
    return int(any(row.ok is False for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
