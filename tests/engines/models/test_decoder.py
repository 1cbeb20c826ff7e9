"""The decoder against transformers on tiny random models of each family member, in float32: prefill, decode, ragged
batches and chunks, all through StepPlan and the row tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.models.decoder import Decoder
from engines.native.ops.base import Batch
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from engines.native.step import StepPlan

BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama2": ("llama", {"num_key_value_heads": 6}),
    "llama3": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm2": ("llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}}),
    "mistral-window": ("mistral", {"sliding_window": 12, "head_dim": 8}),
    "qwen2": ("qwen2", {}),
    "qwen2-mixed-windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def pair(request, tmp_path_factory):
    """(transformers' model, our runner of the same weights)."""
    kind, changes = MODELS[request.param]
    torch.manual_seed(sum(map(ord, request.param)))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(BASE | changes)), dtype=torch.float32)
    for name, parameter in model.named_parameters():  # biases and norms that are not trivial
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
        else:
            torch.nn.init.normal_(parameter, std=0.15)
    folder = tmp_path_factory.mktemp(request.param)
    model.eval().save_pretrained(folder)
    paths = {path.name: str(path) for path in folder.iterdir()}
    config = EngineConfig(
        format="safetensors",
        paths=paths,
        device="cpu",
        dtype="float32",
        max_num_seqs=4,
        max_batched_tokens=256,
        block_size=8,
    )
    return model, runner_for(open_model("safetensors", paths), config)


@torch.inference_mode()
def _logits(runner: ModelRunner, work: list[tuple[int, int, int]], blocks: dict[int, list[int]]) -> list[torch.Tensor]:
    """Logits of every computed token, per (row, start, count) of one pass."""
    rows, start, count = (np.array(column, np.int32) for column in zip(*work, strict=True))
    new = [(row, 0, blocks.pop(row)) for row in list(blocks)]
    plan = StepPlan(rows, start, count, np.zeros(len(rows), np.bool_), new)
    captured: list[torch.Tensor] = []
    model = runner.model

    class Everywhere(Decoder):
        def hidden(self, batch: Batch) -> torch.Tensor:
            wanted = batch.logits_index
            batch.logits_index = torch.arange(len(batch.token_ids))
            every = super().hidden(batch)
            captured.append(self.logits(every))
            return every[wanted]

    runner.model = Everywhere(model.config, model.weights, model.ops, model.kv)
    try:
        runner.launch(plan).wait()
    finally:
        runner.model = model
    return list(captured[0].split(count.tolist()))


def _wanted(model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


def _ids(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, BASE["vocab_size"], count).tolist()


def _add(runner: ModelRunner, row: int, ids: list[int]) -> None:
    runner.add(row, ids, SamplingParams(temperature=0, max_tokens=1), len(ids))


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)


def test_prefill(pair):
    model, runner = pair
    ids = _ids(1, 37)
    _add(runner, 0, ids)
    _close(_logits(runner, [(0, 0, 37)], {0: [1, 2, 3, 4, 5]})[0], _wanted(model, ids))


def test_decode_over_scattered_blocks(pair):
    model, runner = pair
    ids = _ids(2, 30)
    _add(runner, 1, ids)
    ours = [_logits(runner, [(1, 0, 5)], {1: [9, 3, 14, 7]})[0]]
    ours += [_logits(runner, [(1, at, 1)], {})[0] for at in range(5, 30)]
    _close(torch.cat(ours), _wanted(model, ids))


def test_ragged_batch_of_prefill_chunk_and_decode(pair):
    model, runner = pair
    sequences = [_ids(10 + row, length) for row, length in enumerate((33, 21, 40))]
    for row, ids in enumerate(sequences):
        _add(runner, row, ids)
    tables = {0: [1, 2, 3, 4, 5], 1: [8, 6, 7], 2: [20, 11, 12, 10, 9]}
    first = _logits(runner, [(0, 0, 32), (1, 0, 13), (2, 0, 20)], tables)
    second = _logits(runner, [(2, 20, 20), (0, 32, 1), (1, 13, 8)], {})
    _close(torch.cat([first[0], second[1]]), _wanted(model, sequences[0]))
    _close(torch.cat([first[1], second[2]]), _wanted(model, sequences[1]))
    _close(torch.cat([first[2], second[0]]), _wanted(model, sequences[2]))


def test_greedy_continuation(pair):
    model, runner = pair
    ids = _ids(5, 11)
    _add(runner, 2, ids)
    rows, one = np.array([2], np.int32), np.array([True])
    chunk = StepPlan(rows, np.array([0], np.int32), np.array([6], np.int32), ~one, [(2, 0, [30, 31, 32])])
    assert runner.launch(chunk).wait().tokens.tolist() == [-1]
    rest = StepPlan(rows, np.array([6], np.int32), np.array([5], np.int32), one)
    tokens = [int(runner.launch(rest).wait().tokens[0])]
    for at in range(11, 20):
        plan = StepPlan(rows, np.array([at], np.int32), np.array([1], np.int32), one)
        tokens.append(int(runner.launch(plan).wait().tokens[0]))
    history = ids + tokens
    assert tokens == _wanted(model, history[:-1])[10:].argmax(-1).tolist()


def test_copied_blocks_serve_another_row(pair):
    model, runner = pair
    ids = _ids(6, 16)
    _add(runner, 0, ids)
    _logits(runner, [(0, 0, 16)], {0: [1, 2]})
    runner.copy_blocks([(1, 40), (2, 41)])
    _add(runner, 3, [*ids, 7])
    _close(_logits(runner, [(3, 16, 1)], {3: [40, 41, 42]})[0], _wanted(model, [*ids, 7])[-1:])


def test_several_rows_decode_together(pair):
    """Rows of unequal length, one query each: one padded problem for all of them."""
    model, runner = pair
    sequences = [_ids(20 + row, length) for row, length in enumerate((6, 29, 17))]
    for row, ids in enumerate(sequences):
        _add(runner, row, ids)
    tables = {0: [5], 1: [9, 3, 14, 7], 2: [20, 22, 21]}
    _logits(runner, [(row, 0, len(ids) - 3) for row, ids in enumerate(sequences)], tables)
    for left in (3, 2, 1):
        ours = _logits(runner, [(row, len(ids) - left, 1) for row, ids in enumerate(sequences)], {})
        for ids, logits in zip(sequences, ours, strict=True):
            _close(logits[0], _wanted(model, ids)[-left])
