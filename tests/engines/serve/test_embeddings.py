"""Embeddings, scores and reranks over HTTP, from tiny random models behind the real processes; OpenAI's own client."""

from __future__ import annotations

import atexit
import base64
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from openai import OpenAI

from engines.api import Phase
from engines.native.serve.embeddings import shortened
from engines.native.serve.score import cosines
from tests.engines.instances import NAME, Running
from tests.engines.pooling import tiny
from tests.engines.pooling.minilm import golden, minilm

pytestmark = pytest.mark.slow

CLS, SEP = 2, 3
IDS = {word: 4 + index for index, word in enumerate(tiny.WORDS)}


class Pooling(Running):
    """An instance of a pooling model, its files without folders as the registry keeps them."""

    def __init__(self, paths: dict[str, str], **spec: Any) -> None:
        self._paths = paths
        flat = Path(tempfile.mkdtemp(prefix="ts-flat-"))
        atexit.register(shutil.rmtree, flat, ignore_errors=True)
        for name, path in paths.items():
            (flat / name.replace("/", "__")).symlink_to(path)
        super().__init__(flat, **spec)

    def ask(self, path: str, **body: Any) -> httpx.Response:
        return self.post(path, {"model": NAME, **body})

    def error(self, path: str, status: int = 400, **body: Any) -> tuple[str, str, str]:
        """(code, param, message)"""
        response = self.ask(path, **body)
        assert response.status_code == status, response.text
        error = response.json()["error"]
        return error["code"], error["param"], error["message"]

    def vectors(self, texts: Any, **body: Any) -> np.ndarray:
        response = self.ask("/v1/embeddings", input=texts, **body)
        assert response.status_code == 200, response.text
        rows = response.json()["data"]
        assert [row["index"] for row in rows] == list(range(len(rows)))
        return np.array([row["embedding"] for row in rows], np.float32)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory) -> Iterator[Pooling]:
    folder = tmp_path_factory.mktemp("embedder")
    tiny.make(folder, "bert", matryoshka_dimensions=[16, 32])
    tiny.tokenizer(folder)
    tiny.sentence_transformer(folder, "mean", normalize=True, max_tokens=40)
    running = Pooling(tiny.paths_of(folder))
    try:
        yield running
    finally:
        assert running.stop() == 0


@pytest.fixture(scope="module")
def cross(tmp_path_factory) -> Iterator[Pooling]:
    folder = tmp_path_factory.mktemp("cross")
    tiny.make(folder, "bert", score=True)
    tiny.tokenizer(folder)
    running = Pooling(tiny.paths_of(folder))
    try:
        yield running
    finally:
        assert running.stop() == 0


def _expected(embedder: Pooling, ids: list[list[int]]) -> np.ndarray:
    """What the runner makes of these ids, in their order."""
    from engines.native.pooling.queue import Text

    texts = [Text(None, i, np.array(part, np.int32), len(part)) for i, part in enumerate(ids)]  # type: ignore[arg-type]
    runner = tiny.runner(Path(embedder._paths["model.safetensors"]).parent)
    return np.concatenate([runner.run([text]) for text in texts])


def test_texts_and_their_ids_give_the_same_in_every_form(embedder):
    ids = [[CLS, IDS["cat"], SEP], [CLS, IDS["a"], IDS["dog"], IDS["runs"], SEP]]
    wanted = _expected(embedder, ids)
    for asked in (["cat", "a dog runs"], ids):
        np.testing.assert_allclose(embedder.vectors(asked), wanted, atol=1e-5)
    for asked in ("cat", ids[0], ["cat"], [ids[0]]):
        np.testing.assert_allclose(embedder.vectors(asked), wanted[:1], atol=1e-5)


def test_usage_counts_what_was_computed(embedder):
    body = embedder.ask("/v1/embeddings", input=["cat", "a dog runs"]).json()
    assert body["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    assert (body["object"], body["model"], body["data"][0]["object"]) == ("list", NAME, "embedding")


def test_openai_client_asks_base64_and_floats(embedder):
    client = OpenAI(base_url=f"{embedder.url}/v1", api_key=embedder.token, max_retries=0)
    packed = client.embeddings.create(model=NAME, input=["cat", "dog"])
    plain = client.embeddings.create(model=NAME, input=["cat", "dog"], encoding_format="float")
    assert [row.embedding for row in packed.data] == [pytest.approx(row.embedding, abs=1e-7) for row in plain.data]
    assert packed.usage.total_tokens == 6
    raw = embedder.ask("/v1/embeddings", input="cat", encoding_format="base64").json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(raw), "<f4").tolist() == packed.data[0].embedding


def test_dimensions_of_a_model_that_was_trained_for_them(embedder):
    whole, short = embedder.vectors("cat"), embedder.vectors("cat", dimensions=16)
    assert short.shape == (1, 16)
    np.testing.assert_allclose(short, shortened(whole, 16, True), atol=1e-6)
    assert embedder.vectors("cat", dimensions=48).shape == (1, 48)
    assert embedder.error("/v1/embeddings", input="cat", dimensions=20)[1] == "dimensions"
    assert embedder.error("/v1/embeddings", input="cat", dimensions=49)[1] == "dimensions"


LONG = " ".join(["cat"] * 39)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": ""}, "empty_input", "input"),
        ({"input": []}, "empty_input", "input"),
        ({"input": ["cat", ""]}, "empty_input", "input[1]"),
        ({"input": [[IDS["cat"]], []]}, "empty_input", "input[1]"),
        ({"input": ["cat", LONG, "dog"]}, "context_length_exceeded", "input[1]"),
        ({"input": [5] * 41}, "context_length_exceeded", "input"),
        ({"input": [99]}, "invalid_value", "input"),
        ({"input": [[5], [-1]]}, "invalid_value", "input[1]"),
        ({"input": ["cat", 5]}, "invalid_type", "input"),
        ({"input": {"a": 1}}, "invalid_type", "input"),
        ({"input": None}, "invalid_type", "input"),
        ({"input": ["cat"] * 2049}, "invalid_value", "input"),
        ({"input": "cat", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"input": "cat", "truncate_prompt_tokens": 0}, "invalid_value", "truncate_prompt_tokens"),
        ({"input": "cat", "truncate_prompt_tokens": 41}, "invalid_value", "truncate_prompt_tokens"),
        ({"input": "cat", "add_special_tokens": False}, "unsupported_value", "add_special_tokens"),
    ],
)
def test_bad_input_is_named(embedder, body, code, param):
    assert embedder.error("/v1/embeddings", **body)[:2] == (code, param)


def test_truncation_keeps_the_beginning_and_the_special_tokens(embedder):
    wanted = _expected(embedder, [[CLS, IDS["a"], IDS["dog"], SEP]])
    cut = embedder.vectors("a dog runs quickly", truncate_prompt_tokens=4)
    np.testing.assert_allclose(cut, wanted, atol=1e-5)
    ids = [CLS, IDS["a"], IDS["dog"], IDS["runs"]]
    cut = embedder.vectors(ids, truncate_prompt_tokens=3)
    np.testing.assert_allclose(cut, _expected(embedder, [ids[:3]]), atol=1e-5)
    most = embedder.ask("/v1/embeddings", input=LONG, truncate_prompt_tokens=-1)
    assert most.json()["usage"]["prompt_tokens"] == 40


def test_the_wrong_endpoint_names_the_right_one(embedder, cross):
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "cat"}),
    ):
        code, param, message = embedder.error(path, **body)
        assert (code, param) == ("wrong_task", "model")
        assert "/v1/embeddings" in message
    code, _, message = cross.error("/v1/embeddings", input="cat")
    assert code == "wrong_task"
    assert "/v1/rerank" in message


@pytest.mark.weights
def test_a_model_that_generates_says_where_to_ask(instance):
    for path, body in (
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ):
        response = instance.post(path, {"model": NAME, **body})
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "wrong_task", "model")
        assert "/v1/chat/completions" in error["message"]
    [model] = instance.client.get(instance.url + "/v1/models").json()["data"]
    assert model["capabilities"]["task"] == "generate"
    assert "/v1/embeddings" not in model["capabilities"]["endpoints"]


def test_scores_by_cosine(embedder):
    texts = ["cat", "a dog runs", "the red house"]
    vectors = embedder.vectors(texts)
    wanted = cosines(vectors[:1], vectors)
    body = embedder.ask("/v1/score", text_1="cat", text_2=texts).json()
    assert [row["score"] for row in body["data"]] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert body["data"][0] == {"index": 0, "object": "score", "score": pytest.approx(1.0, abs=1e-5)}
    assert body["usage"]["prompt_tokens"] == 3 + 3 + 5 + 5
    pairs = embedder.ask("/score", text_1=texts, text_2=texts[::-1]).json()["data"]
    assert [row["score"] for row in pairs] == pytest.approx(cosines(vectors, vectors[::-1]).tolist(), abs=1e-5)
    assert embedder.error("/v1/score", text_1=["a", "b"], text_2=["c", "d", "e"])[1] == "text_1"
    assert embedder.error("/v1/score", text_1="a", text_2=["c", ""])[1] == "text_2[1]"


def test_scores_of_a_cross_encoder(cross):
    """[CLS] a [SEP] b [SEP], the second segment of type 1, through the model itself."""
    from engines.native.pooling.queue import Text

    first, second = ["cat"], ["dog runs", "the red house"]
    runner = tiny.runner(Path(cross._paths["model.safetensors"]).parent)
    wanted = []
    for text in second:
        words = [IDS[word] for word in text.split()]
        ids = [CLS, IDS["cat"], SEP, *words, SEP]
        wanted.append(float(runner.run([Text(None, 0, np.array(ids, np.int32), 3)])[0, 0]))  # type: ignore[arg-type]
    body = cross.ask("/v1/score", text_1=first, text_2=second).json()
    assert [row["score"] for row in body["data"]] == pytest.approx(wanted, abs=1e-5)
    assert body["usage"]["total_tokens"] == 6 + 7
    ranked = cross.ask("/v1/rerank", query="cat", documents=second).json()["results"]
    best = int(np.argmax(wanted))
    assert ranked[0] == {
        "index": best,
        "relevance_score": pytest.approx(wanted[best], abs=1e-5),
        "document": {"text": second[best]},
    }


def test_pairs_are_cut_at_the_longer_text(cross):
    long = " ".join(["dog"] * 80)
    assert cross.error("/v1/score", text_1="cat", text_2=["dog", long])[:2] == ("context_length_exceeded", "text_2[1]")
    cut = cross.ask("/v1/score", text_1="cat", text_2=long, truncate_prompt_tokens=10).json()
    wanted = cross.ask("/v1/score", text_1="cat", text_2=" ".join(["dog"] * 6)).json()
    assert cut["usage"]["total_tokens"] == 10
    assert cut["data"][0]["score"] == pytest.approx(wanted["data"][0]["score"], abs=1e-5)


def test_rerank_orders_and_shows(embedder):
    documents = ["the red house", {"text": "cat"}, "a dog runs"]
    body = embedder.ask("/v1/rerank", query="cat", documents=documents, top_n=2).json()
    scores = [row["relevance_score"] for row in body["results"]]
    assert body["results"][0] == {"index": 1, "relevance_score": pytest.approx(1.0), "document": {"text": "cat"}}
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    bare = embedder.ask("/v2/rerank", query="cat", documents=documents, return_documents=False).json()["results"]
    assert [set(row) for row in bare] == [{"index", "relevance_score"}] * 3
    assert embedder.error("/v1/rerank", query=5, documents=["a"])[1] == "query"
    assert embedder.error("/v1/rerank", query="a", documents=["a", 5])[1] == "documents[1]"


def test_what_the_instance_says_of_itself(embedder):
    facts = embedder.state.facts
    assert (facts["task"], facts["dimensions"], facts["max_model_len"]) == ("embed", 48, 40)
    before = embedder.metric("prompt_tokens_total")
    embedder.vectors(["cat", "dog"])
    embedder.eventually(lambda: embedder.metric("prompt_tokens_total") == before + 6)
    assert embedder.metric("requests_running") == 0
    [model] = embedder.client.get(embedder.url + "/v1/models").json()["data"]
    assert model["max_model_len"] == 40
    told = model["capabilities"]
    assert (told["task"], told["chat"]) == ("embed", False)
    assert {"/v1/embeddings", "/v1/score", "/v1/rerank"} <= set(told["endpoints"])
    assert not {"/v1/completions", "/v1/chat/completions"} & set(told["endpoints"])
    assert embedder.post("/tokenize", {"prompt": "a cat"}).json()["tokens"] == [CLS, IDS["a"], IDS["cat"], SEP]


def test_many_clients_at_once_each_get_their_own(embedder):
    texts = [" ".join(tiny.WORDS[i % 13] for i in range(start, start + 1 + start % 17)) for start in range(60)]
    alone = [embedder.vectors(text)[0] for text in texts]
    found: dict[int, np.ndarray] = {}

    def ask(index: int) -> None:
        found[index] = embedder.vectors(texts[index : index + 3])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(57)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(57):
        np.testing.assert_allclose(found[index], alone[index : index + 3], atol=1e-5)


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> Iterator[Pooling]:
    """A model whose passes take long enough to be left, drained and killed."""
    folder = tmp_path_factory.mktemp("slow")
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}
    tiny.make(folder, "bert", **sizes, max_position_embeddings=514)
    tiny.tokenizer(folder)
    options = {"max_batched_tokens": 512, "max_queued": 3, "queue_timeout_s": 1}
    running = Pooling(tiny.paths_of(folder), options=options)
    try:
        yield running
    finally:
        running.stop()


def _work(texts: int) -> dict[str, Any]:
    return {"model": NAME, "input": [[5] * 510] * texts, "encoding_format": "base64"}


def test_a_client_that_leaves_ends_its_request(slow):
    with pytest.raises(httpx.TimeoutException):
        slow.post("/v1/embeddings", _work(2000), timeout=0.5)
    slow.eventually(lambda: slow.metric("requests_running") + slow.metric("requests_waiting") == 0)
    assert slow.vectors([5, 6]).shape == (1, 384)


def test_a_request_names_its_own_time(slow):
    """The pass that runs comes to its end; then the request is told which limit it met."""
    code, _, message = slow.error("/v1/embeddings", 504, input=[[5] * 510] * 1000, timeout=0.3)
    assert code == "total_timeout"
    assert "0.3 s" in message
    slow.eventually(lambda: slow.metric("requests_running") == 0)
    assert slow.error("/v1/embeddings", 400, input="cat", timeout={"first": 1})[1] == "timeout.first"


def test_the_queue_has_an_end(slow):
    statuses: list[int] = []

    def ask() -> None:
        try:
            statuses.append(slow.post("/v1/embeddings", _work(300), timeout=1.5).status_code)
        except httpx.TimeoutException:
            statuses.append(0)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.count(503) == 2
    slow.eventually(lambda: slow.metric("requests_running") == 0)


def test_a_dead_core_comes_back_and_its_requests_are_told(slow):
    answer: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answer.append(slow.post("/v1/embeddings", _work(1500))))
    thread.start()
    slow.eventually(lambda: slow.metric("requests_running") == 1)
    slow.core.kill()
    thread.join(10)
    assert (answer[0].status_code, answer[0].json()["error"]["code"]) == (500, "engine_error")
    slow.wait_for(Phase.READY)
    assert slow.vectors([5, 6]).shape == (1, 384)


def test_drain_lets_a_running_request_finish(slow):
    answer: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answer.append(slow.post("/v1/embeddings", _work(8))))
    thread.start()
    slow.eventually(lambda: slow.metric("requests_running") == 1)
    slow.process.send_signal(signal.SIGTERM)
    thread.join(30)
    assert (answer[0].status_code, len(answer[0].json()["data"])) == (200, 8)
    assert slow.process.wait(20) == 0


@pytest.mark.weights
def test_minilm_as_a_client_meets_it():
    running = Pooling(minilm(), dtype="auto")
    try:
        rows = [row for row in golden() if row["text"]]
        client = OpenAI(base_url=f"{running.url}/v1", api_key=running.token, max_retries=0)
        made = client.embeddings.create(model=NAME, input=[row["text"] for row in rows])
        ours = np.array([row.embedding for row in made.data], np.float32)
        np.testing.assert_allclose(ours, np.array([row["embedding"] for row in rows]), atol=3e-6)
        films = ["The new movie is awesome", "The new movie is so great"]
        [score] = running.ask("/v1/score", text_1=films[0], text_2=films[1]).json()["data"]
        assert score["score"] == pytest.approx(0.8939, abs=5e-5)
        best = running.ask(
            "/v1/rerank", query="What is the capital of France?", documents=[row["text"] for row in rows], top_n=2
        ).json()["results"]
        assert "Paris" in best[1]["document"]["text"]  # after the question itself
    finally:
        assert running.stop() == 0
