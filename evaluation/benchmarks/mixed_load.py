"""Inter-token latency of streams while long prompts arrive, with and without a target.

    python -m evaluation.benchmarks.mixed_load MODEL.gguf [--targets 0 150] [--seconds 60] [--rate 0.3] [--streams 8]
    python -m evaluation.benchmarks.mixed_load --shape llama8b --targets 0 15 --rate 6 --streams 64     # on a GPU

The engine's own scheduler, pipeline and runner in one process, no HTTP. `--streams` answers are always being written
(one that ends is replaced), and prompts of 256 to 1,024 tokens, or of `--prompt`, arrive at random times whether or not
the engine keeps up (open loop), each for 8 tokens. Latency between two tokens of a stream is what its client would see;
time to first token of a prompt counts from its intended arrival. Each target runs twice over the same arrivals, and in
turns; the first seconds, in which graphs are captured and times are learnt, are not counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.pace import TargetPace
from engines.native.pipeline import Pipeline
from engines.native.request import Finish, Request, SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.scheduler import Scheduler, SchedulerConfig
from evaluation.benchmarks import report, shapes
from evaluation.benchmarks.random_model import random_runner
from evaluation.benchmarks.report import Row

ANSWER = 8
"""Tokens that a long prompt asks for."""
STREAM_PROMPT = 16
WARM_UP = 0.25
"""Of the time, which is not counted."""


@dataclass(slots=True)
class Load:
    """seconds: of arrivals; rate: prompts per second; prompt: their least and greatest length."""

    seconds: float
    rate: float
    streams: int
    prompt: tuple[int, int]
    vocab: int

    def arrivals(self, seed: int) -> Iterator[tuple[float, int]]:
        """(s from the start, tokens)."""
        chooser, at = random.Random(seed), 0.0
        while (at := at + chooser.expovariate(self.rate)) < self.seconds:
            yield at, chooser.randint(*self.prompt)


@dataclass(slots=True)
class Seen:
    """gaps: s between the tokens of a stream; firsts: s to a prompt's first token; unserved: prompts without one."""

    gaps: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    tokens: int = 0
    unserved: int = 0


class Session:
    """One run of one load against one target. clock: s."""

    def __init__(
        self,
        runner: ModelRunner,
        load: Load,
        target_ms: float,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        size, self._clock = runner.block_size, clock
        config = SchedulerConfig(
            max_num_seqs=runner.sizes.max_num_seqs,
            max_batched_tokens=runner.sizes.max_batched_tokens,
            prefix_cache=False,
            pace=TargetPace(target_ms / 1e3, size, clock) if target_ms else None,
        )
        self._scheduler = Scheduler(
            config, num_blocks=runner.num_blocks, block_size=size, max_model_len=runner.max_model_len
        )
        self._pipeline = Pipeline(runner, self._scheduler)
        self._load, self._chooser = load, random.Random(seed)
        self._waiting = list(load.arrivals(seed))
        self._arrived: dict[int, float] = {}  # of prompts
        self._last: dict[int, float] = {}  # token of each stream
        self._ids = 0
        self.seen = Seen()

    def run(self) -> Seen:
        begun = self._clock()
        for _ in range(self._load.streams):
            self._stream()
        while (now := self._clock()) - begun < self._load.seconds:
            while self._waiting and begun + self._waiting[0][0] <= now:
                at, length = self._waiting.pop(0)
                self._arrived[self._add(length, ANSWER)] = begun + at
            self._turn(counted=now - begun > WARM_UP * self._load.seconds)
        self.seen.unserved = len(self._arrived)
        for request_id in list(self._scheduler.requests):
            self._scheduler.end(request_id, Finish.ABORT)
        while self._pipeline.in_flight or self._scheduler.has_work:
            self._turn(counted=False)
        return self.seen

    def _add(self, length: int, answer: int) -> int:
        self._ids += 1
        ids = np.array([self._chooser.randrange(self._load.vocab) for _ in range(length)], np.int32)
        params = SamplingParams(temperature=0.0, max_tokens=answer)
        self._scheduler.add(Request(id=self._ids, token_ids=ids, params=params, prompt_len=length))
        return self._ids

    def _stream(self) -> None:
        self._last[self._add(STREAM_PROMPT, self._chooser.randint(64, 192))] = 0.0

    def _turn(self, *, counted: bool) -> None:
        flight = self._pipeline.turn(self._clock())
        if flight is None:
            return
        drawn = self._scheduler.commit(flight.step, flight.pending.wait())
        now = self._clock()
        for request_id in drawn.ids.tolist():
            self.seen.tokens += counted
            if request_id in self._last:
                if counted and self._last[request_id]:
                    self.seen.gaps.append(now - self._last[request_id])
                self._last[request_id] = now
            elif (arrived := self._arrived.pop(request_id, None)) is not None and counted:
                self.seen.firsts.append(now - arrived)
        for ending in self._scheduler.endings:
            if self._last.pop(ending.id, None) is not None and ending.finish is not Finish.ABORT:
                self._stream()
        self._scheduler.endings.clear()
        self._scheduler.started.clear()


def rows(target: float, seen: list[Seen], seconds: float) -> list[Row]:
    case = f"target {target:g} ms" if target else "no target"
    gaps = np.array([gap for each in seen for gap in each.gaps]) * 1e3
    if not len(gaps):
        raise SystemExit(f"{case}: no stream had two tokens in the time that counts; give more --seconds")
    firsts = np.array([first for each in seen for first in each.firsts] or [np.nan])
    counted = seconds * (1 - WARM_UP) * len(seen)
    ms = [(f"inter-token latency p{q:g}", float(np.percentile(gaps, q))) for q in (50, 90, 99, 99.9)]
    return [
        *(
            Row(case, name, value, "ms", "lower", target=target or None if "p99" in name else None)
            for name, value in ms
        ),
        Row(case, "mean inter-token latency (TPOT)", float(gaps.mean()), "ms", "lower", target=target or None),
        Row(case, "TTFT of prompts, p50", float(np.percentile(firsts, 50)), "s", "lower"),
        Row(case, "TTFT of prompts, p99", float(np.percentile(firsts, 99)), "s", "lower"),
        Row(case, "prompts answered", float(len(firsts)), "", "higher"),
        Row(case, "prompts that still wait at the end", sum(each.unserved for each in seen), "", "lower"),
        Row(case, "tokens drawn per second", sum(each.tokens for each in seen) / counted, "1/s", "higher"),
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file")
    parser.add_argument("--shape", choices=("llama8b", "qwen06b"), help="random weights of that shape instead")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--targets", type=float, nargs="+", default=[0.0, 150.0], help="ms; 0 = none")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=0.3, help="prompts per second")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, nargs=2, default=(256, 1024), help="least and greatest length")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="short name of the device, part of the file's name")
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    options = parser.parse_args(arguments)
    if (options.model is None) == (options.shape is None):
        parser.error("give a GGUF file or --shape")
    sizes = {"max_model_len": options.prompt[1] + 256, "max_num_seqs": options.streams + 16, "dtype": options.dtype}
    if options.model is not None:
        runner = build_runner(
            EngineConfig(speculation="off", format="gguf", paths={options.model.name: str(options.model)}, **sizes)
        )
        vocab = open_model("gguf", {options.model.name: str(options.model)}).config.vocab
    else:
        shape = shapes.shape(options.shape)
        runner, vocab = (
            random_runner(shape, EngineConfig(speculation="off", format="safetensors", paths={}, **sizes), seed=1),
            shape.vocab,
        )
    load = Load(options.seconds, options.rate, options.streams, tuple(options.prompt), vocab)
    seen = defaultdict(list)
    for number in range(options.rounds):
        for target in options.targets:
            seen[target].append(Session(runner, load, target, seed=number).run())
    found = [row for target in options.targets for row in rows(target, seen[target], options.seconds)]
    print(report.table(found))
    if options.out:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        report.write("mixed_load", options.device, name, found, options.out, ("torch",))


if __name__ == "__main__":
    main(sys.argv[1:])
