"""The engine without its server: token ids in, token ids out. Same scheduler, same runner, one process.

engine = Offline(EngineConfig(format="gguf", paths={"model.gguf": "/…"}))
engine.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=8))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engines.native.config import EngineConfig
from engines.native.disk_setup import disk_of
from engines.native.draft import Step
from engines.native.grammar.constraints import constraints_of
from engines.native.pipeline import Pipeline
from engines.native.policies import policy_of
from engines.native.request import Finish, Request, SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.sample.logprobs import Top
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.speculation.proposer import Proposer, ProposerSettings
from engines.native.speculation.setup import speculation_of
from engines.native.step import StepOutput


@dataclass(slots=True)
class Generated:
    """logprobs, top: where asked. prompt_logprobs: of prompt tokens 1 …, where asked. Times: s since the call."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    message: str = ""
    cached_tokens: int = 0
    first_token_s: float = 0.0


class Offline:
    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner | None = None,
        proposers: Mapping[str, Callable[[ProposerSettings], Proposer]] | None = None,
    ) -> None:
        """`runner`: one that is built already, for `config`. proposers: in place of those that it names."""
        self.runner = runner or build_runner(config)
        sizes, disk = self.runner.sizes, disk_of(config, self.runner)
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=sizes.max_num_seqs,
                max_batched_tokens=sizes.max_batched_tokens,
                prefix_cache=config.prefix_cache,
                host_blocks=self.runner.host_blocks,
                swap_min_tokens=self.runner.swap_min_tokens,
                host_cache=config.host_prefix_cache or disk is not None,
                disk=disk,
                policy=policy_of(config),
                speculation=speculation_of(config, self.runner, proposers),
            ),
            num_blocks=self.runner.num_blocks,
            block_size=self.runner.block_size,
            max_model_len=self.runner.max_model_len,
            constraints=constraints_of(config),
        )
        self._next_id = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Generated]:
        """Run all prompts to their end, in the order given. A prompt that does not fit ends with Finish.ERROR.

        params: one for all, or one per prompt. The caller checks them, as the server's door does.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        begun = time.monotonic()
        results: dict[int, Generated] = {}
        for prompt, chosen in zip(prompts, each, strict=True):
            self._next_id += 1
            results[self._next_id] = Generated()
            ids = np.array(prompt, np.int32)
            self.scheduler.add(Request(id=self._next_id, token_ids=ids, params=chosen, prompt_len=len(ids)))
        pipeline = Pipeline(self.runner, self.scheduler)
        self._collect(results)  # a prompt that does not fit has ended already
        while self.scheduler.has_work or pipeline.in_flight:
            flight = pipeline.turn(time.monotonic())
            if flight is None and not pipeline.in_flight:
                time.sleep(0.001)  # a grammar is being compiled
            elif flight is not None:
                self._take(flight.step, flight.pending.wait(), results, begun)
            self._collect(results)
        pipeline.flush()
        return list(results.values())

    def close(self) -> None:
        """Wait for what is on its way to the disk. Nothing can be generated afterwards."""
        pipeline = Pipeline(self.runner, self.scheduler)
        while self.scheduler.host.restless:
            pipeline.flush()
            time.sleep(0.001)
        self.scheduler.host.close()

    def _take(self, step: Step, output: StepOutput, results: dict[int, Generated], begun: float) -> None:
        ids = self.scheduler.table.ids[step.plan.rows].tolist()
        for position, (first, values, _) in output.prompt_logprobs.items():
            scored = results[ids[position]].prompt_logprobs  # after a preemption it is scored again
            scored[first - 1 : first - 1 + len(values)] = values
        drawn = self.scheduler.commit(step, output)
        for request_id, token, position in zip(
            drawn.ids.tolist(), drawn.tokens.tolist(), drawn.positions.tolist(), strict=True
        ):
            _append(results[request_id], token, position, output, begun)

    def _collect(self, results: dict[int, Generated]) -> None:
        for request_id, cached in self.scheduler.started:
            results[request_id].cached_tokens = cached
        for ending in self.scheduler.endings:
            results[ending.id].finish, results[ending.id].message = ending.finish, ending.message
        self.scheduler.started, self.scheduler.endings = [], []


def _append(result: Generated, token: int, position: int, output: StepOutput, begun: float) -> None:
    if not result.token_ids:
        result.first_token_s = time.monotonic() - begun
    result.token_ids.append(token)
    if position in output.top:
        result.logprobs.append(float(output.logprobs[position]))
        result.top.append(output.top[position])
