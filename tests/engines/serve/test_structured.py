"""Structured output at the door, and with the real model behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from engines.native.serve import structured
from engines.native.serve.errors import ApiError
from tests.engines.instances import NAME, Running
from tests.engines.weights import smollm2

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z][a-z]{2,12}$"},
        "capital": {"type": "boolean"},
        "inhabitants": {"type": "integer", "minimum": 1000, "maximum": 99_999_999},
    },
    "required": ["city", "capital", "inhabitants"],
    "additionalProperties": False,
}


def json_schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # fields, param, part of the message
    ({"response_format": "json"}, "response_format", "must be an object"),
    ({"response_format": {}}, "response_format.type", "text, json_object, json_schema"),
    ({"response_format": {"type": "structural_tag"}}, "response_format.type", "'structural_tag'"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be an object"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
     "response_format.json_schema.schema", "is missing"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": 3, "schema": {}}}},
     "response_format.json_schema.name", "must be a string"),
    (json_schema({"properties": {"a": {"not": {}}}}), "response_format.json_schema.schema", "#/properties/a/not"),
    (json_schema({"not": {}}), "response_format.json_schema.schema", "supported: type, enum"),
    (json_schema([]), "response_format.json_schema.schema", "is no schema"),
    (json_schema({"type": "string", "pattern": "("}), "response_format.json_schema.schema", "unclosed group"),
    (json_schema({"oneOf": [{}, {}]}), "response_format.json_schema.schema", "use anyOf"),
    ({"guided_json": "{"}, "guided_json", "no JSON"),
    ({"guided_json": {"$ref": "http://x/y"}}, "guided_json", "nothing is fetched"),
    ({"guided_regex": "(?=a)"}, "guided_regex", "look-around"),
    ({"guided_regex": 5}, "guided_regex", "must be a string"),
    ({"guided_choice": []}, "guided_choice", "nothing to choose"),
    ({"guided_choice": "ab"}, "guided_choice", "array of strings"),
    ({"guided_grammar": "start: nowhere"}, "guided_grammar", "nowhere"),
    ({"guided_grammar": "root ::= ("}, "guided_grammar", "EBNF"),
    ({"guided_grammar": "root ::= root"}, "guided_grammar", "no text can follow it"),
    (json_schema({"$ref": "#"}), "response_format.json_schema.schema", "no text can follow it"),
    ({"guided_regex": "(a+)+" * 500}, "guided_regex", "too many expressions constructed"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "not supported"),
    ({"structured_outputs": {}}, "structured_outputs", "must have one of"),
    ({"structured_outputs": []}, "structured_outputs", "must be an object"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "must have one of"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "not supported"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "unclosed"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "guided_regex and guided_choice"),
    ({"guided_regex": "a", **json_schema({})}, "guided_regex", "give one of them"),
    ({"guided_regex": "a", "allowed_token_ids": [5]}, "allowed_token_ids", "can't be used with guided_regex"),
    ({"guided_regex": "a", "stop_token_ids": [500]}, "stop_token_ids", "only special tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "message"), REFUSED)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_cannot_be_followed_is_refused_by_name(
    instance: Running, path: str, fields: dict[str, Any], param: str, message: str
) -> None:
    prompt = {"prompt": "hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
    answer = instance.client.post(f"{instance.url}{path}", json={"model": NAME, **prompt, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


def test_what_asks_for_nothing_is_no_grammar(instance: Running) -> None:
    fields = {"response_format": {"type": "text"}, "guided_json": None, "structured_outputs": None}
    body = {"model": NAME, "prompt": "hi", "max_tokens": 1, **fields}
    assert instance.client.post(f"{instance.url}/v1/completions", json=body).status_code == 200


def test_the_order_of_the_fields() -> None:
    assert structured.asked({}) is None
    for field, value in (("guided_json", {}), ("guided_regex", "a"), ("guided_choice", ["a"]), ("guided_grammar", "a")):
        read = structured.asked({field: value})
        assert read is not None
        assert read[0] == field
    with pytest.raises(ApiError):
        structured.asked({"structured_outputs": {"json": {}, "choice": ["a"]}})


@pytest.fixture(scope="module")
def real() -> Iterator[Running]:
    running = Running(smollm2(), dtype="int8", max_model_len=512, max_num_seqs=4, kv_cache_bytes=48 * 2**20)
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.slow
@pytest.mark.weights
class TestRealModel:
    """As the OpenAI SDK asks."""

    @pytest.fixture
    def client(self, real: Running) -> OpenAI:
        return OpenAI(base_url=f"{real.url}/v1", api_key=real.token, max_retries=0)

    @pytest.mark.parametrize("stream", [False, True])
    def test_json_schema(self, client: OpenAI, stream: bool) -> None:
        asked: dict[str, Any] = {
            "model": NAME,
            "messages": [{"role": "user", "content": "Describe Oslo in JSON."}],
            "temperature": 1.0,
            "seed": 3,
            "max_tokens": 150,
            **json_schema(CITY),
        }
        if stream:
            chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
            text, finish = "".join(choice.delta.content or "" for choice in chunks), chunks[-1].finish_reason
        else:
            choice = client.chat.completions.create(**asked).choices[0]
            text, finish = choice.message.content or "", choice.finish_reason
        assert finish == "stop"
        jsonschema.validate(json.loads(text), CITY)

    @pytest.mark.parametrize(
        ("fields", "good"),
        [
            ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
            ({"guided_json": CITY}, lambda text: set(json.loads(text)) == set(CITY["required"])),
            ({"guided_json": json.dumps(CITY)}, lambda text: set(json.loads(text)) == set(CITY["required"])),
            ({"guided_regex": r"\d{3}-\d{4}"}, lambda text: re.fullmatch(r"\d{3}-\d{4}", text)),
            ({"guided_choice": ["Paris", "Rome"]}, lambda text: text in ("Paris", "Rome")),
            ({"guided_grammar": 'root ::= "x" [0-9] "y"'}, lambda text: re.fullmatch("x[0-9]y", text)),
            ({"structured_outputs": {"json": CITY}}, lambda text: set(json.loads(text)) == set(CITY["required"])),
            ({"structured_outputs": {"regex": "ab?c"}}, lambda text: text in ("ac", "abc")),
            ({"structured_outputs": {"choice": ["one"]}}, lambda text: text == "one"),
            ({"structured_outputs": {"grammar": 'start: "a" | "b"'}}, lambda text: text in ("a", "b")),
        ],
    )
    def test_every_form(self, client: OpenAI, fields: dict[str, Any], good: Any) -> None:
        asked: dict[str, Any] = {"model": NAME, "temperature": 0.0, "max_tokens": 60, "extra_body": fields}
        plain = client.completions.create(prompt="The city of Oslo as a short JSON object:", **asked).choices[0]
        text, finish = plain.text, plain.finish_reason
        if "response_format" in fields and finish == "length":
            assert text.startswith("{")  # any object: a small model may go on for ever
            return
        assert finish == "stop"
        assert good(text)

    def test_several_answers_to_a_prompt(self, client: OpenAI) -> None:
        made = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "A city?"}],
            n=2,
            temperature=1.0,
            seed=1,
            max_tokens=150,
            extra_body={"guided_json": CITY},
        )
        assert len(made.choices) == 2
        for choice in made.choices:
            jsonschema.validate(json.loads(choice.message.content or ""), CITY)
