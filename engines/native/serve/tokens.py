"""/tokenize, /detokenize and /tokenizer_info, in vLLM's shapes (vllm/entrypoints/serve/tokenize/protocol.py)."""

from __future__ import annotations

from typing import Any

from engines.native.serve import validate
from engines.native.serve.chat import chat_prompt
from engines.native.serve.errors import invalid
from engines.native.serve.model import ServedModel


async def tokenize(model: ServedModel, body: validate.Body, max_len: int) -> dict[str, Any]:
    """The ids that a completion (`prompt`) or a chat (`messages`) would begin with."""
    _check_model(model, body)
    if body.get("messages") is not None:
        if body.get("prompt") is not None:
            raise invalid("prompt", "prompt and messages are both given; give one of them")
        tokens = await chat_prompt(model, body)
    elif isinstance(body.get("prompt"), str):
        bos = validate.boolean(body, "add_special_tokens", True)
        tokens = await model.encode(body["prompt"], add_bos=bos)
    else:
        raise invalid("prompt", "give prompt, a string, or messages", "invalid_type")
    names = None
    if validate.boolean(body, "return_token_strs"):
        names = [model.tokenizer.id_to_token(token) or "" for token in tokens]
    return {"count": len(tokens), "max_model_len": max_len, "tokens": tokens, "token_strs": names}


def detokenize(model: ServedModel, body: validate.Body) -> dict[str, Any]:
    _check_model(model, body)
    tokens = validate.token_ids(body.get("tokens"), "tokens", model.vocab_size)
    return {"prompt": model.detokenizer.text(tokens)}


def tokenizer_info(model: ServedModel, max_len: int) -> dict[str, Any]:
    """What tokenizer_config.json says of a tokenizer, as far as a remote client needs it (lm-eval's does)."""
    facts = model.facts
    eos = facts.eos_ids[0] if facts.eos_ids else None
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "vocab_size": facts.vocab_size,
        "model_max_length": max_len,
        "bos_token": _name(model, facts.bos_id),
        "bos_token_id": facts.bos_id,
        "eos_token": _name(model, eos),
        "eos_token_id": eos,
        "eos_token_ids": list(facts.eos_ids),
        "pad_token": _name(model, eos),  # nothing is ever padded here; clients that pad use the end
        "add_bos_token": facts.add_bos,
        "chat_template": facts.chat_template or None,
    }


def _name(model: ServedModel, token: int | None) -> str | None:
    return None if token is None else model.tokenizer.id_to_token(token)


def _check_model(model: ServedModel, body: validate.Body) -> None:
    if body.get("model") is not None:
        model.require_name(body["model"])
