"""Medusa heads in both forms against plain torch, on the target's last hidden states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engines.native.config import ConfigError
from engines.native.loader.errors import BadModel
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.speculation.proposer import ProposerSettings, make_proposer
from plugins.speculative.medusa import Medusa
from tests.engines.models.harness import token_ids
from tests.engines.speculation.test_losslessness import every_guess_is_tried
from tests.plugins.speculative.drive import history_of
from tests.plugins.speculative.heads import HIDDEN, VOCAB, runner_of, states, target_model, written

pytestmark = pytest.mark.speculation

HEADS, BLOCKS = 3, 2
PROMPTS = [token_ids(3, 9), token_ids(4, 4)]


def weights_of(seed: int) -> dict[str, torch.Tensor]:
    """By the names of the paper's authors."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for head in range(HEADS):
        for block in range(BLOCKS):
            weights[f"{head}.{block}.linear.weight"] = torch.randn(HIDDEN, HIDDEN, generator=generator) * 0.1
            weights[f"{head}.{block}.linear.bias"] = torch.randn(HIDDEN, generator=generator) * 0.1
        weights[f"{head}.{BLOCKS}.weight"] = torch.randn(VOCAB, HIDDEN, generator=generator) * 0.3
    return weights


def authors(folder: Path, weights: dict[str, torch.Tensor], **said: Any) -> tuple[str, dict[str, str]]:
    return written(folder, {"medusa_num_heads": HEADS, "medusa_num_layers": BLOCKS, **said}, weights)


def vllm(folder: Path, weights: dict[str, torch.Tensor]) -> tuple[str, dict[str, str]]:
    renamed = {}
    for name, each in weights.items():
        head, block, *rest = name.split(".")
        renamed[f"lm_heads.{head}.weight" if rest == ["weight"] else f"blocks.{head}.layers.{block}.{rest[-1]}"] = each
    said = {"num_heads": HEADS, "hidden_size": HIDDEN, "vocab_size": VOCAB}
    return written(folder, {"medusa_num_heads": HEADS, "medusa_num_layers": BLOCKS, **said}, renamed)


class Watching(Medusa):
    """Remembers what it was asked and what it said."""

    def __init__(self, settings: ProposerSettings) -> None:
        super().__init__(settings)
        self.asked: list[tuple[list[int], Any]] = []

    def propose(self, rows, limit):  # type: ignore[no-untyped-def]
        trees = super().propose(rows, limit)
        for row, tree in zip(rows.tolist(), trees, strict=True):
            known = self._history.token_ids[row, : self._history.known[row]].tolist()
            self.asked.append((known, tree))
        return trees


@pytest.mark.parametrize("form", [authors, vllm])
def test_each_head_says_what_plain_torch_makes_of_the_last_state(
    tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, weights = target_model(), weights_of(1)
    runner, config = runner_of(tmp_path / "target", model)
    params = SamplingParams(temperature=0, max_tokens=12)
    plain = Offline(config, runner).generate(PROMPTS, params)
    draft = form(tmp_path / "heads", weights)
    every_guess_is_tried(monkeypatch)
    made: list[Watching] = []

    def make(settings: ProposerSettings) -> Watching:
        made.append(Watching(replace(settings, draft=draft, options={"least_survival": 0, "branches": 2})))
        return made[0]

    engine = Offline(config, runner, {"medusa": make})
    found = engine.generate(PROMPTS, params)
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    asked = [(known, tree) for known, tree in made[0].asked if len(tree)]
    assert len(asked) > 10
    for known, tree in asked:
        x = states(model, known)[-1][-2]
        for depth in range(int((tree.parents == np.arange(len(tree))).cumprod().sum())):
            y = x
            for block in range(BLOCKS):
                name = f"{depth}.{block}.linear"
                y = y + F.silu(F.linear(y, weights[f"{name}.weight"], weights[f"{name}.bias"]))
            chances = F.linear(y, weights[f"{depth}.{BLOCKS}.weight"]).softmax(-1)
            assert tree.tokens[depth] == chances.argmax()
            assert tree.confidence[depth] == pytest.approx(float(chances.max()), rel=2e-3)
    stats = made[0].stats()
    assert stats["weights_bytes"] >= HEADS * (BLOCKS * HIDDEN + VOCAB) * HIDDEN * 4
    assert stats["features_bytes"] == runner.num_blocks * runner.block_size * HIDDEN * 4


def test_heads_of_another_model_are_refused_with_both_numbers(tmp_path: Path) -> None:
    runner, _ = runner_of(tmp_path / "target", target_model())

    def refused(draft: tuple[str, dict[str, str]], kind: type[Exception] = ConfigError) -> str:
        with pytest.raises(kind) as caught:
            make_proposer("medusa", ProposerSettings(history_of(4, 64), VOCAB, runner=runner, draft=draft))
        return str(caught.value)

    weights = weights_of(1)
    message = refused(authors(tmp_path / "a", weights, hidden_size=64))
    assert "64" in message
    assert str(HIDDEN) in message
    assert "999" in refused(authors(tmp_path / "b", weights, vocab_size=999))
    del weights["1.0.linear.weight"]
    assert "1.0.linear.weight" in refused(authors(tmp_path / "c", weights), BadModel)
