"""The door: every field of a request is checked here, so that nothing behind it has to. A wrong one is refused with
status 400 that names it; fields that mean nothing to this engine are ignored, unless ignoring would change the answer.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from engines.native.request import MAX_STOP_TOKEN_IDS, SamplingParams
from engines.native.serve.errors import ApiError, invalid, unsupported

if TYPE_CHECKING:
    from engines.native.serve.model import ServedModel

Body = dict[str, Any]

MAX_STOPS = 16
MAX_STOP_LENGTH = 256  # characters
MAX_LOGIT_BIAS = 1024
MAX_TOP_LOGPROBS = 20
MAX_BAD_WORDS = 128
MAX_NGRAM = 100
MAX_DRY_LENGTH = 50  # as far as DRY looks back for a match (`engines.native.sample.history`)
MAX_DRY_BREAKERS = 64
DRY_BREAKERS = ("\n", ":", '"', "*")
"""As text-generation-webui's."""
MAX_SALT_LENGTH = 256
MAX_PRIORITY = 1000
_INT64 = 2**63
_ID_DIGITS = 10  # of a token id written as text; far more would not even be read as a number


def _type_name(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "null")


def integer(body: Body, name: str, default: int, low: int, high: int) -> int:
    """An integer from `low` to `high`; absent or null gives the default. Booleans are no integers."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(name, f"{name} must be an integer, not {_type_name(value)}", "invalid_type")
    if not low <= value <= high:
        span = f"{low} or more" if low > -_INT64 and high >= _INT64 - 1 else f"from {low} to {high}"
        raise invalid(name, f"{name} is {value}; it must be {span}")
    return value


def number(body: Body, name: str, default: float, low: float, high: float, *, above: bool = False) -> float:
    """A finite number from `low` (or just above it) to `high`."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(name, f"{name} must be a number, not {_type_name(value)}", "invalid_type")
    if not math.isfinite(value) or not low <= value <= high or (above and value == low):
        span = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise invalid(name, f"{name} is {value}; it must be {span}")
    return float(value)


def boolean(body: Body, name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(name, f"{name} must be a boolean, not {_type_name(value)}", "invalid_type")
    return value


def string(body: Body, name: str, default: str = "", max_length: int = 0) -> str:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise invalid(name, f"{name} must be a string, not {_type_name(value)}", "invalid_type")
    if max_length and len(value) > max_length:
        raise invalid(name, f"{name} has {len(value)} characters; at most {max_length} are allowed")
    return value


def stop_strings(body: Body) -> list[str]:
    """`stop`: a string or an array of strings."""
    value = body.get("stop")
    if value is None:
        return []
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise invalid("stop", "stop must be a string or an array of strings", "invalid_type")
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed")
    if not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
        raise invalid("stop", f"each stop string must have 1 to {MAX_STOP_LENGTH} characters")
    return stops


def token_ids(value: Any, name: str, vocab_size: int) -> list[int]:
    """An array of token ids of the vocabulary."""
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise invalid(name, f"{name} must be an array of integers", "invalid_type")
    for token in value:
        if not 0 <= token < vocab_size:
            raise invalid(name, f"{name} holds token id {token}; the vocabulary has ids 0 to {vocab_size - 1}")
    return value


def logit_bias(body: Body, vocab_size: int) -> dict[int, float]:
    value = body.get("logit_bias")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid("logit_bias", f"logit_bias must be an object, not {_type_name(value)}", "invalid_type")
    if len(value) > MAX_LOGIT_BIAS:
        raise invalid("logit_bias", f"logit_bias has {len(value)} entries; at most {MAX_LOGIT_BIAS} are allowed")
    biases: dict[int, float] = {}
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) <= _ID_DIGITS and int(key) < vocab_size):
            limit = f"the vocabulary has ids 0 to {vocab_size - 1}"
            raise invalid("logit_bias", f"logit_bias has key {key[:40]!r}; keys are token ids, and {limit}")
        try:
            biases[int(key)] = number(value, key, 0.0, -100.0, 100.0)
        except ApiError as error:
            raise invalid("logit_bias", f"logit_bias of token {error}") from error
    return biases


def max_tokens(body: Body, names: tuple[str, ...], prompt_length: int, max_len: int, default: int | None) -> int:
    """Tokens to generate at most; what does not fit beside the prompt is cut off (finish_reason `length`)."""
    room = max_len - prompt_length
    for name in names:
        if body.get(name) is not None:
            asked = integer(body, name, 0, 0 if boolean(body, "echo") else 1, _INT64)
            if asked > max_len:
                raise invalid(name, f"{name} is {asked}; the model's context length is {max_len} tokens")
            return min(asked, room)
    return room if default is None else min(default, room)


def check_prompt(token_ids: list[int], param: str, max_len: int, vocab_size: int) -> None:
    """Raises ApiError 400 for a prompt that is empty, leaves no room for one token, or holds a token of the tokenizer
    that the model has no embedding for."""
    if not token_ids:
        raise invalid(param, f"{param} is empty; give at least one token", "empty_prompt")
    if len(token_ids) >= max_len:
        message = (
            f"the prompt has {len(token_ids)} tokens and the model's context length is {max_len} tokens; "
            f"shorten {param} to at most {max_len - 1} tokens"
        )
        raise invalid(param, message, "context_length_exceeded")
    if max(token_ids) >= vocab_size:
        message = f"{param} holds a special token (id {max(token_ids)}) that this model does not know; leave it out"
        raise invalid(param, message)


def _strings(body: Body, name: str, most: int) -> list[str] | None:
    """An array of strings that are not empty; None where it is absent."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise invalid(name, f"{name} must be an array of strings", "invalid_type")
    if len(value) > most:
        raise invalid(name, f"{name} has {len(value)} strings; at most {most} are allowed")
    for index, text in enumerate(value):
        if not 0 < len(text) <= MAX_STOP_LENGTH:
            raise invalid(f"{name}[{index}]", f"{name}[{index}] must have 1 to {MAX_STOP_LENGTH} characters")
    return value


def bad_words(body: Body, model: ServedModel) -> list[list[int]]:
    """As vLLM takes a word apart: as it begins a text, and as it stands after a blank, where that has as many tokens
    and begins with another one."""
    words: list[list[int]] = []
    for index, word in enumerate(_strings(body, "bad_words", MAX_BAD_WORDS) or ()):
        bare = word.lstrip()
        if not bare:
            raise invalid(f"bad_words[{index}]", f"bad_words[{index}] is blank; give a word")
        begins, follows = model.token_ids(bare), model.token_ids(f" {bare}")
        words += [ids for ids in (begins,) if ids]
        if follows and begins and follows[0] != begins[0] and len(follows) == len(begins):
            words.append(follows)
    return words


def dry_breakers(texts: list[str] | None, model: ServedModel) -> list[int]:
    """As text-generation-webui finds them: the last token of each string, behind a letter."""
    found = [model.token_ids(f"a{text}") for text in (DRY_BREAKERS if texts is None else texts)]
    return list(dict.fromkeys(ids[-1] for ids in found if ids))


def allowed_token_ids(body: Body, vocab_size: int) -> list[int]:
    value = body.get("allowed_token_ids")
    if value is None:
        return []
    if not token_ids(value, "allowed_token_ids", vocab_size):
        raise invalid("allowed_token_ids", "allowed_token_ids is empty; give at least one token id, or leave it out")
    return list(dict.fromkeys(value))


def sampling(
    body: Body, model: ServedModel, *, max_tokens: int, logprobs: int, prompt_logprobs: int = -1
) -> SamplingParams:
    """All that says how tokens are drawn. What the body leaves out is as the model's makers want it, where its files
    say so (`ServedModel.defaults`)."""
    vocab_size, defaults = model.vocab_size, model.defaults
    stop_ids = token_ids(body.get("stop_token_ids") or [], "stop_token_ids", vocab_size)
    eos = () if boolean(body, "ignore_eos") else model.facts.eos_ids
    stop_ids = list(dict.fromkeys([*stop_ids, *eos]))
    if len(stop_ids) > MAX_STOP_TOKEN_IDS:
        raise invalid("stop_token_ids", f"{len(stop_ids)} stop token ids; at most {MAX_STOP_TOKEN_IDS} are allowed")
    top_k = integer(body, "top_k", int(defaults.get("top_k", 0)), -1, _INT64)
    dry = number(body, "dry_multiplier", 0.0, 0.0, 100.0)
    breakers = _strings(body, "dry_sequence_breakers", MAX_DRY_BREAKERS)
    return SamplingParams(
        temperature=number(body, "temperature", defaults.get("temperature", 1.0), 0.0, 2.0),
        top_k=max(0, top_k) if top_k < vocab_size else 0,
        top_p=number(body, "top_p", defaults.get("top_p", 1.0), 0.0, 1.0, above=True),
        min_p=number(body, "min_p", defaults.get("min_p", 0.0), 0.0, 1.0),
        typical_p=number(body, "typical_p", 1.0, 0.0, 1.0, above=True),
        seed=integer(body, "seed", random.getrandbits(63), -_INT64, _INT64 - 1),
        repetition_penalty=number(
            body, "repetition_penalty", defaults.get("repetition_penalty", 1.0), 0.0, 10.0, above=True
        ),
        presence_penalty=number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        dry_multiplier=dry,
        dry_base=number(body, "dry_base", 1.75, 1.0, 4.0),
        dry_allowed_length=integer(body, "dry_allowed_length", 2, 1, MAX_DRY_LENGTH),
        dry_range=integer(body, "dry_range", 0, 0, _INT64 - 1),
        dry_breakers=dry_breakers(breakers, model) if dry else [],
        no_repeat_ngram_size=integer(body, "no_repeat_ngram_size", 0, 0, MAX_NGRAM),
        logit_bias=logit_bias(body, vocab_size),
        bad_words=bad_words(body, model),
        allowed_token_ids=allowed_token_ids(body, vocab_size),
        max_tokens=max(1, max_tokens),  # 0 with echo: one is drawn and not shown
        min_tokens=integer(body, "min_tokens", 0, 0, max(1, max_tokens)),
        stop_token_ids=stop_ids,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "suffix": ("",),
    "echo": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "guided_whitespace_pattern": (),
    "regex": (),
    "ebnf": (),
    "json_schema": (),
    "chat_template": (),
    "documents": ([],),
    "prompt_embeds": (),
    "logits_processors": ([],),
    "logprob_token_ids": (),
    "return_tokens_as_token_ids": (False,),
    "thinking_token_budget": (),
    "truncation_side": ("left",),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that would change the answer, with the values that ask for nothing beyond what there is."""


def refuse_unsupported(body: Body, *, but: tuple[str, ...] = ()) -> None:
    """`but`: what the endpoint reads itself."""
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if name in but or value is None or any(type(value) is type(one) and value == one for one in neutral):
            continue
        allowed = f"; allowed: {', '.join(map(repr, neutral))}" if neutral else ""
        raise unsupported(name, f"{name} is not supported by this engine yet{allowed}")
