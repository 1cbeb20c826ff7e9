"""A draft model: guesses are its own greedy tokens, whatever was rejected, preempted or grown before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engines.native.config import ConfigError, EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from engines.native.speculation.proposer import ProposerSettings, make_proposer
from evaluation.benchmarks.random_model import TINY, greedy, random_runner
from plugins.speculative.draft_model import DraftModel
from tests.engines.speculation.test_losslessness import every_guess_is_tried
from tests.plugins.speculative.drive import begin, grow, held, history_of, propose, verify
from tests.tiny_models import VOCAB, write_safetensors

pytestmark = pytest.mark.speculation

ROWS, LENGTH = 4, 64
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9], [20, 21, 22]]


BLOCK = 8 * 2 * 2 * 16 * 4  # bytes of 8 tokens
CONFIG = EngineConfig(
    format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=LENGTH, max_num_seqs=ROWS,
    max_batched_tokens=128, kv_cache_bytes=40 * BLOCK, block_size=8, threads=1, speculation="off",
)  # fmt: skip


def runner(seed: int, blocks: int = 40) -> ModelRunner:
    return random_runner(TINY, replace(CONFIG, kv_cache_bytes=blocks * BLOCK), seed)


def draft(seed: int, blocks: int = 40, **options: object) -> DraftModel:
    settings = ProposerSettings(
        history_of(ROWS, LENGTH), TINY.vocab, options={"least_survival": 0, "drafts": 5, **options}
    )
    return DraftModel(settings, runner(seed, blocks))


def said(seed: int, steps: int = 24) -> dict[int, list[int]]:
    """What a model says after each prompt, prompt included."""
    tokens, _ = greedy(runner(seed), PROMPTS, steps)
    return {row: PROMPTS[row] + tokens[row] for row in range(len(PROMPTS))}


@pytest.mark.parametrize("singly", [False, True], ids=["passes", "one token a row"])
def test_a_draft_with_the_target_s_weights_is_always_right(singly: bool) -> None:
    made, says = draft(5), said(5)
    made._singly = singly
    for row, prompt in enumerate(PROMPTS):
        begin(made, made._history, row, prompt)
    rounds = []
    while found := verify(made, made._history, says, 4):
        rounds.append(found)
        assert made.check() == []
    for row in says:
        guessed, kept = zip(*(found[row] for found in rounds if row in found), strict=True)
        assert guessed[:-1] == kept[:-1] == (4,) * (len(guessed) - 1)
        assert len(guessed) == 5, "24 tokens at five a round"


@pytest.mark.parametrize("singly", [False, True], ids=["passes", "one token a row"])
def test_after_rejections_it_guesses_what_a_fresh_one_guesses(singly: bool) -> None:
    made, says = draft(6), said(5)
    made._singly = singly
    history = made._history
    for row, prompt in enumerate(PROMPTS):
        begin(made, history, row, prompt)
    generator = np.random.default_rng(1)
    kept = guessed = 0
    while rows := [row for row in says if history.known[row] < len(says[row])]:
        fresh = draft(6)
        for row in rows:
            begin(fresh, fresh._history, row, history.token_ids[row, : history.known[row]].tolist())
        trees = propose(made, rows, 3)
        for row, tree, wanted in zip(rows, trees, propose(fresh, rows, 3), strict=True):
            assert tree.tokens.tolist() == wanted.tokens.tolist()
            np.testing.assert_allclose(tree.confidence, wanted.confidence, atol=1e-5)
            follows = says[row][int(history.known[row]) :]
            kept, guessed = kept + held(tree, follows), guessed + len(tree)
            grow(made, history, row, follows[: int(generator.integers(1, 6))])  # whatever others guessed
    assert kept < guessed / 4, "another random model seldom agrees"


def test_confidence_is_the_softmax_of_the_token() -> None:
    made = draft(5)
    tokens, logprobs = greedy(runner(5), PROMPTS, 3)
    for row, prompt in enumerate(PROMPTS):
        begin(made, made._history, row, prompt)
    for row, tree in enumerate(propose(made, range(len(PROMPTS)), 3)):
        assert tree.chain
        assert tree.tokens.tolist() == tokens[row]
        np.testing.assert_allclose(tree.confidence, np.exp(logprobs[row]), rtol=1e-4)


def test_a_chain_ends_where_it_is_unlikely_to_hold() -> None:
    made = draft(5, least_survival=0.999)
    begin(made, made._history, 0, PROMPTS[0])
    (tree,) = propose(made, [0], 5)
    assert len(tree) == 1
    assert tree.confidence[0] < 0.999


def test_a_request_that_comes_back_in_another_row_goes_on_as_before() -> None:
    made = draft(5)
    says = said(5)[0]
    begin(made, made._history, 0, says[:12])
    propose(made, [0], 4)
    made.end(0)
    assert made._blocks.free == 39, "a preempted row holds nothing"
    begin(made, made._history, 2, says[:12])
    begin(made, made._history, 0, PROMPTS[2])
    tree, other = propose(made, [2, 0], 4)
    assert tree.tokens.tolist() == says[12:16]
    assert other.tokens.tolist() == said(5)[2][3:7]


def test_rows_are_limited_by_what_is_wanted_by_length_and_by_blocks() -> None:
    made = draft(5, blocks=4)  # three of 8 tokens
    says = said(5)[0]
    begin(made, made._history, 0, says[:17])
    begin(made, made._history, 1, PROMPTS[1])
    tree, without = propose(made, [0, 1], [2, 3])
    assert tree.tokens.tolist() == says[17:19]
    assert len(without) == 0, "no block is left"
    made.end(0)
    nothing, some = propose(made, [0, 1], [0, 3])
    assert (len(nothing), len(some)) == (0, 3)
    full = draft(5)
    begin(full, full._history, 0, [3] * (LENGTH - 1))
    assert len(propose(full, [0], 5)[0]) == 1
    assert made.check() == full.check() == []


@pytest.mark.parametrize(("seed", "drafts"), [(5, 3), (6, 3), (5, 0)], ids=["the same", "another", "by what it costs"])
def test_an_engine_says_the_same_with_any_draft_model_and_little_memory(
    seed: int, drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven blocks of 8 tokens for four requests of up to 31: some are preempted, and drafted for again."""
    monkeypatch.setattr("engines.native.scheduler.peak_tokens", lambda used, remaining: 0)  # admit without foresight
    config = replace(CONFIG, kv_cache_bytes=8 * BLOCK, prefix_cache=False)
    prompts = [*PROMPTS, [40, 41, 42, 43]]
    params = SamplingParams(temperature=0, max_tokens=24)
    plain = Offline(config, random_runner(TINY, config, 5)).generate(prompts, params)
    every_guess_is_tried(monkeypatch)
    made: list[DraftModel] = []

    def make(settings: ProposerSettings) -> DraftModel:
        made.append(DraftModel(replace(settings, options={"drafts": drafts}), runner(seed)))
        return made[0]

    engine = Offline(config, random_runner(TINY, config, 5), {"draft": make})
    found = engine.generate(prompts, params)
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    assert engine.scheduler.preemptions > 0
    assert engine.scheduler.check() == made[0].check() == []
    assert made[0].stats()["kv_blocks_free"] == 39, "nobody holds a block when all have ended"
    counts = engine.scheduler.speculator.counts  # type: ignore[union-attr]
    assert counts.drafted > (20 if drafts else 2)
    if seed == 5:
        assert counts.accepted == counts.drafted, "the target's own weights"
    else:
        assert counts.accepted < counts.drafted / 3


@pytest.mark.parametrize("singly", [False, True], ids=["passes", "one token a row"])
def test_a_long_prompt_is_caught_up_in_bounded_passes_while_others_get_their_guesses(singly: bool) -> None:
    length, bound = 2064, 256
    shape = replace(TINY, context_length=length)
    config = replace(CONFIG, max_model_len=length, max_num_seqs=2, kv_cache_bytes=600 * BLOCK)

    def drafting(budget: int) -> tuple[DraftModel, list[int]]:
        own = random_runner(shape, replace(config, max_batched_tokens=budget), 5)
        options = {"least_survival": 0, "drafts": 3}
        made = DraftModel(ProposerSettings(history_of(2, length), shape.vocab, options=options), own)
        made._singly = singly
        passes: list[int] = []
        launch = own.launch
        own.launch = lambda plan: passes.append(plan.tokens) or launch(plan)  # type: ignore[method-assign, func-returns-value] # watched
        return made, passes

    made, passes = drafting(bound)
    prompt = np.random.default_rng(1).integers(0, shape.vocab, 2000).tolist()
    begin(made, made._history, 0, prompt)
    begin(made, made._history, 1, PROMPTS[0])
    says, asked = prompt, 0
    while True:
        passes.clear()
        long, short = propose(made, [0, 1], 3)
        assert sum(passes) <= bound + 3 * 2, "catching up, and three tokens of each chain"
        assert len(short) == 3
        asked += 1
        if len(long):
            break
        assert made.stats()["tokens_behind"] > 0
        says = [*says, asked]  # it goes on meanwhile
        grow(made, made._history, 0, [asked])
    assert asked == 8, "2,000 tokens, less what the short one takes of each asking"
    assert made.stats()["tokens_behind"] == 0
    whole, _ = drafting(4096)
    begin(whole, whole._history, 0, says)
    (wanted,) = propose(whole, [0], 3)
    assert long.tokens.tolist() == wanted.tokens.tolist()
    np.testing.assert_allclose(long.confidence, wanted.confidence, atol=1e-4)


def target(folder: Path, **changes: object) -> tuple[ModelRunner, tuple[str, dict[str, str]]]:
    """A tiny model's runner, and its files; changes: of its config.json."""
    write_safetensors(folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    if "vocab_size" in changes:
        weights = load_file(folder / "model.safetensors")
        weights["model.embed_tokens.weight"] = np.resize(
            weights["model.embed_tokens.weight"], (config["vocab_size"], 32)
        )
        save_file(weights, folder / "model.safetensors")
    files = ("safetensors", {path.name: str(path) for path in folder.iterdir()})
    settings = EngineConfig(
        format=files[0], paths=files[1], device="cpu", dtype="float32", max_model_len=48, max_num_seqs=2, threads=1,
        max_batched_tokens=32, kv_cache_bytes=1 << 17,
    )  # fmt: skip
    return runner_for(open_model(*files), settings), files


def test_the_files_of_a_draft_model_are_loaded_beside_the_target(tmp_path: Path) -> None:
    large, files = target(tmp_path / "large")
    history = history_of(2, 48)
    made = make_proposer(
        "draft",
        ProposerSettings(
            history,
            VOCAB,
            runner=large,
            draft=files,
            target=files,
            options={"dtype": "float32", "least_survival": 0, "drafts": 4},
        ),
    )
    tokens, _ = greedy(large, [[5, 6, 7]], 4)
    begin(made, history, 1, [5, 6, 7])
    (tree,) = propose(made, [1], 4)
    assert tree.tokens.tolist() == tokens[0]
    stats = made.stats()
    assert stats["weights_bytes"] >= (259 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64) * 4
    assert stats["kv_cache_bytes"] == 7 * 16 * 2 * 2 * 8 * 4, (
        "two rows of 48 tokens in blocks of 16, and the null block"
    )
    assert stats["steps"] == 4


def test_an_engine_takes_a_draft_model_by_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (format, paths) = target(tmp_path / "large")
    every_guess_is_tried(monkeypatch)
    params, prompts = SamplingParams(temperature=0, max_tokens=16), [[5, 6, 7], [9]]
    sizes = {"max_model_len": 48, "max_num_seqs": 2, "max_batched_tokens": 32, "kv_cache_bytes": 1 << 17, "threads": 1}
    config = EngineConfig(format=format, paths=paths, device="cpu", dtype="float32", speculation="off", **sizes)
    plain = Offline(config).generate(prompts, params)
    engine = Offline(replace(config, speculation="draft", draft_format=format, draft_paths=paths))
    found = engine.generate(prompts, params)
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    stats = engine.scheduler.speculator.stats()["draft"]  # type: ignore[union-attr]
    assert stats["steps"] >= 3, "a first chain at the least"
    assert stats["weights_bytes"] < engine.runner.sizes.plan.weights, "in 8 bits, as an engine on a CPU chooses"


def test_what_can_t_draft_is_refused_with_both_numbers(tmp_path: Path) -> None:
    large, files = target(tmp_path / "large")
    _, other = target(tmp_path / "other", vocab_size=300)

    def refused(**given: object) -> str:
        with pytest.raises(ConfigError) as caught:
            make_proposer("draft", ProposerSettings(history_of(2, 48), VOCAB, runner=large, **given))  # type: ignore[arg-type]
        return str(caught.value)

    assert "none is given" in refused()
    message = refused(draft=other, target=files)
    assert "300" in message
    assert "259" in message
    spoilt = Path(other[1]["tokenizer.json"])
    said = json.loads(spoilt.read_text())
    vocab = said["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    spoilt.write_text(json.dumps(said))
    mixed = (files[0], {**files[1], "tokenizer.json": str(spoilt)})
    message = refused(draft=mixed, target=files)
    assert "2 of its 259 tokens" in message
    assert "'a'" in message
