"""Beam search: the same answers as transformers' own, over the engine's own door."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.native.request import Finish, SamplingParams
from engines.native.serve import beam_options
from engines.native.serve.beam_options import BeamOptions
from engines.native.serve.beams import Beam, BeamSearch
from engines.native.serve.errors import ApiError
from tests.engines import shared_instances
from tests.engines.instances import NAME, Running

EOS = 3
PROMPT = [5, 9, 11]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(3)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    made = LlamaForCausalLM(LlamaConfig(vocab_size=24, **shape, initializer_range=0.4)).eval()
    made.generation_config.pad_token_id = 0
    return made


def never(_: Beam) -> bool:
    return False


@torch.inference_mode()
def searched(model: LlamaForCausalLM, options: BeamOptions, params: SamplingParams, count: int) -> list[Beam]:
    search = BeamSearch(options, params)
    while not search.done:
        ids = torch.tensor([[*PROMPT, *beam.tokens] for beam in search.open])
        scores = model(ids).logits[:, -1].float().log_softmax(-1)
        values, tokens = scores.topk(min(search.followers, scores.shape[1]))
        search.advance(list(zip(tokens.tolist(), values.tolist(), strict=True)), never)
    return search.best(count)


@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("width", "length"), [(1, 6), (2, 9), (4, 12), (7, 5)])
def test_answers_are_those_of_transformers(model, penalty, early, width, length):
    count = min(3, width)
    options = BeamOptions(width, length_penalty=penalty, early_stopping=early)
    params = SamplingParams(temperature=0, max_tokens=length, stop_token_ids=[EOS])
    found = searched(model, options, params, count)
    if width == 1:  # transformers calls that greedy search
        greedy = model.generate(
            torch.tensor([PROMPT]), do_sample=False, max_new_tokens=length, eos_token_id=EOS, num_beams=1
        )
        assert list(found[0].tokens) == greedy[0, len(PROMPT) :].tolist()
        return
    wanted = model.generate(
        torch.tensor([PROMPT]), num_beams=width, num_return_sequences=count, length_penalty=penalty,
        early_stopping=early, do_sample=False, max_new_tokens=length, eos_token_id=EOS,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    assert len(found) == count
    for beam, ids, score in zip(found, wanted.sequences, wanted.sequences_scores, strict=True):
        tokens = ids[len(PROMPT) :].tolist()
        assert list(beam.tokens) == tokens[: len(beam.tokens)]
        assert set(tokens[len(beam.tokens) :]) <= ({0, EOS} if beam.tokens[-1] == EOS else set()), "only padding"
        assert beam.score / len(beam.tokens) ** penalty == pytest.approx(float(score), abs=1e-4)
        assert beam.finish is (Finish.STOP if beam.tokens[-1] == EOS else Finish.LENGTH)


def test_no_end_before_min_tokens(model):
    params = SamplingParams(temperature=0, max_tokens=12, min_tokens=8, stop_token_ids=[EOS])
    for beam in searched(model, BeamOptions(4), params, 4):
        assert EOS not in beam.tokens[:8]
        assert len(beam.tokens) >= 8


def test_a_stop_string_ends_a_beam_and_giving_up_keeps_what_there_is(model):
    params = SamplingParams(temperature=0, max_tokens=10)
    search = BeamSearch(BeamOptions(2), params)
    tops = [([7, 8, 9], [-0.1, -0.2, -3.0])]
    search.advance(tops, lambda beam: beam.tokens[-1] == 7)
    assert [beam.tokens for beam in search.open] == [(8,), (9,)]
    search.give_up()
    assert search.done
    assert [(beam.tokens, beam.finish) for beam in search.best(2)] == [((7,), Finish.STOP), ((8,), Finish.LENGTH)]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"beam_width": 3}, "beam_width"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"use_beam_search": "always"}, "use_beam_search"),
        ({"use_beam_search": True, "beam_width": 17}, "beam_width"),
        ({"use_beam_search": True, "beam_width": 1, "n": 2}, "beam_width"),
        ({"use_beam_search": True, "presence_penalty": 0.5}, "presence_penalty"),
        ({"use_beam_search": True, "logit_bias": {"3": 1}}, "logit_bias"),
        ({"use_beam_search": True, "response_format": {"type": "json_object"}}, "response_format"),
        ({"use_beam_search": True, "search_budget_ms": -1}, "search_budget_ms"),
        ({"use_beam_search": "first_turn", "prompt": "x"}, "use_beam_search"),
    ],
)
def test_what_cannot_be_is_refused_by_name(body, param):
    with pytest.raises(ApiError) as refused:
        beam_options.read(body, body.get("n", 1))
    assert (refused.value.status, refused.value.param) == (400, param)


def test_the_first_turn_is_searched_and_later_ones_are_drawn():
    first = {"use_beam_search": "first_turn", "messages": [{"role": "system"}, {"role": "user"}], "temperature": 0.7}
    assert beam_options.read(first, 1) == BeamOptions(beam_options.DEFAULT_WIDTH)
    later = first | {"messages": [*first["messages"], {"role": "assistant"}, {"role": "user"}], "presence_penalty": 1}
    assert beam_options.read(later, 1) is None


# Through the door, with the engine's own weights


@pytest.fixture(scope="module")
def tiny() -> Running:
    return shared_instances.tiny()


@pytest.mark.slow
def test_the_engine_finds_what_transformers_finds(tiny):
    reference = LlamaForCausalLM.from_pretrained(shared_instances.tiny_model(), dtype=torch.float32).eval()
    prompts = [[40 + i for i in range(35)], [7, 70, 7, 70, 9]]
    options = {"use_beam_search": True, "beam_width": 5, "n": 3, "max_tokens": 8, "length_penalty": 0.5}
    body = tiny.complete(prompt=prompts, return_token_ids=True, logprobs=1, **options)
    answers = [choice["token_ids"] for choice in body["choices"]]
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    eos = reference.generation_config.eos_token_id or 258
    for number, prompt in enumerate(prompts):
        wanted = reference.generate(
            torch.tensor([prompt]), num_beams=5, num_return_sequences=3, length_penalty=0.5, do_sample=False,
            max_new_tokens=8, eos_token_id=eos, pad_token_id=0,
        )  # fmt: skip
        for ids, sequence in zip(answers[3 * number : 3 * number + 3], wanted, strict=True):
            assert ids == sequence[len(prompt) :].tolist()[: len(ids)]
    assert body["usage"]["prompt_tokens"] == 40
    assert body["usage"]["completion_tokens"] == sum(map(len, answers))
    assert len(body["choices"][0]["logprobs"]["token_logprobs"]) == len(answers[0])


@pytest.mark.slow
def test_a_budget_ends_the_search_and_a_stream_brings_whole_answers(tiny):
    options = {"use_beam_search": True, "max_tokens": 90, "search_budget_ms": 1, "ignore_eos": True}
    body = tiny.complete(prompt=[5, 6, 7], return_token_ids=True, **options)
    assert 1 <= len(body["choices"][0]["token_ids"]) < 90
    body = {"prompt": [5, 6, 7], "use_beam_search": True, "max_tokens": 4, "n": 2}
    *events, done = tiny.events("/v1/completions", body)
    finished = [choice for event in events for choice in event["choices"] if choice["finish_reason"]]
    assert done == "[DONE]"
    assert [choice["index"] for choice in finished] == [0, 1]


@pytest.mark.slow
def test_a_search_that_runs_out_of_time_is_told_so_and_leaves_nothing_running(tiny):
    options = {"use_beam_search": True, "max_tokens": 90, "timeout": 0.001, "ignore_eos": True}
    response = tiny.post("/v1/completions", {"model": NAME, "prompt": [5, 6, 7], **options})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "total_timeout")
    tiny.complete(prompt=[5, 6, 7], max_tokens=2)
    tiny.eventually(lambda: tiny.metric("requests_running") == 0)
