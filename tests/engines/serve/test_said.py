"""Whatever a client sends to the APIs that are spellings of a chat is read, or refused with a 400 that names it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.native.loader.model_files import open_model
from engines.native.serve.errors import ApiError
from engines.native.serve.messages import _OWN as MESSAGES
from engines.native.serve.messages import MessagesEndpoint
from engines.native.serve.model import ServedModel, load
from engines.native.serve.responses import _OWN as RESPONSES
from engines.native.serve.responses import ResponsesEndpoint
from engines.native.serve.said import Piece, pieces, renamed
from tests.tiny_models import write_safetensors

# The words that the code looks for, so that the bodies get past the first check.
WORDS = (
    *("role", "content", "type", "text", "name", "id", "input", "format", "schema", "call_id", "output", "arguments"),
    *("user", "assistant", "system", "tool_use", "tool_result", "tool_use_id", "thinking", "function_call", "message"),
    *("input_text", "output_text", "reasoning", "summary", "function", "parameters", "input_schema", "json_schema"),
    *("function_call_output", "any", "auto", "tool", "none", "enabled", "disabled", "effort", "is_error", "required"),
)
words = st.sampled_from(WORDS)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
    | st.text(max_size=3)
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)
blocks = st.fixed_dictionaries(
    {"type": words}, optional=dict.fromkeys(("text", "id", "name", "input", "tool_use_id", "content"), values)
)
contents = values | st.lists(blocks, max_size=3)
turns = st.fixed_dictionaries({"role": st.sampled_from(("user", "assistant"))}, optional={"content": contents})
items = st.dictionaries(st.sampled_from(WORDS[:12]), values, max_size=5) | turns


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder: Path = write_safetensors(tmp_path_factory.mktemp("m") / "m")
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


def read(make: Any, model: ServedModel, body: dict[str, Any]) -> None:
    """To the last check before the engine."""
    error: ApiError | None = None
    try:
        asyncio.run(make(model, body, 128).generation())
    except ApiError as raised:
        error = raised
    if error is not None:
        assert error.status == 400
        assert error.param
        assert error.message


fuzzed = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@fuzzed
@given(data=st.data())
def test_any_message_is_read_or_refused(model: ServedModel, data: st.DataObject) -> None:
    body = data.draw(st.dictionaries(st.sampled_from(MESSAGES), values, max_size=4))
    body["messages"] = data.draw(values | st.lists(turns, min_size=1, max_size=3))
    read(MessagesEndpoint, model, {"max_tokens": 5, **body})


@fuzzed
@given(data=st.data())
def test_any_response_is_read_or_refused(model: ServedModel, data: st.DataObject) -> None:
    body = data.draw(st.dictionaries(st.sampled_from(RESPONSES), values, max_size=4))
    body["input"] = data.draw(values | st.lists(items, min_size=1, max_size=3))
    read(ResponsesEndpoint, model, body)


def test_pieces_of_a_message_come_in_its_order() -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}, {"function": {"arguments": "more"}}]
    message = {"reasoning_content": "hm", "reasoning": "hm", "content": "so", "tool_calls": calls}
    assert list(pieces(message)) == [
        Piece("thinking", "hm"),
        Piece("text", "so"),
        Piece("call", id="c", name="f"),
        Piece("arguments", "{}"),
        Piece("arguments", "more"),
    ]
    assert list(pieces({"role": "assistant", "content": ""})) == []


def test_errors_name_the_field_as_it_was_written() -> None:
    names = {"stop": "stop_sequences", "response_format": "text.format"}
    deep = "response_format.json_schema.schema"
    inner = renamed(ApiError(400, f"{deep}: bad", param=deep), names)
    assert (inner.param, inner.message) == ("text.format", "text.format: bad")
    turn = renamed(ApiError(400, "messages[3].content is bad", param="messages[3].content"), names)
    assert (turn.param, turn.message) == ("messages", "messages is bad")
    other = ApiError(503, "full", code="overloaded", retry_after=1)
    assert renamed(other, names) is other
