"""Defaults of sampling from a model's own files."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engines.native.loader.errors import BadModel
from engines.native.loader.generation import sampling_defaults
from engines.native.loader.model_files import ModelFiles


def of_json(folder: Path, text: str) -> dict[str, float]:
    path = folder / "generation_config.json"
    path.write_text(text)
    return sampling_defaults(ModelFiles("safetensors", {path.name: path}, cast(Any, None), {}, None))


def of_gguf(metadata: dict[str, Any]) -> dict[str, float]:
    return sampling_defaults(ModelFiles("gguf", {}, cast(Any, None), {}, cast(Any, SimpleNamespace(metadata=metadata))))


def test_generation_config(tmp_path: Path) -> None:
    """Qwen3's file."""
    config = {"bos_token_id": 1, "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "pad_token_id": 3}
    assert of_json(tmp_path, json.dumps(config)) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert sampling_defaults(ModelFiles("safetensors", {}, cast(Any, None), {}, None)) == {}


def test_gguf_metadata() -> None:
    metadata = {"general.sampling.temp": 0.5, "general.sampling.penalty_repeat": 1.1, "general.sampling.top_k": 40}
    assert of_gguf(metadata) == {"temperature": 0.5, "repetition_penalty": 1.1, "top_k": 40}
    assert of_gguf({"general.name": "m"}) == {}


def test_what_no_request_could_ask_for_is_no_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"temperature": 5, "top_p": 0, "top_k": "many", "min_p": True, "repetition_penalty": float("nan")}
    with caplog.at_level(logging.WARNING):
        assert of_json(tmp_path, json.dumps(wrong)) == {}
    assert [record.getMessage().split(" give ")[1].split(" = ")[0] for record in caplog.records] == list(
        dict.fromkeys(["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
    )


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"generation_config\.json is no JSON"):
        of_json(tmp_path, "{")
