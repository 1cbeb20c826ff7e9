"""Drives a scheduler and a runner step by step and records what each client would have got."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engines.native.pace import TargetPace
from engines.native.pipeline import Pipeline
from engines.native.policies import Policy
from engines.native.request import Finish, Request, SamplingParams, Timeouts
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.speculation.proposer import History
from engines.native.speculation.speculator import Speculator
from tests.engines.fake_disk import FakeDisk
from tests.engines.fake_grammar import CountingConstraints
from tests.engines.fake_runner import FakeRunner


class Driver:
    def __init__(self, *, blocks: int = 32, block_size: int = 4, rows: int = 4, budget: int = 16, cache: bool = True,
                 depth: int = 1, host_blocks: int = 0, swap_min: int = 1, policy: Policy | None = None,
                 host_cache: bool = False, disk: Path | None = None, target: float = 0,
                 speculation: Callable[[History], Speculator] | None = None, **of_disk: Any):  # fmt: skip
        self.runner = FakeRunner(blocks, block_size, max_num_seqs=rows, depth=depth, host_blocks=host_blocks)
        self.disk = FakeDisk(disk, self.runner, **of_disk) if disk and cache and host_blocks else None
        self.config = SchedulerConfig(
            max_num_seqs=rows,
            max_batched_tokens=budget,
            prefix_cache=cache,
            host_blocks=host_blocks,
            swap_min_tokens=swap_min,
            host_cache=host_cache or self.disk is not None,
            disk=self.disk.tier if self.disk else None,
            policy=policy,
            pace=TargetPace(target, block_size, lambda: self.now) if target else None,
            speculation=speculation,
        )
        self.scheduler = Scheduler(
            self.config, num_blocks=blocks, block_size=block_size, max_model_len=64, constraints=CountingConstraints()
        )
        self.pipeline = Pipeline(self.runner, self.scheduler)
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.endings: dict[int, Finish] = {}
        self.messages: dict[int, str] = {}
        self.codes: dict[int, str] = {}
        self.cached: dict[int, int] = {}
        self.disk_works = True  # its threads, in each step
        self.ids = 0
        self.now = 0.0

    def add(
        self,
        prompt: list[int],
        *,
        salt: str = "",
        priority: int = 0,
        tenant: str = "",
        timeouts: Timeouts = Timeouts(),
        **params: object,
    ) -> int:
        self.ids += 1
        request = Request(
            id=self.ids,
            token_ids=np.array(prompt, np.int32),
            params=SamplingParams(**{"temperature": 0.0, **params}),  # type: ignore[arg-type]
            prompt_len=len(prompt),
            priority=priority,
            salt=salt,
            tenant=tenant,
            arrived=self.now,
            queue_deadline=self.now + (timeouts.queue or math.inf),
            first_token_deadline=self.now + (timeouts.first_token or math.inf),
            deadline=self.now + (timeouts.total or math.inf),
        )
        self.submit(request)
        return self.ids

    def submit(self, request: Request) -> None:
        self.scheduler.add(request)
        self.collect()

    def step(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """One turn; False if nothing was launched or committed. `meanwhile` happens between launch and commit."""
        before = self.runner.steps
        if self.disk is not None and self.disk_works:
            self.disk.work()
        flight = self.pipeline.turn(self.now)
        if flight is not None:
            assert flight.step.plan.tokens <= self.config.max_batched_tokens
            output = flight.pending.wait()
            meanwhile()
            drawn = self.scheduler.commit(flight.step, output)
            for request_id, token in zip(drawn.ids.tolist(), drawn.tokens.tolist(), strict=True):
                assert request_id not in self.endings, "a token after the ending"
                self.tokens[request_id].append(token)
        self.collect()
        assert self.scheduler.check() == []
        return flight is not None or self.runner.steps > before

    def write_out(self) -> None:
        """As an idle core does."""
        assert self.disk is not None
        for _ in range(200):
            self.pipeline.flush()
            assert self.scheduler.check() == []
            self.disk.work()
            if not self.scheduler.host.restless and not self.disk.writer.waiting and not self.disk.readers.waiting:
                break
        else:
            raise AssertionError("the disk is never done")
        self.pipeline.flush()

    def collect(self) -> None:
        for request_id, cached in self.scheduler.started:
            self.cached[request_id] = cached
        for ending in self.scheduler.endings:
            assert ending.id not in self.endings, "a request ended twice"
            self.endings[ending.id] = ending.finish
            self.messages[ending.id] = ending.message
            self.codes[ending.id] = ending.code
        self.scheduler.started.clear()
        self.scheduler.endings.clear()

    def run(self, limit: int = 2000) -> None:
        """Until idle. Fails if that takes more steps than any fair schedule needs."""
        for _ in range(limit):
            if not self.step() and not self.scheduler.has_work and not self.pipeline.in_flight:
                break
        else:
            raise AssertionError("no end in sight: requests starve")
        if self.disk is not None and self.disk_works:
            self.write_out()
        assert self.scheduler.pool.used == 0
        assert self.scheduler.host.used == 0
        assert self.scheduler.check() == []
