"""What speculation costs the host: µs per row and pass, by stage, with the real scheduler, speculator and proposer. No
model runs: answers are known, and a pass takes what it is said to take.

    python -m evaluation.benchmarks.speculation_host --outputs outputs.jsonl [--batches 1 8 32 64 128] [--rounds 3]
    python -m evaluation.benchmarks.speculation_host --data ../shared/data --gguf MODEL.gguf --json result.json

Cases, of each batch in turn, `rounds` times:
    plain     without speculation: what the scheduler takes anyway
    tried     passes cost the same whatever they carry, so that each carries all the guesses there are
    refused   a pass with guesses takes a second more, so that none is tried
    measured  passes take STEP_S + ROW_S × rows + MORE_S × other tokens: about Qwen2.5-Coder-1.5B on an H200
Requests of one batch begin together, each with a salt of its own (`--shared`: one for all, and a store that has seen
other answers). Only passes in which every row decodes count, while three quarters of the rows are there. A request has
--tokens tokens: the first samples that have so many are taken.

Stages are the time in a call, without that in other stages that it calls; µs of a pass over its rows. Of each pass the
least of all rounds counts, since others disturb this machine. `added`: of all stages together, less plain's; its median
is of all passes of all rounds; `before`: without `meanwhile`, which runs while a pass does. tokens per second: of a
clock that counts the host's CPU time, and passes as they overlap it.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from engines.native.pipeline import Pipeline
from engines.native.request import Request, SamplingParams
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.speculation import speculator as speculation
from engines.native.speculation.budget import StepCosts
from engines.native.speculation.proposer import History, ProposerSettings, make_proposer
from engines.native.speculation.speculator import Speculator
from engines.native.step import Drafts, StepOutput, StepPlan, TokenMasks, Verified
from evaluation.benchmarks.speculation_offline import Sample, data_sets, outputs

STEP_S, ROW_S, MORE_S = 1.25e-3, 1.15e-5, 5e-6
"""1.3 ms at batch 1, 2.0 at 64; 7 guesses a row take 1.7 times a plain pass at batch 32."""
HOST_S, HOST_ROW_S = 3e-4, 6e-5
"""As `engines.native.speculation.setup` has them."""
CASES = ("plain", "tried", "refused", "measured")
BLOCK = 16
STAGES = {
    "speculator": ("guesses", "choose", "launched", "meanwhile", "committed"),
    "proposer": ("propose", "observe"),
    "scheduler": ("plan", "commit"),
}


class Watch:
    """s by stage since `take`. clock: s, of the host's CPU time outside `aside` and of what was waited for."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = {}
        self._within: list[float] = []  # of the stages that run, what those inside took
        self._aside = self._waited = 0.0

    def clock(self) -> float:
        return time.thread_time() - self._aside + self._waited

    def wait(self, until: float) -> None:
        self._waited += max(0.0, until - self.clock())

    def over(self, owner: Any, name: str) -> None:
        """Counts `owner.name` as a stage from now on."""
        call: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **named: Any) -> Any:
            self._within.append(0.0)
            began = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                took = time.perf_counter() - began
                self._stages[name] = self._stages.get(name, 0.0) + took - self._within.pop()
                if self._within:
                    self._within[-1] += took

        setattr(owner, name, watched)

    def aside(self, began: float) -> None:
        """What was done since `began`, of `time.thread_time()`, is the benchmark's own."""
        self._aside += time.thread_time() - began

    def take(self) -> dict[str, float]:
        found, self._stages = self._stages, {}
        return found


@dataclass(slots=True)
class _Pass:
    """On its way until `ready`, s of the clock."""

    output: StepOutput
    ready: float
    watch: Watch

    def draw(self, masks: TokenMasks | None) -> None:
        raise ValueError("no pass is late")

    def wait(self) -> StepOutput:
        self.watch.wait(self.ready)
        return self.output


class Scripted:
    """A runner that knows what is said. Passes follow each other as on a GPU."""

    depth, num_blocks, host_blocks, block_size, vocab_size = 2, 1 << 16, 0, BLOCK, 1 << 18

    def __init__(self, answers: dict[bytes, list[int]], max_model_len: int, rows: int, watch: Watch) -> None:
        self.max_model_len = max_model_len
        self._answers, self._watch = answers, watch
        self._answer: list[list[int]] = [[] for _ in range(rows)]
        self._said = [0] * rows
        self._free = 0.0  # when the newest pass is over

    def add(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        self._answer[row], self._said[row] = self._answers[np.array(token_ids, np.int32).tobytes()], 0

    def launch(self, plan: StepPlan) -> _Pass:
        began = time.thread_time()
        rows = len(plan.rows)
        more = plan.tokens - rows if plan.drafts is None else plan.drafts.width * rows  # rows are padded to one width
        takes = STEP_S + ROW_S * rows + MORE_S * more
        self._free = max(self._free, self._watch.clock()) + takes
        said = [self._row(row, place, plan.drafts) if plan.sample[place] else [] for place, row in enumerate(plan.rows)]
        tokens = np.array([own[0] if own else -1 for own in said], np.int32)
        output = StepOutput(tokens, np.full(len(said), np.nan, np.float32))
        if plan.drafts is not None:
            width = plan.drafts.width + 1
            words = np.array([own + [-1] * (width - len(own)) for own in said], np.int32)
            output.verified = Verified(words, np.array([len(own) for own in said], np.int32))
            output.logprobs = np.full(len(said) * width, np.nan, np.float32)
        self._watch.aside(began)
        return _Pass(output, self._free, self._watch)

    def _row(self, row: int, place: int, drafts: Drafts | None) -> list[int]:
        answer, at = self._answer[row], self._said[row]
        found = [answer[at] if at < len(answer) else 0]
        if drafts is not None and place < len(drafts.nodes):
            tokens, parents = drafts.tokens[place].tolist(), drafts.parents[place].tolist()
            node = 0
            for child in range(int(drafts.nodes[place])):
                if parents[child] == node and tokens[child] == found[-1]:
                    node = child + 1
                    found.append(answer[at + len(found)] if at + len(found) < len(answer) else 0)
        self._said[row] = at + len(found)
        return found

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """There is no cache."""

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        """There is no cache."""

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        """There is no cache."""

    def synchronize(self) -> None:
        """Nothing is on its way."""


class _Fixed(StepCosts):
    def saw_plain(self, rows: int, seconds: float) -> None:
        """What passes take changes nothing."""

    def saw_verify(self, rows: int, tokens: int, seconds: float) -> None:
        """What passes take changes nothing."""


def costs_of(case: str) -> StepCosts:
    plain = [(rows, STEP_S + ROW_S * rows) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    if case == "tried":
        return _Fixed([(1, 1.0), (4096, 1.0001)])
    return _Fixed(plain, 1.0) if case == "refused" else StepCosts(plain, HOST_S, HOST_ROW_S)


@dataclass(slots=True)
class Run:
    """passes: of those that count, rows and s by stage. tokens, seconds: of them, by the clock."""

    passes: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0
    verified: int = 0

    @property
    def rows(self) -> list[int]:
        return [rows for rows, _ in self.passes]

    def per_row(self, stage: str) -> float:
        """µs per row and pass."""
        return 1e6 * sum(found.get(stage, 0.0) for _, found in self.passes) / sum(self.rows)

    def middle(self, stages: Sequence[str]) -> float:
        return 1e6 * float(median(sum(found.get(stage, 0.0) for stage in stages) / rows for rows, found in self.passes))


def least(runs: Sequence[Run], stage: str) -> float:
    """µs per row: where all rounds had the same passes, the least of each; else of the round that took the least."""
    if any(one.rows != runs[0].rows for one in runs):
        return min(one.per_row(stage) for one in runs)
    passes = zip(*([found.get(stage, 0.0) for _, found in one.passes] for one in runs), strict=True)
    return float(1e6 * sum(map(min, passes)) / sum(runs[0].rows))


def run(case: str, samples: Sequence[Sample], tokens: int, proposer: str, seen: Sequence[Sample]) -> Run:
    """One batch of requests, side by side. seen: answers of others with the same salt; empty: each has its own."""
    watch, rows = Watch(), len(samples)
    longest = max(len(sample.prompt) for sample in samples) + tokens + BLOCK
    answers = {np.array(sample.prompt, np.int32).tobytes(): sample.answer for sample in samples}
    runner = Scripted(answers, longest, rows, watch)

    def speculator(history: History) -> Speculator:
        settings = ProposerSettings(history, vocab=runner.vocab_size)
        made = make_proposer(proposer, settings)
        _teach(made, history, seen, longest)
        for name in STAGES["proposer"]:
            watch.over(made, name)
        return Speculator({proposer: made}, history, costs_of(case), padded=True, trees=True, clock=watch.clock)

    guessing = speculator if case != "plain" else None
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=rows, max_batched_tokens=8192, speculation=guessing),
        num_blocks=runner.num_blocks, block_size=BLOCK, max_model_len=longest,
    )  # fmt: skip
    for name in STAGES["scheduler"]:
        watch.over(scheduler, name)
    if scheduler.speculator is not None:
        for name in STAGES["speculator"]:
            if hasattr(scheduler.speculator, name):  # so that this runs with earlier ones, too
                watch.over(scheduler.speculator, name)
    for index, sample in enumerate(samples):
        params = SamplingParams(temperature=0, max_tokens=tokens)
        ids = np.array(sample.prompt, np.int32)
        salt = "" if seen else f"alone {index}"
        scheduler.add(Request(id=index + 1, token_ids=ids, params=params, prompt_len=len(ids), salt=salt))
    return _drive(scheduler, runner, watch, rows)


def _drive(scheduler: Scheduler, runner: Scripted, watch: Watch, rows: int) -> Run:
    found, pipeline, begun = Run(), Pipeline(runner, scheduler), 0.0
    while scheduler.has_work and len(scheduler.running) + len(scheduler.waiting) > 3 * rows // 4:
        flight = pipeline.turn(watch.clock())
        if flight is None:
            continue
        drawn = scheduler.commit(flight.step, flight.pending.wait())
        plan, stages = flight.step.plan, watch.take()
        scheduler.started, scheduler.endings = [], []
        if scheduler.waiting or (plan.drafts is None and plan.tokens > len(plan.rows)):
            begun = watch.clock()
            continue
        found.passes.append((len(plan.rows), stages))
        found.tokens += len(drawn.ids)
        found.seconds = watch.clock() - begun
    if scheduler.speculator is not None:
        counts = scheduler.speculator.counts
        found.drafted, found.accepted, found.verified = counts.drafted, counts.accepted, counts.verified
    return found


def _teach(proposer: Any, history: History, seen: Sequence[Sample], longest: int) -> None:
    for sample in seen:
        said = (sample.prompt + sample.answer)[:longest]
        history.token_ids[0, : len(said)] = said
        history.known[0] = len(said)
        proposer.begin(0, "", len(sample.prompt))
        proposer.end(0)


def figures(runs: Sequence[Run], plain: Sequence[Run]) -> dict[str, Any]:
    """Of one case and batch; runs and plain of the same rounds."""
    names = [name for group in STAGES.values() for name in group]
    stages = {name: least(runs, name) for name in names}
    added = sum(stages.values()) - sum(least(plain, name) for name in STAGES["scheduler"])
    pairs = list(zip(runs, plain, strict=True))
    middle = median(one.middle(names) for one in runs) - median(bare.middle(STAGES["scheduler"]) for bare in plain)
    last = runs[-1]
    return {
        "us": {name: round(value, 2) for name, value in stages.items()},
        "added_us": round(added, 2),
        "before_us": round(added - stages["meanwhile"], 2),
        "added_us_median": round(middle, 2),
        "tokens_per_s": round(max(one.tokens / one.seconds for one in runs)),
        "over_plain": round(median(one.tokens / one.seconds * bare.seconds / bare.tokens for one, bare in pairs), 3),
        "passes": len(last.passes),
        "verified": last.verified,
        "drafted": last.drafted,
        "accepted": last.accepted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=Path, help="as speculation_offline reads them")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--gguf", type=Path, help="whose tokens those of --data are")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64, 128])
    parser.add_argument("--cases", nargs="+", choices=CASES[1:], default=CASES[1:])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--proposer", default="lookahead")
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    samples = list(outputs(given.outputs)) if given.outputs else []
    if given.data and given.gguf:
        from engines.native.loader.model_files import open_model
        from engines.native.loader.tokenizer import load_tokenizer

        tokenizer, _ = load_tokenizer(open_model("gguf", {given.gguf.name: str(given.gguf)}))
        samples += data_sets(given.data, tokenizer, 1000)
    long = list({tuple(each.prompt): each for each in samples if len(each.answer) > given.tokens}.values())
    if len(long) < max(given.batches):
        parser.error(f"{len(long)} samples have more than {given.tokens} tokens: give more, or smaller batches")
    step = len(long) // max(given.batches)
    chosen = long[::step]
    seen = [each for each in samples if each not in chosen][:200] if given.shared else []
    report: dict[str, Any] = {"tokens": given.tokens, "rounds": given.rounds, "shared": given.shared, "batches": {}}
    speculation.log.setLevel("ERROR")
    for batch in given.batches:
        # Of a small batch, several in turn: their passes are few.
        starts = range(0, min(len(chosen), max(8, batch)) - batch + 1, batch)
        runs: dict[str, list[Run]] = {}
        for _ in range(given.rounds):
            for case in ("plain", *given.cases):
                whole = Run()
                for start in starts:
                    gc.collect()
                    one = run(case, chosen[start : start + batch], given.tokens, given.proposer, seen)
                    whole.passes += one.passes
                    for name in ("tokens", "seconds", "drafted", "accepted", "verified"):
                        setattr(whole, name, getattr(whole, name) + getattr(one, name))
                runs.setdefault(case, []).append(whole)
        found = {case: figures(each, runs["plain"]) for case, each in runs.items()}
        report["batches"][str(batch)] = found
        for case, row in found.items():
            each = "  ".join(f"{name} {value:.1f}" for name, value in row["us"].items() if value)
            print(f"{batch:4} {case:9} added {row['added_us']:6.1f} ({row['added_us_median']:.1f}) "
                  f"before {row['before_us']:6.1f}  {each}  "
                  f"x{row['over_plain']:.2f}  {row['verified']}/{row['passes']} passes  "
                  f"{row['accepted']}/{row['drafted']}", flush=True)  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
