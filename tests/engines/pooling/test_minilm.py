"""all-MiniLM-L6-v2: its own tokenizer, its own pooling, the embeddings that transformers computes."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from engines.native.config import EngineConfig
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.pooling.files import open_pooling
from engines.native.pooling.queue import Text
from engines.native.pooling.runner import PoolingRunner, build_runner
from engines.native.serve.pooling import PoolingText, pooling_text
from tests.engines.pooling.minilm import golden, minilm

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def runner() -> PoolingRunner:
    return build_runner(EngineConfig(format="safetensors", paths=minilm(), device="cpu", dtype="float32"))


@pytest.fixture(scope="module")
def text() -> PoolingText:
    files = open_pooling("safetensors", minilm())
    return pooling_text(files, load_tokenizer(files)[0])


def _vectors(runner, ids: list[list[int]]) -> np.ndarray:
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    texts = [Text(None, i, np.array(ids[i], np.int32), len(ids[i])) for i in order]  # type: ignore[arg-type]
    vectors = np.empty((len(ids), 384), np.float32)
    vectors[order] = runner.run(texts)
    return vectors


def test_embeddings_as_transformers_computes_them(runner):
    rows = golden()
    ours = _vectors(runner, [row["token_ids"] for row in rows])
    np.testing.assert_allclose(ours, np.array([row["embedding"] for row in rows], np.float32), atol=3e-6)


def test_published_cosines(runner):
    """The example of sentence-transformers' documentation: 0.8939 for the two films."""
    by_text = {row["text"]: row["token_ids"] for row in golden()}
    films = _vectors(runner, [by_text["The new movie is awesome"], by_text["The new movie is so great"]])
    assert float(films[0] @ films[1]) == pytest.approx(0.8939, abs=5e-5)


def test_texts_have_the_ids_of_the_models_own_tokenizer(text):
    rows = [row for row in golden() if row["text"]]
    tokens = asyncio.run(text.encode([row["text"] for row in rows], ["input"] * len(rows), 0))
    assert [each.ids for each in tokens] == [row["token_ids"] for row in rows]


def test_int8_is_near(runner):
    rounded = build_runner(EngineConfig(format="safetensors", paths=minilm(), device="cpu", dtype="int8"))
    ids = [row["token_ids"] for row in golden()]
    cosines = (_vectors(runner, ids) * _vectors(rounded, ids)).sum(axis=1)
    assert cosines.min() > 0.98
