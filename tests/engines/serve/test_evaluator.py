"""The evaluator's contract: what lm-eval's `local-completions` asks of /v1/completions to get log-likelihoods, against
transformers on the same weights. A tiny model on the CPU, its prompts cut into many chunks, its cache on.

lm-eval posts {prompt: [[ids], …], echo, logprobs: 1, max_tokens: 1, temperature: 0, seed}, sums
token_logprobs[context:-1], and takes an answer as greedy if each token_logprob equals max(top_logprobs.values()).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.instances import NAME, Running
from tests.tiny_models import write_safetensors

pytestmark = pytest.mark.slow

BOS = 257


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_safetensors(tmp_path_factory.mktemp("tiny") / "model", bos=True)


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[Running]:
    """A step computes at most 20 tokens, so that a prompt of 100 comes in chunks."""
    running = Running(folder, max_num_seqs=4, kv_cache_bytes=2**20, options={"max_batched_tokens": 20})
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def scores(reference: Any, ids: list[int]) -> np.ndarray:
    """float32 [n, vocab]: log-probabilities of what follows each token."""
    with torch.inference_mode():
        logits = reference(torch.tensor([ids])).logits[0].float()
    result: np.ndarray = torch.log_softmax(logits, dim=-1).numpy()
    return result


def prompt_of(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def asked(tiny: Running, prompts: Any, **options: Any) -> list[dict[str, Any]]:
    body = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234, **options}
    choices: list[dict[str, Any]] = tiny.complete(**body)["choices"]
    return sorted(choices, key=lambda choice: choice["index"])


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 20, 21, 100, 126])
def test_exactly_one_entry_per_token_and_one_more(tiny: Running, reference: Any, length: int) -> None:
    ids = prompt_of(length, length)
    (choice,) = asked(tiny, [ids])
    own, top = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
    assert len(own) == len(top) == len(choice["logprobs"]["tokens"]) == length + 1
    assert own[0] is None
    assert top[0] is None
    expected = scores(reference, ids)
    greedy = int(expected[-1].argmax())
    for place, token in enumerate([*ids[1:], greedy]):
        assert own[place + 1] == pytest.approx(float(expected[place, token]), abs=2e-4), place
        assert max(top[place + 1].values()) == pytest.approx(float(expected[place].max()), abs=2e-4), place


def test_greedy_is_told_by_the_very_same_number(tiny: Running, reference: Any) -> None:
    """A prompt that the model itself wrote is greedy in each place; another is not."""
    ids = prompt_of(8, 1)
    for _ in range(40):
        ids.append(int(scores(reference, ids)[-1].argmax()))
    (choice,) = asked(tiny, [ids])
    own, top = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
    is_greedy = [value == max(entry.values()) for value, entry in zip(own[1:], top[1:], strict=True)]
    assert is_greedy[7:] == [True] * 41
    assert not all(is_greedy[:7])


def test_batches_come_back_by_index(tiny: Running, reference: Any) -> None:
    prompts = [prompt_of(length, 100 + length) for length in (40, 3, 77, 12, 9, 64)]
    for ids, choice in zip(prompts, asked(tiny, prompts), strict=True):
        own = choice["logprobs"]["token_logprobs"]
        assert len(own) == len(ids) + 1
        expected = scores(reference, ids)[np.arange(len(ids) - 1), ids[1:]].sum()
        assert sum(own[1:-1]) == pytest.approx(float(expected), abs=5e-3)


def test_temperature_penalties_and_bias_change_no_score(tiny: Running, reference: Any) -> None:
    ids = prompt_of(30, 5)
    options = {"temperature": 0.3, "repetition_penalty": 1.7, "presence_penalty": 1.0, "logit_bias": {"65": 100}}
    (choice,) = asked(tiny, [ids], **options)
    expected = scores(reference, ids)
    own = choice["logprobs"]["token_logprobs"]
    for place, token in enumerate([*ids[1:], 65]):  # the bias chose the last
        assert own[place + 1] == pytest.approx(float(expected[place, token]), abs=2e-4)


def test_a_cached_prefix_skips_no_score(tiny: Running) -> None:
    ids = prompt_of(90, 6)
    cold = asked(tiny, [ids])[0]["logprobs"]
    tiny.complete(prompt=ids, max_tokens=1, temperature=0)  # now all its blocks are found
    usage = tiny.complete(prompt=ids, max_tokens=1, temperature=0)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 80
    warm = asked(tiny, [ids])[0]["logprobs"]
    assert warm["tokens"] == cold["tokens"]
    assert warm["token_logprobs"][1:] == pytest.approx(cold["token_logprobs"][1:], abs=1e-5)


def test_scores_do_not_hang_on_what_runs_beside(tiny: Running) -> None:
    prompts = [prompt_of(50, 200 + i) for i in range(8)]
    alone = [asked(tiny, [ids])[0]["logprobs"]["token_logprobs"][1:] for ids in prompts]
    for choice, own in zip(asked(tiny, prompts), alone, strict=True):
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(own, abs=1e-5)


def test_ids_get_no_bos_and_text_gets_one(tiny: Running) -> None:
    ids = [BOS, *prompt_of(5, 7)]
    (given,) = asked(tiny, [ids], return_token_ids=True)
    assert given["prompt_token_ids"] == ids
    (bare,) = asked(tiny, [ids[1:]], return_token_ids=True)
    assert bare["prompt_token_ids"] == ids[1:]
    (text,) = asked(tiny, "ab", return_token_ids=True)
    assert text["prompt_token_ids"] == [BOS, 256]
    (written,) = asked(tiny, "<|start|>ab", return_token_ids=True)
    assert written["prompt_token_ids"] == [BOS, 256]
    (without,) = asked(tiny, "ab", return_token_ids=True, add_special_tokens=False)
    assert without["prompt_token_ids"] == [256]


def test_too_long_is_refused_and_cut_only_on_request(tiny: Running, reference: Any) -> None:
    ids = prompt_of(140, 8)
    body = {"model": NAME, "prompt": [ids], "echo": True, "logprobs": 1, "max_tokens": 1}
    refused = tiny.post("/v1/completions", body)
    assert refused.status_code == 400
    assert "140 tokens" in refused.json()["error"]["message"]
    (cut,) = asked(tiny, [ids], truncate_prompt_tokens=-1, return_token_ids=True)
    assert cut["prompt_token_ids"] == ids[-127:]  # 128 less the one to come
    expected = scores(reference, ids[-127:])
    assert cut["logprobs"]["token_logprobs"][5] == pytest.approx(float(expected[4, ids[-127:][5]]), abs=2e-4)


def test_nothing_but_the_prompt(tiny: Running) -> None:
    ids = prompt_of(33, 9)
    (choice,) = asked(tiny, [ids], max_tokens=0)
    assert len(choice["logprobs"]["token_logprobs"]) == 33


def test_a_stream_says_what_the_whole_says(tiny: Running) -> None:
    ids = prompt_of(45, 10)
    (whole,) = asked(tiny, [ids], max_tokens=4, logprobs=3)
    body = {"prompt": [ids], "echo": True, "logprobs": 3, "max_tokens": 4, "temperature": 0}
    chunks = [event["choices"][0] for event in tiny.events("/v1/completions", body)[:-1]]
    for name in ("tokens", "top_logprobs", "text_offset"):
        assert [item for chunk in chunks for item in chunk["logprobs"][name]] == whole["logprobs"][name]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_prompt_logprobs_in_vllms_shape(tiny: Running, reference: Any, path: str) -> None:
    text = "a prompt of some length, cut into chunks"
    given = {"prompt": text} if path == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    body = {"model": NAME, **given, "prompt_logprobs": 3, "max_tokens": 2, "n": 2, "return_token_ids": True}
    whole = tiny.post(path, body).json()
    holders = whole["choices"] if path == "/v1/completions" else [whole]
    for holder in holders:
        ids, told = holder["prompt_token_ids"], holder["prompt_logprobs"]
        assert len(told) == len(ids)
        assert told[0] is None
        expected = scores(reference, ids)
        for place, token in enumerate(ids[1:]):
            entry = told[place + 1]
            assert entry[str(token)]["logprob"] == pytest.approx(float(expected[place, token]), abs=2e-4)
            ranks = {each["rank"]: int(name) for name, each in entry.items() if each["rank"] is not None}
            assert [ranks[rank] for rank in (1, 2, 3)] == np.argsort(-expected[place])[:3].tolist()


def test_logprobs_of_the_drawn_are_of_the_raw_distribution(tiny: Running, reference: Any) -> None:
    ids = prompt_of(10, 11)
    body = {"prompt": ids, "max_tokens": 12, "temperature": 1.5, "seed": 3, "logprobs": 5, "return_token_ids": True}
    choice = tiny.complete(**body)["choices"][0]
    drawn = choice["token_ids"]
    expected = scores(reference, [*ids, *drawn])
    for place, token in enumerate(drawn):
        value = choice["logprobs"]["token_logprobs"][place]
        assert value == pytest.approx(float(expected[len(ids) + place - 1, token]), abs=2e-4)
        assert value in choice["logprobs"]["top_logprobs"][place].values()


# Several answers to one prompt, with a model that draws


def test_each_answer_can_be_had_again_by_its_seed(tiny: Running) -> None:
    body = {"prompt": prompt_of(40, 12), "max_tokens": 10, "temperature": 1.0, "return_token_ids": True}
    together = [choice["token_ids"] for choice in tiny.complete(**body, n=6, seed=40)["choices"]]
    alone = [tiny.complete(**body, seed=40 + i)["choices"][0]["token_ids"] for i in range(6)]
    assert together == alone
    assert len({tuple(ids) for ids in together}) == 6
    last = tiny.complete(**body, n=2, seed=2**63 - 1)["choices"]  # the next seed is the lowest
    assert last[1]["token_ids"] == tiny.complete(**body, seed=-(2**63))["choices"][0]["token_ids"]


def test_best_of_shows_the_most_likely_per_token(tiny: Running) -> None:
    body = {"prompt": prompt_of(40, 13), "max_tokens": 8, "temperature": 1.2, "seed": 7, "return_token_ids": True}
    drawn = tiny.complete(**body, n=8, logprobs=0)["choices"]
    means = [np.mean(choice["logprobs"]["token_logprobs"]) for choice in drawn]
    ranked = [drawn[place]["token_ids"] for place in np.argsort(means)[::-1]]
    best = tiny.complete(**body, best_of=8, n=3)["choices"]
    assert [choice["token_ids"] for choice in best] == ranked[:3]
    assert best[0]["logprobs"] is None


def test_scores_of_the_prompt_stand_beside_each_answer(tiny: Running) -> None:
    ids = prompt_of(40, 14)
    choices = asked(tiny, [ids], n=3, temperature=1.0)
    firsts = [choice["logprobs"]["token_logprobs"][:-1] for choice in choices]
    assert firsts == [firsts[0]] * 3
    assert len(firsts[0]) == len(ids)
