"""EAGLE-3 heads of both dialects against plain torch; guesses that rest on nothing but what was said; G9."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engines.native.config import ConfigError, EngineConfig
from engines.native.disk_setup import facts
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import open_model
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from engines.native.speculation.proposer import ProposerSettings, make_proposer
from engines.native.speculation.setup import drafting, speculation_of
from engines.native.speculation.tree import Tree
from evaluation.benchmarks.random_model import greedy
from plugins.speculative.eagle3 import Eagle3
from plugins.speculative.eagle_head import EagleHead
from tests.engines.models.harness import token_ids
from tests.engines.speculation.test_losslessness import every_guess_is_tried
from tests.plugins.speculative.drive import begin, grow, history_of, propose
from tests.plugins.speculative.heads import (
    DRAFT_VOCAB,
    HIDDEN,
    LAYERS,
    VOCAB,
    PlainHead,
    compute,
    layer_config,
    random_head,
    runner_of,
    states,
    target_model,
    write_eagle,
    write_speculators,
)

pytestmark = pytest.mark.speculation

DEFAULT = (2, LAYERS // 2, LAYERS - 3)
PROMPTS = [token_ids(3, 19), token_ids(4, 5), token_ids(5, 11)]


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return target_model()


@pytest.fixture
def runner(tmp_path: Path, model: torch.nn.Module) -> ModelRunner:
    return runner_of(tmp_path / "target", model)[0]


def settings_of(runner: ModelRunner, draft: tuple[str, dict[str, str]], **options: Any) -> ProposerSettings:
    history = history_of(4, 64)
    return ProposerSettings(history, VOCAB, runner=runner, draft=draft, options={"least_survival": 0, **options})


def plain_head(model: torch.nn.Module, weights: dict[str, torch.Tensor], **changes: Any) -> PlainHead:
    targets = torch.arange(DRAFT_VOCAB) + weights["d2t"]
    embed = model.get_input_embeddings().weight.detach()
    return replace(PlainHead(weights, embed, targets, DEFAULT, norm_first=False), **changes)


def eagle(folder: Path, model: torch.nn.Module) -> tuple[tuple[str, dict[str, str]], PlainHead]:
    weights = random_head(1)
    return write_eagle(folder, weights), plain_head(model, weights)


def eagle_streams(folder: Path, model: torch.nn.Module) -> tuple[tuple[str, dict[str, str]], PlainHead]:
    weights = random_head(2)
    said = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 4, 6]}}  # by their outputs
    return write_eagle(folder, weights, **said), plain_head(model, weights, streams=(1, 5, 7))


def speculators(folder: Path, model: torch.nn.Module) -> tuple[tuple[str, dict[str, str]], PlainHead]:
    weights = random_head(3)
    weights["embed_tokens.weight"] = embed = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(8))
    draft = write_speculators(folder, weights, eagle_aux_hidden_state_layer_ids=[1, 4, 6])
    return draft, plain_head(model, weights, embed=embed, streams=(1, 4, 6), norm_first=True)


@pytest.mark.parametrize("dialect", [eagle, eagle_streams, speculators])
def test_a_chain_is_what_plain_torch_makes_of_the_same_weights(
    tmp_path: Path, runner: ModelRunner, model: torch.nn.Module, dialect: Any
) -> None:
    draft, plain = dialect(tmp_path / "head", model)
    settings = settings_of(runner, draft, branches=1)
    made = Eagle3(settings)
    made._budget = 9  # prompts in chunks, one at each asking
    for row, prompt in enumerate(PROMPTS):
        compute(runner, row, prompt)
        begin(made, settings.history, row, prompt)
    trees: list[Tree] = []
    while not trees or made.stats()["tokens_behind"]:
        trees = propose(made, range(len(PROMPTS)), [4, 2, 3])
    for row, tree in enumerate(trees):
        tokens, chances = plain.chain(model, PROMPTS[row], (4, 2, 3)[row])
        assert tree.chain
        assert tree.tokens.tolist() == tokens
        np.testing.assert_allclose(tree.confidence, chances, rtol=2e-3)
    assert made.check() == []


def test_after_guesses_that_did_not_hold_nothing_is_left_of_them(
    tmp_path: Path, runner: ModelRunner, model: torch.nn.Module
) -> None:
    """vllm#14649: keys and values of guesses are replaced by what the target's features give."""
    draft, plain = eagle(tmp_path / "head", model)
    settings = settings_of(runner, draft, branches=1)
    made = Eagle3(settings)
    tokens, further = PROMPTS[0][:7], token_ids(9, 24)
    begin(made, settings.history, 2, tokens)
    for at, step in ((0, 1), (7, 3), (10, 1), (11, 6)):
        if at:
            tokens = tokens + further[:step]
            further = further[step:]
            grow(made, settings.history, 2, tokens[at:])
        compute(runner, 2, tokens)
        (tree,) = propose(made, [2], 5)
        assert tree.tokens.tolist() == plain.chain(model, tokens, 5)[0]
    assert made.check() == []
    made.end(2)
    assert made._blocks.free == len(made._blocks._free) - 1


def test_a_tree_has_the_next_best_beside_each_node(tmp_path: Path, runner: ModelRunner, model: torch.nn.Module) -> None:
    draft, plain = eagle(tmp_path / "head", model)
    settings = settings_of(runner, draft, branches=2, drafts=3)
    made = Eagle3(settings)
    compute(runner, 0, PROMPTS[0])
    begin(made, settings.history, 0, PROMPTS[0])
    tree, nothing = propose(made, [0, 0], [6, 0])
    assert len(nothing) == 0
    assert tree.tokens[:3].tolist() == plain.chain(model, PROMPTS[0], 3)[0]
    assert sorted(tree.parents[3:].tolist()) == [0, 1, 2]


def test_a_long_prompt_is_read_in_bounded_parts_while_others_get_their_guesses(
    tmp_path: Path, runner: ModelRunner, model: torch.nn.Module
) -> None:
    draft, plain = eagle(tmp_path / "head", model)
    settings = settings_of(runner, draft, branches=1)
    made = Eagle3(settings)
    assert made._budget == runner.sizes.max_batched_tokens, "as much as a step of the scheduler"
    made._budget = 16
    tokens: list[int] = []
    head = made._head
    made._head = Counting(head, tokens)  # type: ignore[assignment] # counts, and passes on
    prompts = [token_ids(6, 60), PROMPTS[1]]
    for row, prompt in enumerate(prompts):
        compute(runner, row, prompt)
        begin(made, settings.history, row, prompt)
    asked = 0
    while True:
        tokens.clear()
        long, short = propose(made, [0, 1], 2)
        asked += 1
        assert tokens[0] <= 16
        assert short.tokens.tolist() == plain.chain(model, prompts[1], 2)[0]
        if len(long):
            break
    assert asked == 5, "59 tokens, twelve beside the short one's four at first, then 15 beside its last"
    assert long.tokens.tolist() == plain.chain(model, prompts[0], 2)[0]


class Counting:
    """A head that notes how many tokens each pass has."""

    def __init__(self, head: EagleHead, tokens: list[int]) -> None:
        self._head, self._tokens = head, tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def __call__(self, ids: torch.Tensor, *rest: Any) -> Any:
        self._tokens.append(len(ids))
        return self._head(ids, *rest)


def test_features_go_to_the_host_and_come_back_with_their_tokens(
    tmp_path: Path, model: torch.nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    draft, plain = eagle(tmp_path / "head", model)
    bare, config = runner_of(tmp_path / "target", model)
    config = replace(
        config, speculation="eagle3", draft_format=draft[0], draft_paths=draft[1], swap_space_bytes=1 << 20
    )
    runner = runner_for(open_model(config.format, dict(config.paths)), config)
    plan, features = runner.sizes.plan, runner.block_size * HIDDEN * 4
    block = plan.kv_cache // plan.num_blocks + features
    assert runner.host_view(1).nbytes == block
    assert runner.host_blocks == (1 << 20) // block - 1, "within the space that was given"
    settings = settings_of(runner, draft, branches=1)
    made = Eagle3(settings)
    assert "no room was planned" not in caplog.text
    prompt, host = PROMPTS[0], [7, 8, 9]
    compute(runner, 0, prompt)
    runner.swap_out(list(zip([1, 2, 3], host, strict=True)))
    for pool in {id(each): each for layer in runner.model.kv for each in layer}.values():
        pool.fill_(0.5)  # others' tokens
    runner.swap_in(list(zip(host, [9, 10, 11], strict=True)))
    compute(runner, 1, prompt, start=len(prompt) - 2)
    begin(made, settings.history, 1, prompt)
    (tree,) = propose(made, [1], 4)
    assert tree.tokens.tolist() == plain.chain(model, prompt, 4)[0]
    plain_facts = facts(replace(config, speculation="lookahead", draft_format="", draft_paths={}), bare)
    assert facts(replace(config, speculation="off"), bare) == plain_facts, "without a head, blocks are the same"
    assert facts(config, runner)["head"], "blocks on a disk hold this head's features"
    assert bare.sizes.feature_bytes == 0


CLOSE = SamplingParams(temperature=0, max_tokens=24)


def fitted(model: torch.nn.Module, runner: ModelRunner) -> dict[str, torch.Tensor]:
    """A head whose last product is fitted, by least squares, to what the target says after PROMPTS: at the first
    depth from its features, at the next two from the head's own."""
    weights = random_head(6)
    weights["d2t"], weights["t2d"] = torch.zeros(VOCAB, dtype=torch.int64), torch.ones(VOCAB, dtype=torch.bool)
    plain = plain_head(model, weights | {"d2t": torch.zeros(DRAFT_VOCAB, dtype=torch.int64)})
    said, _ = greedy(runner, PROMPTS, CLOSE.max_tokens)
    inputs, right = [], []
    for prompt, tokens in zip(PROMPTS, said, strict=True):
        every = states(model, prompt + tokens)
        feature = F.linear(torch.cat([every[at] for at in DEFAULT], -1), weights["fc.weight"])
        for known in range(len(prompt) + 1, len(prompt) + len(tokens) - 2):
            whole, own = (prompt + tokens), feature[: known - 1]
            for depth in range(3):
                x, residual = plain.layer(whole[1 : known + depth], own)
                inputs.append(x[-1])
                right.append(whole[known + depth])
                own = torch.cat([own, residual[-1:]])
    x, wanted = torch.stack(inputs), F.one_hot(torch.tensor(right), VOCAB).float()
    solved = torch.linalg.solve(x.T @ x + 1e-2 * torch.eye(HIDDEN), x.T @ wanted)
    weights["lm_head.weight"] = solved.T * 12  # sharper: a softmax of fitted zeros and ones is flat
    return weights


def test_accepted_tokens_per_pass_of_a_fitted_head_keep_their_bound_g9(
    tmp_path: Path, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, config = runner_of(tmp_path / "target", model)
    draft = write_eagle(tmp_path / "head", fitted(model, runner), draft_vocab_size=VOCAB)
    plain = Offline(config, runner).generate(PROMPTS, CLOSE)
    every_guess_is_tried(monkeypatch)
    engine = Offline(config, runner, {"eagle3": lambda settings: Eagle3(replace(settings, draft=draft))})
    counts = engine.scheduler.speculator.counts  # type: ignore[union-attr]
    for cached in (False, True):  # and again, over a prefix cache whose features are there, too
        accepted, rows = counts.accepted, counts.rows
        found = engine.generate(PROMPTS, CLOSE)
        assert [each.token_ids for each in found] == [each.token_ids for each in plain]
        assert any(each.cached_tokens for each in found) == cached
        # 2.24, beyond the token that every pass says; 1.75 where what was made of guesses is not written over
        assert (counts.accepted - accepted) / (counts.rows - rows) >= 2.1


def test_the_files_say_which_proposer_they_are_for(tmp_path: Path, runner: ModelRunner) -> None:
    head = write_speculators(tmp_path / "head", random_head(1))
    medusa = (tmp_path / "medusa.json", {"medusa_num_heads": 2})
    medusa[0].write_text(json.dumps(medusa[1]))
    config = EngineConfig(format="safetensors", paths={}, draft_format=head[0], draft_paths=head[1])
    assert drafting(config) == "eagle3"
    assert drafting(replace(config, draft_paths={"config.json": str(medusa[0])})) == "medusa"
    assert drafting(replace(config, draft_format="gguf", draft_paths={"model.gguf": ""})) == "draft"
    for asked, found in (("draft", "for 'eagle3'"), ("lookahead+medusa", "for 'eagle3'")):
        with pytest.raises(ConfigError, match=found):
            speculation_of(replace(config, speculation=asked), runner)
    with pytest.raises(ConfigError, match="no draft model is given"):
        speculation_of(EngineConfig(format="safetensors", paths={}, speculation="eagle3"), runner)


def test_heads_of_another_model_are_refused_with_both_numbers(tmp_path: Path, runner: ModelRunner) -> None:
    def refused(draft: tuple[str, dict[str, str]] | None, kind: type[Exception] = ConfigError) -> str:
        with pytest.raises(kind) as caught:
            make_proposer("eagle3", ProposerSettings(history_of(4, 64), VOCAB, runner=runner, draft=draft))
        return str(caught.value)

    weights = random_head(1)
    assert "none is given" in refused(None)
    message = refused(write_eagle(tmp_path / "a", weights, target_hidden_size=64))
    assert "64" in message
    assert str(HIDDEN) in message
    message = refused(write_eagle(tmp_path / "b", weights, vocab_size=777))
    assert "777" in message
    assert str(VOCAB) in message
    too_far = weights | {"d2t": weights["d2t"] + 90}
    assert "d2t" in refused(write_eagle(tmp_path / "c", too_far), BadModel)
    assert "d2t" in refused(write_eagle(tmp_path / "d", {k: v for k, v in weights.items() if k != "d2t"}), BadModel)
    without = {name: each for name, each in weights.items() if "hidden_norm" not in name}
    assert "midlayer.hidden_norm.weight" in refused(write_eagle(tmp_path / "e", without), BadModel)
    assert "medusa" in refused(write_speculators(tmp_path / "f", weights, speculators_model_type="medusa"), BadModel)
    two = layer_config(num_hidden_layers=2)
    assert "2 layers" in refused(write_speculators(tmp_path / "g", weights, transformer_layer_config=two), BadModel)
    streams = {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}
    assert "has 8" in refused(write_speculators(tmp_path / "h", weights, **streams))
    folder = tmp_path / "i"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(layer_config()))
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    pickled = ("safetensors", {path.name: str(path) for path in folder.iterdir()})
    assert "safetensors" in refused(pickled, BadModel)
