"""What the option `speculation` means for an engine: which proposers, what passes cost, whether it verifies trees."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from engines.native.config import ConfigError, EngineConfig
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.speculation.budget import StepCosts
from engines.native.speculation.heads import config_of, head_kind
from engines.native.speculation.names import AUTO, DRAFTING, OFF
from engines.native.speculation.proposer import History, Proposer, ProposerSettings, factory, make_proposer
from engines.native.speculation.speculator import Speculator
from engines.native.speculation.tree import MAX_NODES
from engines.native.step import Drafts, StepPlan

log = logging.getLogger(__name__)

BY_ITSELF = "lookahead"
"""What `auto` is, where it is installed."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Tokens of the passes that are timed at start."""
MOST_S = 2.0
"""Seconds that timing them may take; larger passes are then reckoned."""
HOST_S, ROW_S = 3e-4, 6e-5
"""What a pass with drafts takes besides, in all and for each row, before any was seen: asking, choosing, and the way to
the device and back, which no other pass hides."""
IN_A_ROW = 4
"""Passes of one size that are launched one behind the other, as a plain engine does."""

MakeSpeculator = Callable[[History], Speculator]


def speculation_of(
    config: EngineConfig,
    runner: ModelRunner,
    proposers: Mapping[str, Callable[[ProposerSettings], Proposer]] | None = None,
    folder: Path | None = None,
) -> MakeSpeculator | None:
    """None where the engine says one token a step. proposers: in place of those that the option names. folder: where
    they may keep files.

    Raises ConfigError for a name that nothing has.
    """
    named = proposers if proposers is not None else _named(config)
    if not named:
        return None
    trees = runner.verifies_trees
    costs = StepCosts(prior_of(runner), HOST_S, ROW_S)

    def make(history: History) -> Speculator:
        settings = ProposerSettings(
            history,
            runner.vocab_size,
            identity=_identity(config),
            folder=folder,
            trees=trees,
            runner=runner,
            draft=(config.draft_format, dict(config.draft_paths)) if config.draft_format else None,
            target=(config.format, dict(config.paths)) if config.paths else None,
        )
        if proposers is None:
            made = {name: make_proposer(name, settings) for name in named}
        else:
            made = {name: each(settings) for name, each in proposers.items()}
        return Speculator(
            made, history, costs, padded=runner.device.type == "cuda", trees=trees, vocab=runner.vocab_size
        )

    return make


def _named(config: EngineConfig) -> dict[str, Callable[[ProposerSettings], Proposer]]:
    if config.speculation == OFF:
        return {}
    if config.speculation == AUTO:
        names = [BY_ITSELF, drafting(config)] if config.draft_format else [BY_ITSELF]
        try:
            return {name: factory(name) for name in names}
        except ConfigError as error:
            log.warning("%s; the engine goes on without speculation", error)
            return {}
    names = config.speculation.split("+")
    for name in DRAFTING:
        if name in names and not config.draft_format:
            raise ConfigError(f"speculation names {name!r}, but no draft model is given; choose one, or leave it out")
        if name in names and name != (kind := drafting(config)):
            raise ConfigError(f"speculation names {name!r}, but the draft's files are for {kind!r}: name that instead")
    return {name: factory(name) for name in names}


def drafting(config: EngineConfig) -> str:
    """Which of `DRAFTING` the draft's files are for. Raises BadModel for a config.json that is none."""
    return head_kind(config_of(config.draft_format, config.draft_paths)) or "draft"


def _identity(config: EngineConfig) -> str:
    """Of the model's files: what was said by another is no guide."""
    known = sorted(config.digests.items()) or sorted((name, str(path)) for name, path in config.paths.items())
    return hashlib.sha256(repr(known).encode()).hexdigest()


def prior_of(runner: ModelRunner) -> list[tuple[int, float]]:
    """(tokens, seconds) of passes of one token in so many rows. As `warm_up`, they write to the null block in row 0,
    which the first request fills anew."""
    found: list[tuple[int, float]] = []
    begun = time.monotonic()
    sizes = runner.sizes
    # Beyond them one row and its guesses, which a GPU would capture one more graph for.
    more = 0 if runner.device.type == "cuda" else min(MAX_NODES + 1, sizes.max_model_len - 1)
    most = max(sizes.max_num_seqs, more)
    runner.add(0, [0, 0], SamplingParams(temperature=0), 2)
    for size in SIZES:
        if len(found) > 1 and (size > most or time.monotonic() - begun > MOST_S):
            break
        if size > sizes.max_num_seqs:
            row, one, many = np.array([[0], [1], [size]], np.int32)
            guesses = np.zeros((1, size - 1), np.int32)
            drafts = Drafts(guesses, np.arange(size - 1, dtype=np.int32)[None], many - 1, chains=True)
            plan = StepPlan(row, one, many, sample=one > 0, drafts=drafts)
        else:
            row, one = np.zeros(size, np.int32), np.ones(size, np.int32)
            plan = StepPlan(row, one, one, sample=one > 0)
        runner.launch(plan).wait()  # compiles, captures
        runner.launch(plan).wait()
        count = IN_A_ROW if runner.depth > 1 else 1
        before = time.monotonic()
        for pending in [runner.launch(plan) for _ in range(count)]:
            pending.wait()
        seconds = (time.monotonic() - before) / count
        found.append((size, max(seconds, found[-1][1] if found else 0.0)))
    return found
