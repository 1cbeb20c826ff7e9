"""docs/api.md lists the fields that the code reads, all of them and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engines.native.loader.model_files import open_model
from engines.native.serve import messages, responses, validate
from engines.native.serve.app import Endpoint
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.model import ServedModel, load
from tests.engines.instances import ROOT
from tests.tiny_models import write_safetensors

BY_ALL = {"model", "stream", "stream_options", "timeout"}
"""Read outside of the endpoints, for all of them."""
SHARED = "Completions and chat"
ASKED: dict[type[Any], tuple[str, dict[str, Any]]] = {
    CompletionEndpoint: ("/v1/completions", {"prompt": "a"}),
    ChatEndpoint: ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
}


class Watched(dict[str, Any]):
    """Notes which fields are asked for."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


def documented(title: str) -> set[str]:
    """The names in the first column of the tables of fields under the heading that begins with `title`."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    sections = re.split(r"^#+ +`?", text, flags=re.MULTILINE)
    (section,) = [section for section in sections if section.startswith(title) and "\n| field |" in section]
    rows = [line.split("|")[1] for line in section.split("\n| field |")[1].splitlines()[2:] if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder: Path = write_safetensors(tmp_path_factory.mktemp("m") / "m")
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


@pytest.mark.parametrize("make", ASKED)
async def test_completions_and_chat(model: ServedModel, make: type[Any]) -> None:
    title, body = ASKED[make]
    watched = Watched(body)
    endpoint: Endpoint = make(model, watched, 128)
    await endpoint.generation()
    told = documented(SHARED) | documented(title)
    refused = set(validate._NEUTRAL) - told  # those have a sentence of their own
    assert told == (watched.asked | BY_ALL) - refused


@pytest.mark.parametrize(
    ("title", "own", "refused"),
    [
        ("/v1/messages", messages._OWN, set(messages._UNSUPPORTED)),
        ("/v1/responses", responses._OWN, set(responses._NEUTRAL) - {"truncation"}),
    ],
)
def test_the_other_spellings(title: str, own: tuple[str, ...], refused: set[str]) -> None:
    told = documented(title) - {"parallel_tool_calls"}  # the chat's, named where its neighbours are
    assert told == set(own) - refused - {"model", "stream", "stream_options"}
