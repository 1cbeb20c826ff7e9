"""Guesses change nothing of what is said: a tiny model with random weights, guesses of any form, right and wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.config import EngineConfig
from engines.native.offline import Generated, Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.speculation.budget import StepCosts
from engines.native.speculation.proposer import ProposerSettings
from engines.native.speculation.speculator import Speculator
from engines.native.speculation.tree import NOTHING, Int32, Tree
from engines.native.step import Drafts, StepPlan
from tests.engines.guessing import FREE
from tests.tiny_models import VOCAB, write_safetensors

pytestmark = pytest.mark.speculation


class Oracle:
    """Knows each row's answer, by its prompt; guesses trees in which a node is right with probability `right`."""

    def __init__(
        self, settings: ProposerSettings, answers: dict[tuple[int, ...], list[int]], right: float, seed: int = 3
    ) -> None:
        self._history, self._answers, self._right = settings.history, answers, right
        self._forks, self._random = settings.trees, random.Random(seed)
        self._known: dict[int, list[int]] = {}

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        prompt = self._history.token_ids[row, :prompt_len].tolist()
        self._known[row] = prompt + self._answers[tuple(prompt)]

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        return [self._tree(row, most) for row, most in zip(rows.tolist(), limit.tolist(), strict=True)]

    def _tree(self, row: int, most: int) -> Tree:
        right = self._known[row][self._history.known[row] :] + [0] * 8
        count = min(most, self._random.randint(0, 7))
        if not count:
            return NOTHING
        depth, tokens, parents = [0], [], []
        for node in range(1, count + 1):
            parent = self._random.randrange(node) if self._forks and self._random.random() < 0.4 else node - 1
            good = self._random.random() < self._right
            tokens.append(right[depth[parent]] if good else self._random.randrange(VOCAB))
            parents.append(parent)
            depth.append(depth[parent] + 1)
        return Tree(np.array(tokens, np.int32), np.array(parents, np.int32), *sure(count))

    def observe(self, rows: Int32, since: Int32) -> None:
        """It knows all."""

    def end(self, row: int) -> None:
        del self._known[row]

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is kept."""


def every_guess_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a pass took the same time whatever it carries, and asking none."""
    monkeypatch.setattr(Speculator, "active", property(lambda _: True))
    monkeypatch.setattr("engines.native.speculation.speculator.MEETING_S", 60)
    monkeypatch.setattr("engines.native.speculation.setup.prior_of", lambda _: FREE)
    monkeypatch.setattr(StepCosts, "saw_plain", lambda *_: None)
    monkeypatch.setattr(StepCosts, "saw_verify", lambda *_: None)


def sure(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(count, 0.9, np.float32), np.zeros(count, np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_safetensors(folder)
    return folder


def config_of(folder: Path, **changes) -> EngineConfig:
    paths = {path.name: str(path) for path in folder.iterdir()}
    sizes = {"max_model_len": 96, "max_num_seqs": 8, "kv_cache_bytes": 2**20, "threads": 1, "speculation": "off"}
    return EngineConfig(format="safetensors", paths=paths, **{"dtype": "float32", **sizes, **changes})


PROMPTS = [[5, 6, 7, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [9], [3, 3, 3, 3, 3, 3, 3, 3]]
ASKED = {
    "greedy": SamplingParams(temperature=0, max_tokens=24),
    "drawn": SamplingParams(temperature=1, seed=7, max_tokens=24),
    "filtered": SamplingParams(temperature=0.8, top_p=0.9, top_k=40, seed=8, max_tokens=24),
    "penalties": SamplingParams(
        temperature=0.7, seed=3, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, max_tokens=24
    ),
    "history": SamplingParams(
        temperature=0, no_repeat_ngram_size=2, bad_words=[[4, 5]], dry_multiplier=1, max_tokens=24
    ),
    "bias": SamplingParams(
        temperature=0, logit_bias={4: 2.0, 9: -1.0}, min_tokens=5, stop_token_ids=[4], max_tokens=24
    ),
    "stops": SamplingParams(temperature=1, seed=5, stop_token_ids=list(range(20)), max_tokens=24),
    "logprobs": SamplingParams(temperature=0, logprobs=3, max_tokens=24),
}


def built(config: EngineConfig, *, forks: bool = True) -> ModelRunner:
    """forks: its passes verify trees, as on a GPU, but in strict mode."""
    runner = build_runner(config)
    runner.model.ops.trees = forks and not config.strict
    return runner


def answers(config: EngineConfig, runner: ModelRunner, asked: list[SamplingParams]) -> list[Generated]:
    return Offline(config, runner).generate(PROMPTS, asked)


@pytest.mark.parametrize("right", [0.3, 0.95])
@pytest.mark.parametrize(("strict", "forks"), [(False, True), (False, False), (True, False)])
def test_the_same_is_said_with_any_guesses(model, monkeypatch, strict, forks, right):
    config = config_of(model, strict=strict)
    runner = built(config, forks=forks)
    every_guess_is_tried(monkeypatch)
    accepted = 0
    for name, params in ASKED.items():
        asked = [params] * len(PROMPTS)
        plain = answers(config, runner, asked)
        known = {tuple(prompt): each.token_ids for prompt, each in zip(PROMPTS, plain, strict=True)}
        engine = Offline(config, runner, {"oracle": lambda settings, known=known: Oracle(settings, known, right)})
        found = engine.generate(PROMPTS, asked)
        assert [each.token_ids for each in found] == [each.token_ids for each in plain], name
        assert [each.finish for each in found] == [each.finish for each in plain]
        for one, other in zip(found, plain, strict=True):
            assert one.logprobs == (other.logprobs if strict else pytest.approx(other.logprobs, abs=1e-4))
            assert [ids for ids, _ in one.top] == [ids for ids, _ in other.top]
        assert engine.scheduler.speculator is not None
        counts = engine.scheduler.speculator.counts
        assert counts.verified > 0
        accepted += counts.accepted
        assert engine.scheduler.check() == []
    assert accepted > (150 if right > 0.9 else 20)


@pytest.mark.parametrize("strict", [False, True])
def test_guesses_of_two_that_part_make_no_forks_where_none_may_be(model, monkeypatch, strict):
    """Chains of two proposers make a fork where they differ: not in strict mode, nor under penalties."""
    config = config_of(model, strict=strict)
    runner = built(config)
    every_guess_is_tried(monkeypatch)
    for name in ("greedy", "penalties", "history", "bias"):
        asked = [ASKED[name]] * len(PROMPTS)
        plain = answers(config, runner, asked)
        known = {tuple(prompt): each.token_ids for prompt, each in zip(PROMPTS, plain, strict=True)}
        two = {
            "good": lambda settings, known=known: Oracle(settings, known, 0.9),
            "poor": lambda settings, known=known: Oracle(settings, known, 0.3, seed=8),
        }
        engine = Offline(config, runner, two)
        assert [each.token_ids for each in engine.generate(PROMPTS, asked)] == [each.token_ids for each in plain], name
        assert engine.scheduler.speculator is not None
        assert engine.scheduler.speculator.counts.accepted > 10


@pytest.mark.parametrize("changes", [{"dtype": "int8"}, {"kv_cache_dtype": "int8"}, {"embedding_dtype": "int8"}])
def test_the_same_is_said_with_quantized_weights_and_cache_g3(model, monkeypatch, changes):
    config = config_of(model, **changes)
    runner = built(config)
    every_guess_is_tried(monkeypatch)
    asked = [ASKED["greedy"]] * len(PROMPTS)
    plain = answers(config, runner, asked)
    known = {tuple(prompt): each.token_ids for prompt, each in zip(PROMPTS, plain, strict=True)}
    engine = Offline(config, runner, {"oracle": lambda settings: Oracle(settings, known, 0.9)})
    assert [each.token_ids for each in engine.generate(PROMPTS, asked)] == [each.token_ids for each in plain]
    assert engine.scheduler.speculator is not None
    assert engine.scheduler.speculator.counts.accepted > 10


def test_all_kinds_of_requests_side_by_side(model, monkeypatch):
    config = config_of(model)
    runner = built(config)
    every_guess_is_tried(monkeypatch)
    asked = [ASKED[name] for name in ("greedy", "penalties", "drawn", "logprobs")]
    plain = answers(config, runner, asked)
    known = {tuple(prompt): each.token_ids for prompt, each in zip(PROMPTS, plain, strict=True)}
    engine = Offline(config, runner, {"oracle": lambda settings: Oracle(settings, known, 0.8)})
    assert [each.token_ids for each in engine.generate(PROMPTS, asked)] == [each.token_ids for each in plain]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_each_node_of_a_tree_draws_what_its_path_alone_would_g7(data, runner):
    by_brute_force(data, runner)


@pytest.mark.nightly
@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_a_thousand_trees(data, runner):
    by_brute_force(data, runner)


def by_brute_force(data, runner) -> None:
    """What stands behind a node is what a pass over the path from the root to it gives."""
    count = data.draw(st.integers(1, 12))
    parents = np.array([data.draw(st.integers(0, node)) for node in range(count)], np.int32)
    tokens = np.array([data.draw(st.integers(0, VOCAB - 1)) for _ in range(count)], np.int32)
    prompt = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=20))
    greedy = SamplingParams(temperature=0, logprobs=0)
    chains = bool((parents == np.arange(count)).all())
    drafts = Drafts(tokens[None], parents[None], np.array([count], np.int32), chains)
    first = len(prompt) - 1
    runner.add(0, prompt, greedy, len(prompt))
    blocks = [(0, 0, list(range(1, 7)))]
    launch(runner, StepPlan(*arrays(0, first), np.array([False]), blocks))
    seen: list[np.ndarray] = []
    original = runner.sampler.sample

    def sample(logits, *rest):
        seen.append(logits.clone().numpy())
        return original(logits, *rest)

    runner.sampler.sample = sample
    try:
        launch(runner, StepPlan(*arrays(first, 1 + count), np.array([True]), drafts=drafts))
    finally:
        del runner.sampler.sample
    for node in range(count + 1):
        path: list[int] = []
        at = node
        while at:
            path.insert(0, int(tokens[at - 1]))
            at = int(parents[at - 1])
        whole = [*prompt, *path]
        runner.add(0, whole, greedy, len(prompt))
        alone: list[np.ndarray] = []
        runner.sampler.sample = lambda logits, *rest, alone=alone: (
            alone.append(logits.clone().numpy()) or original(logits, *rest)
        )
        try:
            launch(runner, StepPlan(*arrays(0, len(whole)), np.array([True]), blocks))
        finally:
            del runner.sampler.sample
        np.testing.assert_allclose(seen[0][node], alone[0][0], rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def runner(model) -> ModelRunner:
    return build_runner(config_of(model))


def arrays(start: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.array([value], np.int32) for value in (0, start, count))


def launch(runner: ModelRunner, plan: StepPlan):
    return runner.launch(plan).wait()
