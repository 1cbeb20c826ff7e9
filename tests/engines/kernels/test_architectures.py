"""What is particular to an architecture, through TritonOps in the interpreter: against transformers' class of it."""

from __future__ import annotations

import pytest
import torch

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

pytestmark = [pytest.mark.kernels, pytest.mark.slow]

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 32,
}
MODELS = {
    "gemma2": ("gemma2", {"sliding_window": 5, "attn_logit_softcapping": 3.0, "tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", {"sliding_window": 5, "sliding_window_pattern": 2, "tie_word_embeddings": True}),
    "glm": ("glm", {}),
    "command-r7b": ("cohere2", {"sliding_window": 5, "sliding_window_pattern": 2, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", {"num_local_experts": 3}),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_equal_those_of_transformers(name, tmp_path):
    kind, changes = MODELS[name]
    model = transformers_model(kind, name, **SMALL | changes)
    runner = runner_of(saved(model, tmp_path), ops="triton", max_model_len=24)
    tokens = token_ids(3, 13)
    add(runner, 0, tokens)
    ours = [logits_of(runner, [(0, 0, 6)], {0: [2, 1]})[0], logits_of(runner, [(0, 6, 6)], {})[0]]
    ours.append(logits_of(runner, [(0, 12, 1)], {})[0])
    close(torch.cat(ours), reference_of(model)(tokens))
