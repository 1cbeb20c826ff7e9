"""Tokens that are drawn by chance have the same distribution with and without guesses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import build_runner
from engines.native.speculation.tree import Tree
from tests.engines.speculation.test_losslessness import config_of, every_guess_is_tried, sure
from tests.tiny_models import VOCAB, write_safetensors

pytestmark = pytest.mark.speculation
PROMPT = [5, 6, 7, 8]
SEEDS, SIDE_BY_SIDE = 1200, 8


class Fixed:
    """Guesses the same two tokens, and behind each the other: right about as often as they are likely."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = np.array([*tokens, tokens[1], tokens[0]], np.int32)

    def begin(self, row, salt, prompt_len):
        """It knows nothing."""

    def propose(self, rows, limit):
        tree = Tree(self._tokens, np.array([0, 0, 1, 2], np.int32), *sure(4))
        return [tree.kept(np.arange(4) < most) for most in limit.tolist()]

    def observe(self, rows, since):
        """It learns nothing."""

    def end(self, row):
        """It keeps nothing."""

    def stats(self):
        return {}

    def close(self):
        """It keeps nothing."""


def counted(engine: Offline, first_seed: int) -> np.ndarray:
    """How often each token came second and third, [2, vocab]."""
    counts = np.zeros((2, VOCAB))
    for seed in range(first_seed, first_seed + SEEDS, SIDE_BY_SIDE):
        asked = [
            SamplingParams(temperature=0.5, top_k=4, seed=seed + i, max_tokens=3, stop_token_ids=[])
            for i in range(SIDE_BY_SIDE)
        ]
        for answer in engine.generate([PROMPT] * SIDE_BY_SIDE, asked):
            for place in range(2):
                counts[place, answer.token_ids[place + 1]] += 1
    return counts


def test_chi_square_of_tokens_drawn_with_guesses_and_without(tmp_path: Path, monkeypatch):
    write_safetensors(tmp_path)
    config = config_of(tmp_path)
    runner = build_runner(config)
    every_guess_is_tried(monkeypatch)
    plain = counted(Offline(config, runner), 0)
    engine = Offline(config, runner, {"fixed": lambda _: Fixed(np.argsort(-plain[0])[:2].tolist())})
    guessed = counted(engine, 10 * SEEDS)  # other seeds: equal ones would give equal tokens
    assert engine.scheduler.speculator is not None
    assert engine.scheduler.speculator.counts.accepted > SEEDS / 20
    assert not np.array_equal(plain, guessed)
    for one, other in zip(plain, guessed, strict=True):
        seen = one + other >= 10
        statistic = ((one - other)[seen] ** 2 / (one + other)[seen]).sum()
        freedom = int(seen.sum()) - 1
        assert freedom >= 3
        assert statistic < freedom + 4 * math.sqrt(2 * freedom)  # passes in all but 1 of 10,000 honest cases
