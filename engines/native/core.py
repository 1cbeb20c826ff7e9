"""The core process: scheduler and model, nothing else. Started by the API process, ends with it.

    python -m engines.native.core --run-dir DIR --sockets DIR --parent PID

One turn of the loop: take in messages, plan and launch a step, take in the oldest one, send what it brought.
"""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engines.api import RunDir
from engines.native import threads
from engines.native.config import from_launch
from engines.native.diagnosis import Diagnosis
from engines.native.draft import Drawn, Step
from engines.native.grammar.constraints import Constraints, constraints_of
from engines.native.ipc import (
    Add,
    CoreLink,
    End,
    Ending,
    Loading,
    MemoryAsked,
    PromptLogprobs,
    Ready,
    Shutdown,
    SpeculationCounts,
    ToCore,
    Trace,
    Update,
)
from engines.native.load_failure import load_failure
from engines.native.pace import pace_of
from engines.native.parent import die_with, is_child_of
from engines.native.pipeline import Pipeline
from engines.native.policies import policy_of
from engines.native.request import Request
from engines.native.scheduler import Scheduler, SchedulerConfig
from engines.native.speculation.speculator import Speculator
from engines.native.step import Runner, StepOutput
from engines.native.step_clock import COMMIT, OUTSIDE, SEND, WAIT

log = logging.getLogger(__name__)

IDLE_MS = 1000
"""How often an idle core looks after its parent and its pools."""
FLUSH_MS = 20
"""And while KV blocks wait to go to the disk."""
WRITE_OUT_S = 2.0
"""What they have at the end; the process that stops us waits five seconds."""
MAX_FAILED_STEPS = 3
"""Failed passes in a row after which the device or the model is taken to be broken, and the process ends."""


class Core:
    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        link: CoreLink,
        parent: int,
        memory: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """memory: `engines.native.memory_table` of the runner, where there is one."""
        self.scheduler, self.link, self.parent = scheduler, link, parent
        self.pipeline = Pipeline(runner, scheduler)
        self._diagnosis = Diagnosis(self.pipeline, link.send, memory)
        self._stopping = False
        self._failed_steps = 0
        self._checked = True  # pools, since the last work

    def run(self) -> None:
        """Until Shutdown. Raises what a broken device raises, after MAX_FAILED_STEPS tries."""
        while not self._stopping:
            busy = self.scheduler.has_work or self.pipeline.in_flight > 0
            idle_ms = FLUSH_MS if self.scheduler.host.restless else IDLE_MS
            for message in self.link.receive(0 if busy else idle_ms):
                self._take(message)
            if self.scheduler.has_work or self.pipeline.in_flight:
                self._checked = False
                self._turn()
                self.pipeline.clock.enter(OUTSIDE)
            elif self.scheduler.endings:
                self._report(None, None)
            elif not busy:
                self._idle()
        if not self.pipeline.in_flight:
            self._write_out()
            if self.scheduler.speculator is not None:
                self.scheduler.speculator.close()

    def _take(self, message: ToCore) -> None:
        match message:
            case Add():
                now = time.monotonic()
                token_ids = np.frombuffer(message.token_ids, np.int32)
                self.scheduler.add(
                    Request(
                        id=message.id,
                        token_ids=token_ids,
                        params=message.params,
                        prompt_len=len(token_ids),
                        priority=message.priority,
                        salt=message.salt,
                        tenant=message.tenant,
                        arrived=now,
                        queue_deadline=now + (message.timeouts.queue or math.inf),
                        first_token_deadline=now + (message.timeouts.first_token or math.inf),
                        deadline=now + (message.timeouts.total or math.inf),
                    )
                )
            case End():
                for request_id in message.ids:
                    self.scheduler.end(request_id, message.finish)
            case Shutdown():
                self._stopping = True
            case Trace() | MemoryAsked():
                self._diagnosis.take(message)

    def _turn(self) -> None:
        launched = self.pipeline.in_flight
        flight = self.pipeline.turn(time.monotonic())
        if flight is None:
            if self.scheduler.endings:
                self._report(None, None)
            if self.pipeline.in_flight == launched:
                time.sleep(0.001)  # what waits can't be computed yet
            return
        step = flight.step
        self.pipeline.clock.enter(WAIT)
        try:
            output = flight.pending.wait()
        except Exception as error:
            log.exception("step %d failed; its %d requests end with an error", step.number, len(step.plan.rows))
            self.scheduler.fail(step, f"the engine failed in this step: {type(error).__name__}: {error}")
            self._report(None, None)
            self._failed_steps += 1
            if self._failed_steps >= MAX_FAILED_STEPS:
                raise
            return
        self._failed_steps = 0
        self.pipeline.clock.enter(COMMIT)
        scored = self._prompt_logprobs(step, output)
        self._report(self.scheduler.commit(step, output), output, scored)

    def _prompt_logprobs(self, step: Step, output: StepOutput) -> list[PromptLogprobs]:
        """Before `commit`, while the rows still have their owners."""
        ids = self.scheduler.table.ids
        return [
            PromptLogprobs(int(ids[step.plan.rows[position]]), first, values, top)
            for position, (first, values, top) in output.prompt_logprobs.items()
        ]

    def _report(
        self, drawn: Drawn | None, output: StepOutput | None, scored: list[PromptLogprobs] | None = None
    ) -> None:
        scheduler = self.scheduler
        update = Update(
            b"",
            b"",
            b"",
            {},
            scored or [],
            scheduler.started,
            [
                Ending(ending.id, ending.finish, ending.message, ending.code, ending.drafted)
                for ending in scheduler.endings
            ],
            len(scheduler.running),
            len(scheduler.waiting),
            scheduler.pool.used,
            scheduler.preemptions,
            scheduler.host.swaps,
            scheduler.host.used,
            scheduler.waiting.tenants,
            disk=scheduler.host.disk.counts() if scheduler.host.disk is not None else None,
        )
        if scheduler.speculator is not None:
            update.speculation = _counts(scheduler.speculator)
            if drawn is not None and drawn.sources is not None and (drawn.sources >= 0).any():
                update.sources = drawn.sources.tobytes()
        if drawn is not None and output is not None:
            self.pipeline.clock.enter(SEND)
            update.phases = self.pipeline.clock.take()
            update.ids, update.tokens = drawn.ids.tobytes(), drawn.tokens.tobytes()
            logprobs = output.logprobs[drawn.positions]
            if not np.isnan(logprobs).all():
                update.logprobs = logprobs.tobytes()
            if output.top:
                place = {position: index for index, position in enumerate(drawn.positions.tolist())}
                update.top = {place[at]: top for at, top in output.top.items() if at in place}
        self.link.send(update)
        scheduler.started, scheduler.endings = [], []

    def _write_out(self) -> None:
        """What waits to go to the disk goes there, for at most WRITE_OUT_S. Then the process may end."""
        until = time.monotonic() + WRITE_OUT_S
        while self.scheduler.host.restless and time.monotonic() < until:
            self.pipeline.flush()
            time.sleep(0.002)
        self.scheduler.host.close()

    def _idle(self) -> None:
        self.pipeline.clock.idle()
        if not is_child_of(self.parent):
            log.warning("the API process is gone")
            self._stopping = True
        self.pipeline.flush()
        if self.scheduler.host.disk is not None:
            self._report(None, None)  # what its threads have done since
        if not self._checked:
            self._checked = True
            self.scheduler.heal()


def _counts(speculator: Speculator) -> SpeculationCounts:
    counts = speculator.counts
    return SpeculationCounts(
        steps=counts.steps,
        verified=counts.verified,
        rows=counts.rows,
        drafted=counts.drafted,
        accepted=counts.accepted,
        by_source={name: (drafted, accepted) for name, (drafted, accepted) in counts.by_source.items()},
        saved_s=counts.saved_s,
        speedup=counts.speedup,
        width=speculator.width,
    )


@dataclass(frozen=True, slots=True)
class Served:
    """What a core serves. facts: plain values, as state.json and the console show them. constraints: None where
    grammars can't be followed. memory: where the runner's memory is; None where it can't be told."""

    runner: Runner
    config: SchedulerConfig
    facts: dict[str, Any]
    constraints: Constraints | None = None
    memory: Callable[[], dict[str, Any]] | None = None


Build = Callable[[Path, Callable[[float, str], None]], Served]
"""(run folder, progress(share, text)) → what to serve. Raises BadModel or ValueError if it can't be served."""


def serve(arguments: argparse.Namespace, build: Build) -> int:
    """Load, report, and loop until told to stop. Returns the exit status."""
    die_with(arguments.parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # a signal to the group drains the API process, which ends us
        signal.signal(number, signal.SIG_IGN)
    link = CoreLink(arguments.sockets)
    try:
        try:
            served = build(arguments.run_dir, lambda share, text: link.send(Loading(share, text)))
            runner = served.runner
            scheduler = Scheduler(
                served.config,
                num_blocks=runner.num_blocks,
                block_size=runner.block_size,
                max_model_len=runner.max_model_len,
                constraints=served.constraints,
            )
        except Exception as error:  # whatever it is, it is said once, and not tried again and again
            log.exception("the model cannot be served")
            link.send(load_failure(error))
            return 2
        config, facts = served.config, dict(served.facts)
        if scheduler.speculator is not None:
            facts["speculation"] |= {"proposers": list(scheduler.speculator.names)}
        link.send(Ready(runner.num_blocks, runner.block_size, scheduler.max_len, config.max_num_seqs, facts))
        Core(runner, scheduler, link, arguments.parent, served.memory).run()
        return 0
    finally:
        link.close()


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engines.native.core", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--sockets", type=Path, required=True, help="private folder of the two sockets")
    parser.add_argument("--parent", type=int, required=True, help="process id of the API process")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s core %(levelname)s %(name)s: %(message)s")
    return parser.parse_args(argv)


def build(run_dir: Path, progress: Callable[[float, str], None]) -> Served:
    """The model of the spec in `run_dir`. torch is imported only here."""
    threads.may_spin()
    from engines.native.disk_setup import disk_of
    from engines.native.memory_table import table
    from engines.native.runner import build_runner
    from engines.native.sizes import device_of
    from engines.native.speculation.setup import speculation_of

    spec, local = RunDir(run_dir).read_spec()
    config = from_launch(spec, local)
    if device_of(config).type == "cpu":
        threads.watch(config.cores)
    policy = policy_of(config)  # before the weights: a name that nothing has is told at once
    runner = build_runner(config, lambda share: progress(share, "loading the weights"))
    disk = disk_of(config, runner)
    sizes = runner.sizes
    scheduling = SchedulerConfig(
        max_num_seqs=sizes.max_num_seqs,
        max_batched_tokens=sizes.max_batched_tokens,
        prefix_cache=config.prefix_cache,
        host_blocks=runner.host_blocks,
        swap_min_tokens=runner.swap_min_tokens,
        host_cache=config.host_prefix_cache or disk is not None,
        disk=disk,
        policy=policy,
        pace=pace_of(config, sizes.block_size),
        speculation=speculation_of(config, runner, folder=Path(local.cache_dir or run_dir)),
    )
    facts = {
        "architecture": runner.config.architecture,
        "device": str(runner.device),
        "dtype": sizes.dtype,
        "max_model_len": sizes.max_model_len,
        "max_num_seqs": sizes.max_num_seqs,
        "kv_blocks": sizes.num_blocks - 1,
        "block_size": sizes.block_size,
        "kv_cache_bytes": sizes.plan.kv_cache,
        "swap_blocks": sizes.host_blocks,
        "swap_min_tokens": scheduling.swap_min_tokens,
        **({} if disk is None else disk.facts()),
        "policy": config.policy,
        "target_tpot_ms": config.target_tpot_ms,
        "max_batched_tokens": sizes.max_batched_tokens,
        "prefix_cache": config.prefix_cache,
        "embedding_dtype": config.embedding_dtype,
        **({"quantization": found} if (found := runner.model.weights.quantization) else {}),
        "offload_layers": config.offload_layers,
        "speculation": {"mode": config.speculation, "proposers": []},
    }
    return Served(runner, scheduling, facts, constraints_of(config), partial(table, runner))


if __name__ == "__main__":
    sys.exit(serve(parse(), build))
