"""What the fuzzer calls a fault, and the models that it asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.native.pooling.config import Task
from engines.native.pooling.files import open_any
from engines.native.serve import openapi
from engines.native.serve.model import ServedModel, load
from evaluation.quality import fuzz, fuzz_model


def call(status: int, sent: str = "{}", answer: str = "") -> dict[str, Any]:
    return {"method": "POST", "path": "/v1/completions", "status": status, "sent": sent, "answer": answer}


def test_a_5xx_is_a_fault_unless_the_request_set_its_time() -> None:
    good = [call(200), call(400), call(504, '{"timeout": 1e-300}')]
    assert fuzz._server_errors(good) == []
    for bad in (call(500), call(503), call(504), call(500, '{"timeout": 1}')):
        (fault,) = fuzz._server_errors([*good, bad])
        assert str(bad["status"]) in fault


def test_memory_may_grow_in_the_first_quarter_only() -> None:
    rising = [{"core": 100 + 20 * step, "api": 50} for step in range(8)]
    (fault,) = fuzz._growth(rising)
    assert fault.startswith("core grew by")
    assert fuzz._growth([{"core": 10, "api": 50}, *[{"core": 100, "api": 50}] * 7]) == []


def served(folder: Path, *, embeds: bool) -> ServedModel:
    return load("m", open_any("safetensors", fuzz_model.write(folder, embeds=embeds)))


def test_the_models_have_all_that_a_request_can_ask(tmp_path: Path) -> None:
    model = served(tmp_path / "generates", embeds=False)
    assert (model.task, model.tool_parser) == (Task.GENERATE, "hermes")
    assert model.reasoning is not None
    assert model.template is not None
    assert model.template.takes_tools
    pooling = served(tmp_path / "embeds", embeds=True)
    assert pooling.task is Task.EMBED
    assert "/v1/embeddings" in openapi._operations(pooling)
    assert "/v1/completions" not in openapi._operations(pooling)


@pytest.mark.parametrize("embeds", [False, True])
def test_what_is_described_is_json_schema(tmp_path: Path, embeds: bool) -> None:
    """Each needed field is among the properties, and no object is described twice over."""

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            if "required" in schema and "properties" in schema:
                assert set(schema["required"]) <= set(schema["properties"])
            for value in schema.values():
                walk(value)
        elif isinstance(schema, list):
            for value in schema:
                walk(value)

    model = served(tmp_path / "m", embeds=embeds)
    document = openapi.document(model, set(openapi._operations(model)))
    assert len(document["paths"]) > 8
    walk(document)
