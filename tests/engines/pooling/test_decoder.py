"""Decoders as embedding models against transformers on tiny random ones: checkpoints without a head, nothing kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engines.pooling import tiny

MODELS = {
    "qwen3-last": ("qwen3", "lasttoken", {"head_dim": 16}),
    "llama-mean": ("llama", "mean", {}),
    "mistral-window-mean": ("mistral", "mean", {"sliding_window": 12}),
    "qwen2-last": ("qwen2", "lasttoken", {}),
}
LENGTHS = [1, 1, 2, 7, 16, 17, 31, 32, 33, 60]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_ragged_texts_as_each_alone(tmp_path, name):
    kind, pool, changes = MODELS[name]
    model = tiny.make(tmp_path, kind, **changes)
    tiny.sentence_transformer(tmp_path, pool, normalize=True)
    runner = tiny.runner(tmp_path)
    texts = tiny.texts(LENGTHS)
    runner.run(tiny.texts([40, 50, 50], seed=9))  # what a pass leaves behind is not seen by the next
    for text, vector in zip(texts, runner.run(texts), strict=True):
        with torch.inference_mode():
            states = model(input_ids=torch.from_numpy(text.token_ids.astype(np.int64))[None]).last_hidden_state[0]
        theirs = torch.nn.functional.normalize(states[-1] if pool == "lasttoken" else states.mean(0), dim=0)
        np.testing.assert_allclose(vector, theirs.numpy(), rtol=5e-4, atol=5e-5)


def test_one_layer_of_keys_and_values_serves_all(tmp_path):
    tiny.make(tmp_path, "llama")
    decoder = tiny.runner(tmp_path)._model._decoder
    assert len({key.data_ptr() for key, _ in decoder.kv}) == 1


def test_attention_both_ways_in_a_decoder_is_refused(tmp_path):
    tiny.make(tmp_path, "qwen2", is_causal=False)
    with pytest.raises(Exception, match="attention both ways"):
        tiny.runner(tmp_path)
