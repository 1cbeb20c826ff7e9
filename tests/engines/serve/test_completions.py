"""What a completion's answer says, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.native.loader.model_files import open_model
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.generate import Delta, TokenLogprob
from engines.native.serve.model import ServedModel, load
from tests.tiny_models import write_safetensors


@pytest.fixture
def model(tmp_path: Path) -> ServedModel:
    folder = write_safetensors(tmp_path / "m")
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


async def scored(model: ServedModel, token: int, logprob: float, top: tuple[list[int], list[float]]) -> dict[str, Any]:
    endpoint = CompletionEndpoint(model, {"prompt": [1], "logprobs": len(top[0])}, 128)
    await endpoint.generation()
    (chunk,) = endpoint.chunks(Delta(0, "x", logprobs=[TokenLogprob(token, logprob, top)]))
    told: dict[str, Any] = chunk["choices"][0]["logprobs"]
    return told


async def test_of_two_tokens_with_one_text_the_likelier_stands(model: ServedModel) -> None:
    """Else the chosen token, the second, would look like the greedy one."""
    pieces = model.detokenizer.pieces
    assert pieces is not None
    pieces[10] = pieces[11] = b"same"
    told = await scored(model, 10, -2.0, ([11, 10], [-0.25, -2.0]))
    assert told["top_logprobs"] == [{"same": -0.25}]
    assert told["token_logprobs"] == [-2.0]
    told = await scored(model, 10, -0.25, ([10, 11], [-0.25, -2.0]))
    assert told["top_logprobs"] == [{"same": -0.25}]


async def test_the_chosen_token_is_always_there(model: ServedModel) -> None:
    told = await scored(model, 70, -9.5, ([71, 72], [-0.25, -2.0]))
    assert len(told["top_logprobs"][0]) == 3
    assert -9.5 in told["top_logprobs"][0].values()


async def test_minus_infinity_is_a_number_in_json(model: ServedModel) -> None:
    told = await scored(model, 70, -float("inf"), ([71, 72], [0.0, -float("inf")]))
    assert told["token_logprobs"] == [-9999.0]
    assert sorted(told["top_logprobs"][0].values()) == [-9999.0, -9999.0, 0.0]
