"""The decoder against transformers on tiny random models of the Llama family, in float32: prefill, decode, ragged
batches and chunks, all through StepPlan and the row tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engines.native.step import StepPlan
from tests.engines.models.harness import (
    add,
    close,
    logits_of,
    reference_of,
    runner_of,
    saved,
    token_ids,
    transformers_model,
)

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
    """(logits of transformers' model, our runner of the same weights)."""
    kind, changes = MODELS[request.param]
    model = transformers_model(kind, request.param, **changes)
    return reference_of(model), runner_of(saved(model, tmp_path_factory.mktemp(request.param)))


def test_prefill(pair):
    wanted, runner = pair
    ids = token_ids(1, 37)
    add(runner, 0, ids)
    close(logits_of(runner, [(0, 0, 37)], {0: [1, 2, 3, 4, 5]})[0], wanted(ids))


def test_decode_over_scattered_blocks(pair):
    wanted, runner = pair
    ids = token_ids(2, 30)
    add(runner, 1, ids)
    ours = [logits_of(runner, [(1, 0, 5)], {1: [9, 3, 14, 7]})[0]]
    ours += [logits_of(runner, [(1, at, 1)], {})[0] for at in range(5, 30)]
    close(torch.cat(ours), wanted(ids))


def test_ragged_batch_of_prefill_chunk_and_decode(pair):
    wanted, runner = pair
    sequences = [token_ids(10 + row, length) for row, length in enumerate((33, 21, 40))]
    for row, ids in enumerate(sequences):
        add(runner, row, ids)
    tables = {0: [1, 2, 3, 4, 5], 1: [8, 6, 7], 2: [20, 11, 12, 10, 9]}
    first = logits_of(runner, [(0, 0, 32), (1, 0, 13), (2, 0, 20)], tables)
    second = logits_of(runner, [(2, 20, 20), (0, 32, 1), (1, 13, 8)], {})
    close(torch.cat([first[0], second[1]]), wanted(sequences[0]))
    close(torch.cat([first[1], second[2]]), wanted(sequences[1]))
    close(torch.cat([first[2], second[0]]), wanted(sequences[2]))


def test_greedy_continuation(pair):
    wanted, runner = pair
    ids = token_ids(5, 11)
    add(runner, 2, ids)
    rows, one = np.array([2], np.int32), np.array([True])
    chunk = StepPlan(rows, np.array([0], np.int32), np.array([6], np.int32), ~one, [(2, 0, [30, 31, 32])])
    assert runner.launch(chunk).wait().tokens.tolist() == [-1]
    rest = StepPlan(rows, np.array([6], np.int32), np.array([5], np.int32), one)
    tokens = [int(runner.launch(rest).wait().tokens[0])]
    for at in range(11, 20):
        plan = StepPlan(rows, np.array([at], np.int32), np.array([1], np.int32), one)
        tokens.append(int(runner.launch(plan).wait().tokens[0]))
    history = ids + tokens
    assert tokens == wanted(history[:-1])[10:].argmax(-1).tolist()


def test_copied_blocks_serve_another_row(pair):
    wanted, runner = pair
    ids = token_ids(6, 16)
    add(runner, 0, ids)
    logits_of(runner, [(0, 0, 16)], {0: [1, 2]})
    runner.copy_blocks([(1, 40), (2, 41)])
    add(runner, 3, [*ids, 7])
    close(logits_of(runner, [(3, 16, 1)], {3: [40, 41, 42]})[0], wanted([*ids, 7])[-1:])


def test_several_rows_decode_together(pair):
    """Rows of unequal length, one query each: one padded problem for all of them."""
    wanted, runner = pair
    sequences = [token_ids(20 + row, length) for row, length in enumerate((6, 29, 17))]
    for row, ids in enumerate(sequences):
        add(runner, row, ids)
    tables = {0: [5], 1: [9, 3, 14, 7], 2: [20, 22, 21]}
    logits_of(runner, [(row, 0, len(ids) - 3) for row, ids in enumerate(sequences)], tables)
    for left in (3, 2, 1):
        ours = logits_of(runner, [(row, len(ids) - left, 1) for row, ids in enumerate(sequences)], {})
        for ids, logits in zip(sequences, ours, strict=True):
            close(logits[0], wanted(ids)[-left])
