"""Encoders against transformers on tiny random models, in float32: a text alone there, all together here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engines.native.models.encoder import PADDING, plan_groups
from tests.engines.pooling import tiny

MODELS = {
    "bert": ("bert", {}),
    "bert-tanh-gelu": ("bert", {"hidden_act": "gelu_new"}),
    "bert-relu-one-type": ("bert", {"hidden_act": "relu", "type_vocab_size": 1}),
    "roberta": ("roberta", {"type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", {"type_vocab_size": 1, "pad_token_id": 1}),
}
LENGTHS = [1, 2, 2, 3, 5, 5, 5, 9, 17, 18, 19, 20, 33, 60, 64]
POOLS = {"mean": lambda states: states.mean(0), "cls": lambda states: states[0], "lasttoken": lambda states: states[-1]}


@pytest.fixture(scope="module", params=sorted(MODELS))
def saved(request, tmp_path_factory):
    kind, changes = MODELS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return tiny.make(folder, kind, **changes), folder


@torch.inference_mode()
def _states(model, text, types: bool = False) -> torch.Tensor:
    """[length, hidden] of the last layer. types: with token types, 1 from the second segment on."""
    ids = torch.from_numpy(text.token_ids.astype(np.int64))[None]
    token_types = (torch.arange(len(text.token_ids)) >= text.second).long()[None]
    return model(input_ids=ids, **({"token_type_ids": token_types} if types else {})).last_hidden_state[0]


@pytest.mark.parametrize("pool", sorted(POOLS))
@pytest.mark.parametrize("normalize", [True, False])
def test_ragged_texts_as_each_alone(saved, pool, normalize):
    model, folder = saved
    tiny.sentence_transformer(folder, pool, normalize=normalize)
    texts = tiny.texts(LENGTHS)
    ours = tiny.runner(folder).run(texts)
    for text, vector in zip(texts, ours, strict=True):
        theirs = POOLS[pool](_states(model, text))
        if normalize:
            theirs = torch.nn.functional.normalize(theirs, dim=0)
        np.testing.assert_allclose(vector, theirs.numpy(), rtol=2e-4, atol=2e-5)


def test_a_text_alone_and_among_others(saved):
    _, folder = saved
    tiny.sentence_transformer(folder, "mean", normalize=True)
    runner = tiny.runner(folder)
    texts = tiny.texts(LENGTHS, seed=3)
    together = runner.run(texts)
    alone = np.concatenate([runner.run([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_segments_of_pairs_have_their_types(tmp_path):
    model = tiny.make(tmp_path, "bert")
    tiny.sentence_transformer(tmp_path, "mean", normalize=False)
    texts = tiny.texts(LENGTHS, pairs=True)
    ours = tiny.runner(tmp_path).run(texts)
    for text, vector in zip(texts, ours, strict=True):
        theirs = _states(model, text, types=True).mean(0).numpy()
        np.testing.assert_allclose(vector, theirs, rtol=2e-4, atol=2e-5)
    assert not np.allclose(ours[-1], _states(model, texts[-1]).mean(0).numpy(), atol=1e-2)  # types matter here


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_cross_encoder_scores(tmp_path, kind, activation):
    types = {} if kind == "bert" else {"type_vocab_size": 1}
    said = {"sbert_ce_default_activation_function": f"torch.nn.modules.linear.{activation}"}
    model = tiny.make(tmp_path, kind, score=True, **types, **said)
    texts = tiny.texts(LENGTHS, pairs=kind == "bert")
    ours = tiny.runner(tmp_path).run(texts)
    assert ours.shape == (len(texts), 1)
    for text, score in zip(texts, ours[:, 0], strict=True):
        ids = torch.from_numpy(text.token_ids.astype(np.int64))[None]
        token_types = (torch.arange(len(text.token_ids)) >= text.second).long()[None]
        with torch.inference_mode():
            logit = model(input_ids=ids, token_type_ids=token_types).logits[0, 0]
        wanted = float(torch.sigmoid(logit) if activation == "Sigmoid" else logit)
        assert score == pytest.approx(wanted, rel=2e-4, abs=2e-5)


def test_int8_keeps_directions(tmp_path):
    tiny.make(tmp_path, "bert")
    tiny.sentence_transformer(tmp_path, "mean", normalize=True)
    texts = tiny.texts(LENGTHS)
    exact, rounded = (tiny.runner(tmp_path, dtype=dtype).run(texts) for dtype in ("float32", "int8"))
    assert ((exact * rounded).sum(axis=1) > 0.98).all()
    assert not np.array_equal(exact, rounded)


@pytest.mark.parametrize("seed", range(5))
def test_groups_cover_each_token_once_with_bounded_padding(seed):
    random = np.random.default_rng(seed)
    lengths = sorted(random.integers(1, 200, 40).tolist())
    groups = plan_groups(lengths, torch.device("cpu"))
    at, text = 0, 0
    for group in groups:
        own = lengths[text : text + group.texts]
        assert (group.first, group.last, group.longest) == (at, at + sum(own), own[-1])
        if group.keep is not None:
            padded = group.take.view(group.texts, group.longest)
            assert padded.flatten()[group.keep].tolist() == list(range(at, at + sum(own)))
            assert group.mask.sum().item() == sum(own)
            assert group.texts * group.longest**2 <= PADDING * sum(length**2 for length in own)
        at, text = group.last, text + group.texts
    assert (at, text) == (sum(lengths), len(lengths))
