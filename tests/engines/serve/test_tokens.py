"""/tokenize, /detokenize and /tokenizer_info."""

from __future__ import annotations

import pytest

from engines.native.loader.model_files import open_model
from engines.native.serve.model import load
from engines.native.serve.tokens import tokenize
from tests.engines.instances import Running
from tests.tiny_models import write_safetensors

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]


def test_token_strings_are_the_vocabularys_own(instance: Running) -> None:
    counted = instance.post("/tokenize", {"prompt": "Hello wörld", "return_token_strs": True}).json()
    assert counted["token_strs"][0] == "Hello"
    assert counted["token_strs"][1].startswith("Ġw")  # the piece, not its text
    assert len(counted["token_strs"]) == counted["count"]
    assert instance.post("/tokenize", {"prompt": "Hello"}).json()["token_strs"] is None


def test_chat_ends_with_the_answers_beginning_unless_told_otherwise(instance: Running) -> None:
    opened = instance.post("/tokenize", {"messages": MESSAGES}).json()["tokens"]
    closed = instance.post("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}).json()["tokens"]
    assert opened[: len(closed)] == closed
    head = instance.post("/tokenize", {"prompt": "<|im_start|>assistant\n"}).json()["tokens"]
    assert opened[len(closed) :] == head


def test_tokenizer_info_is_enough_for_a_remote_tokenizer(instance: Running) -> None:
    told = instance.client.get(instance.url + "/tokenizer_info").json()
    assert told["eos_token"] == "<|im_end|>"
    assert told["eos_token_id"] == 2
    assert told["model_max_length"] == 2048
    assert "<|im_start|>" in told["chat_template"]
    assert told["vocab_size"] == 49152


@pytest.mark.parametrize("text", ["ab", "<|start|>ab"])
async def test_bos_comes_once_and_only_where_the_model_wants_it(tmp_path, text: str) -> None:
    folder = write_safetensors(tmp_path / "m", bos=True)
    model = load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))
    plain = model.tokenizer.encode("ab", add_special_tokens=False).ids
    assert (await tokenize(model, {"prompt": text}, 128))["tokens"] == [257, *plain]
    bare = (await tokenize(model, {"prompt": "ab", "add_special_tokens": False}, 128))["tokens"]
    assert bare == plain
