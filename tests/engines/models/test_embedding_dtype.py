"""`embedding_dtype: int8` in whole models: what it changes, and by how much."""

from __future__ import annotations

import json
import math

import pytest
import torch

from engines.native.config import ConfigError, EngineConfig
from engines.native.layers.embedding import Int8Embedding, Int8Head
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from tests.engines.models import harness
from tests.engines.weights import DATA, smollm2


def _runner(paths: dict[str, str], format: str = "safetensors", **fields) -> ModelRunner:
    config = EngineConfig(
        format=format, paths=paths, device="cpu", max_num_seqs=4, max_batched_tokens=256, block_size=8, **fields
    )
    return runner_for(open_model(format, paths), config)


@pytest.mark.parametrize(
    ("kind", "tied"),
    [("llama", True), ("qwen2", False), ("gemma2", True), ("cohere", True)],  # scaled, capped and centred tables too
)
def test_a_model_whose_table_is_on_the_grid_stays_the_same(tmp_path, kind, tied):
    """Rows that 8 bits hold exactly: what is left is the path of the numbers."""
    model = harness.transformers_model(kind, kind, tie_word_embeddings=tied)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        grid = torch.randint(-126, 127, table.shape).float()
        grid[:, 0] = 127
        table.copy_(grid * torch.linspace(0.001, 0.004, len(table))[:, None])
    runner = _runner(harness.saved(model, tmp_path), dtype="float32", embedding_dtype="int8")
    weights = runner.model.weights
    assert isinstance(_innermost(weights.embed), Int8Embedding)
    assert isinstance(getattr(weights.head, "_linear", weights.head), Int8Head) == tied
    harness.check(runner, harness.reference_of(model))


def _innermost(embed):
    while hasattr(embed, "embedding"):
        embed = embed.embedding
    return embed


def test_int8_weights_keep_a_head_of_their_own(tmp_path):
    model = harness.transformers_model("llama", "int8", tie_word_embeddings=True)
    weights = _runner(harness.saved(model, tmp_path), dtype="int8", embedding_dtype="int8").model.weights
    assert isinstance(weights.embed, Int8Embedding)
    assert not isinstance(weights.head, Int8Head)


def test_strict_refuses_a_shared_table_by_name(tmp_path):
    paths = harness.saved(harness.transformers_model("llama", "strict", tie_word_embeddings=True), tmp_path)
    with pytest.raises(ConfigError, match=r"embedding_dtype is 'int8' and options.strict"):
        _runner(paths, dtype="float32", embedding_dtype="int8", strict=True)


def test_another_dtype_is_refused_by_name():
    with pytest.raises(ConfigError, match="embedding_dtype is 'int4'; it can be auto, int8"):
        EngineConfig(format="gguf", paths={}, embedding_dtype="int4")


@pytest.mark.slow
@pytest.mark.weights
def test_the_demo_model_loses_next_to_nothing():
    """Logits near those of the float table, and perplexity within 0.5 % of transformers' on the first window."""
    paths = {"model.gguf": str(smollm2())}
    reference = json.loads((DATA / "smollm2_135m_wikitext2_ppl.json").read_text())
    windows = reference["windows"][:1]
    tokenizer, _ = load_tokenizer(open_model("gguf", paths))
    ids = tokenizer.encode((DATA / "wikitext2_head.txt").read_bytes().decode(), add_special_tokens=False).ids
    config = EngineConfig(
        format="gguf", paths=paths, device="cpu", dtype="float32", embedding_dtype="int8", max_model_len=640,
        max_num_seqs=2, max_batched_tokens=256, prefix_cache=False, threads=1,
    )  # fmt: skip
    engine = Offline(config)
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    found = engine.generate([ids[window["window"] * 512 :][:512] for window in windows], params)
    change = -sum(sum(each.prompt_logprobs) for each in found) - sum(window["sum_nll"] for window in windows)
    assert abs(math.exp(change / sum(window["scored"] for window in windows)) - 1) < 5e-3
    small = _logits(engine.runner, ids[:64])
    plain = _logits(Offline(EngineConfig(
        format="gguf", paths=paths, device="cpu", dtype="float32", max_model_len=640, max_num_seqs=2, threads=1,
    )).runner, ids[:64])  # fmt: skip
    assert (small - plain).norm() / plain.norm() < 0.02
    kl = torch.nn.functional.kl_div(small.log_softmax(-1), plain.log_softmax(-1), log_target=True, reduction="none")
    assert kl.sum(-1).mean() < 3e-3  # 0.0014; dtype int8 as a whole: 0.030
    assert (small.argmax(-1) == plain.argmax(-1)).float().mean() > 0.9


def _logits(runner: ModelRunner, ids: list[int]) -> torch.Tensor:
    harness.add(runner, 0, ids)
    return harness.logits_of(runner, [(0, 0, len(ids))], {0: list(range(1, 2 + len(ids) // runner.block_size))})[0]
