"""/openapi.json says what the code does: the same fields as docs/api.md, the same bounds, every route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from engines.native.loader.model_files import open_model
from engines.native.serve import openapi, openapi_fields
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.errors import ApiError
from engines.native.serve.model import ServedModel, load
from engines.native.serve.openapi_fields import INT64
from tests.engines.instances import NAME, Running
from tests.engines.serve.test_api_docs import ASKED, SHARED, documented
from tests.tiny_models import VOCAB, write_safetensors

MADE = {CompletionEndpoint: openapi_fields.completion, ChatEndpoint: openapi_fields.chat}
FOR_OPERATORS = "/debug"
"""Their bodies are no client's affair, and not asked at random."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder: Path = write_safetensors(tmp_path_factory.mktemp("m") / "m")
    return load(NAME, open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


def named(fields: tuple[dict[str, Any], dict[str, Any]]) -> set[str]:
    return {"model", *fields[0], *fields[1]}


def test_fields_are_those_of_the_documentation() -> None:
    shared = documented(SHARED)
    assert named(openapi_fields.completion(VOCAB)) == shared | documented("/v1/completions")
    assert named(openapi_fields.chat(VOCAB)) == (shared | documented("/v1/chat/completions")) - {"best_of"}
    chat = shared | documented("/v1/chat/completions")
    for title, fields in (
        ("/v1/messages", openapi_fields.message(VOCAB)),
        ("/v1/responses", openapi_fields.response(VOCAB)),
        ("/tokenize", openapi_fields.tokenizing()),
    ):
        assert documented(title) - {"tokens"} <= named(fields) <= documented(title) | chat | {"add_special_tokens"}


def outside(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(field, a value just outside of what its schema allows)."""
    for name, schema in fields.items():
        kind = schema.get("anyOf", [schema])[0]
        if kind.get("type") not in ("integer", "number") or name == "timeout":  # whose layers have tests of their own
            continue
        step = 1 if kind["type"] == "integer" else 0.5
        if name != "max_tokens":  # its floor depends on echo
            yield name, kind["exclusiveMinimum"] if "exclusiveMinimum" in kind else kind["minimum"] - step
        if kind["maximum"] != INT64 - 1:
            yield name, kind["maximum"] + step
        yield name, "1"


BESIDE = dict.fromkeys(("beam_width", "length_penalty", "search_budget_ms"), "use_beam_search")
BESIDE |= {"top_logprobs": "logprobs"}
"""Fields that mean something only beside another one."""


@pytest.mark.parametrize("make", MADE)
async def test_what_is_just_outside_of_a_bound_is_refused_by_name(model: ServedModel, make: type[Any]) -> None:
    tried = list(outside(MADE[make](VOCAB)[1]))
    assert len(tried) > 50
    for name, value in tried:
        body = {**ASKED[make][1], "model": NAME, name: value}
        if name in BESIDE:
            body[BESIDE[name]] = True
        with pytest.raises(ApiError) as refused:
            await make(model, body, 128).generation()
        assert (refused.value.status, refused.value.param) == (400, name)


def test_every_route_of_a_generating_model_is_described_and_nothing_else(instance: Running) -> None:
    described = instance.client.get(instance.url + "/openapi.json").json()["paths"]
    (told,) = instance.client.get(instance.url + "/v1/models").json()["data"]
    posts = {path for path, methods in described.items() if "post" in methods}
    assert posts == {path for path in told["capabilities"]["endpoints"] if not path.startswith(FOR_OPERATORS)}
    for path in set(described) - posts - {"/v1/models/{name}"}:
        assert instance.client.get(instance.url + path).status_code == 200, path


def test_a_generating_model_describes_no_pooling(model: ServedModel) -> None:
    paths = set(openapi._operations(model))
    assert "/v1/completions" in paths
    assert "/v1/embeddings" not in paths


def test_a_prompt_beside_messages_is_refused(instance: Running) -> None:
    body = {"prompt": False, "messages": [{"role": "user", "content": "x"}]}
    refused = instance.post("/tokenize", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
    assert instance.post("/tokenize", {**body, "prompt": None}).status_code == 200


def test_the_wrong_method_is_told_the_right_one(instance: Running) -> None:
    headers = {"Authorization": f"Bearer {instance.token}"}
    for path, allowed in (("/v1/completions", {"POST"}), ("/health", {"GET", "HEAD"})):
        answer = httpx.request("DELETE", instance.url + path, headers=headers)
        assert answer.status_code == 405
        assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed
        assert answer.json()["error"]["type"] == "invalid_request_error"
