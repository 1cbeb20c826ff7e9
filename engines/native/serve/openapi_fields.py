"""What the fields of a request may hold, as JSON Schema: the machine's form of docs/api.md.

Bounds are those of the checks at the door, by their own names, so that there is one number for each. null is as good as
leaving a field out, everywhere. A field that nothing reads may hold anything. A test compares names with what is read.
"""

from __future__ import annotations

from typing import Any

from engines.native.request import MAX_STOP_TOKEN_IDS
from engines.native.serve import beam_options, completeness, endings, fields, structured, tools, validate
from engines.native.serve.completions import MAX_PROMPTS
from engines.native.serve.embeddings import MAX_TEXTS
from engines.native.serve.openai import MAX_N

Schema = dict[str, Any]
Fields = tuple[dict[str, Schema], dict[str, Schema]]
"""(needed, optional), of one endpoint's body beside `model`."""
INT64 = 2**63
ANY: Schema = {}
BOOLEAN: Schema = {"type": "boolean"}
STRING: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}


def integer(low: int, high: int = INT64 - 1) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def number(low: float, high: float, *, above: bool = False) -> Schema:
    return {"type": "number", "exclusiveMinimum" if above else "minimum": low, "maximum": high}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def text(most: int, least: int = 0) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def array(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def record(needed: dict[str, Schema], optional: dict[str, Schema] | None = None, *, closed: bool = False) -> Schema:
    """An object. `optional` may be null, too. closed: it has no other fields."""
    properties = needed | {name: nullable(schema) for name, schema in (optional or {}).items()}
    schema: Schema = {"type": "object", "properties": properties}
    if needed:
        schema["required"] = list(needed)
    return schema | {"additionalProperties": False} if closed else schema


def nullable(schema: Schema) -> Schema:
    return schema if not schema else either(schema, {"type": "null"})


def token(vocab: int) -> Schema:
    return integer(0, vocab - 1)


WORD = text(validate.MAX_STOP_LENGTH, 1)
PRIORITY = integer(-validate.MAX_PRIORITY, validate.MAX_PRIORITY)
_SECONDS = number(0, fields.MAX_TIMEOUT_S, above=True)
TIMEOUT = either(_SECONDS, record({}, dict.fromkeys(("queue", "first_token", "total"), _SECONDS), closed=True))
_FUNCTION = record(
    {"name": text(tools.MAX_NAME_LENGTH, 1)}, {"description": STRING, "parameters": OBJECT, "strict": ANY}
)
TOOL = record({"type": one_of("function"), "function": _FUNCTION})
_NAMED = record({"type": one_of("function"), "function": record({"name": STRING})})
_TEXT_PART = record({"type": one_of("text"), "text": STRING})
_CALL = record({"function": record({"name": STRING}, {"arguments": either(STRING, OBJECT)})}, {"id": ANY})
_CONTENT = either(STRING, {"type": "array", "items": _TEXT_PART})
MESSAGE = either(
    record({"role": one_of("system", "developer", "user", "tool"), "content": _CONTENT}),
    record({"role": one_of("assistant")}, {"content": _CONTENT, "tool_calls": {"type": "array", "items": _CALL}}),
)
_FORMAT = either(
    record({"type": one_of("text", "json_object")}),
    record(
        {"type": one_of("json_schema"), "json_schema": record({"schema": ANY}, {"name": STRING, "strict": BOOLEAN})}
    ),
)
_GUIDED = {"json": ANY, "regex": STRING, "choice": array(STRING, 10_000, 1), "grammar": STRING}
assert set(_GUIDED) == set(structured.KINDS)


def drawing(vocab: int) -> dict[str, Schema]:
    """How tokens are drawn and where an answer ends; docs/sampling.md."""
    penalty = number(-2, 2)
    return {
        "temperature": number(0, 2),
        "top_p": number(0, 1, above=True),
        "top_k": integer(-1),
        "min_p": number(0, 1),
        "typical_p": number(0, 1, above=True),
        "seed": integer(-INT64),
        "repetition_penalty": number(0, 10, above=True),
        "presence_penalty": penalty,
        "frequency_penalty": penalty,
        "no_repeat_ngram_size": integer(0, validate.MAX_NGRAM),
        "dry_multiplier": number(0, 100),
        "dry_base": number(1, 4),
        "dry_allowed_length": integer(1, validate.MAX_DRY_LENGTH),
        "dry_range": integer(0),
        "dry_sequence_breakers": array(WORD, validate.MAX_DRY_BREAKERS),
        "logit_bias": {
            "type": "object",
            "propertyNames": {"pattern": r"^[0-9]{1,10}$"},
            "additionalProperties": nullable(number(-100, 100)),
            "maxProperties": validate.MAX_LOGIT_BIAS,
        },
        "allowed_token_ids": array(token(vocab), vocab, 1),
        "bad_words": array(WORD, validate.MAX_BAD_WORDS),
        "min_tokens": integer(0),
        "stop_token_ids": array(token(vocab), MAX_STOP_TOKEN_IDS),
        "ignore_eos": BOOLEAN,
        "include_stop_str_in_output": BOOLEAN,
        "skip_special_tokens": BOOLEAN,
        "spaces_between_special_tokens": BOOLEAN,
        "stop_on": one_of(*completeness.SCANNERS),
        "loop_detection": record(
            {},
            {
                "min_repeats": integer(2, endings.MAX_REPEATS),
                "max_period": integer(1, endings.MAX_PERIOD),
                "min_tokens": integer(0),
            },
            closed=True,
        ),
    }


def searching() -> dict[str, Schema]:
    return {
        "use_beam_search": either(BOOLEAN, one_of(beam_options.FIRST_TURN)),
        "beam_width": integer(1, beam_options.MAX_WIDTH),
        "length_penalty": number(-10, 10),
        "early_stopping": BOOLEAN,
        "search_budget_ms": number(0, 3_600_000),
    }


def shared(vocab: int) -> dict[str, Schema]:
    """Of completions and chats alike, `model` apart."""
    return {
        "stream": BOOLEAN,
        "stream_options": record({}, {"include_usage": BOOLEAN, "continuous_usage_stats": BOOLEAN}),
        "max_tokens": integer(0),
        "n": integer(1, MAX_N),
        "best_of": integer(1, MAX_N),
        **searching(),
        "stop": either(WORD, array(WORD, validate.MAX_STOPS)),
        **drawing(vocab),
        "prompt_logprobs": integer(0, validate.MAX_TOP_LOGPROBS),
        "return_token_ids": BOOLEAN,
        "return_draft_sources": BOOLEAN,
        "truncate_prompt_tokens": integer(-1),
        "add_special_tokens": BOOLEAN,
        "response_format": _FORMAT,
        "structured_outputs": record({}, {**_GUIDED, "json_object": BOOLEAN}, closed=True),
        **{f"guided_{kind}": schema for kind, schema in _GUIDED.items()},
        "priority": PRIORITY,
        "cache_salt": text(validate.MAX_SALT_LENGTH),
        "timeout": TIMEOUT,
    }


def completion(vocab: int) -> Fields:
    ids = array(token(vocab), INT64, 1)
    prompt = either(text(INT64, 1), ids, array(text(INT64, 1), MAX_PROMPTS, 1), array(ids, MAX_PROMPTS, 1))
    return {"prompt": prompt}, {**shared(vocab), "logprobs": integer(0, validate.MAX_TOP_LOGPROBS), "echo": BOOLEAN}


_CHAT: dict[str, Schema] = {
    "tools": {"type": "array", "items": TOOL},
    "tool_choice": either(one_of("none", "auto", "required"), _NAMED),
    "parallel_tool_calls": BOOLEAN,
    "reasoning_effort": STRING,
    "include_reasoning": BOOLEAN,
    "chat_template_kwargs": OBJECT,
    "add_generation_prompt": BOOLEAN,
    "continue_final_message": BOOLEAN,
}


def chat(vocab: int) -> Fields:
    own = {
        "max_completion_tokens": integer(1),
        "logprobs": BOOLEAN,
        "top_logprobs": integer(0, validate.MAX_TOP_LOGPROBS),
    }
    asked = shared(vocab)
    del asked["best_of"]  # of completions only
    return {"messages": {"type": "array", "items": MESSAGE, "minItems": 1}}, {**asked, **own, **_CHAT}


_ANSWERED_ELSEWHERE = (
    *("max_tokens", "n", "stop", "response_format"),
    *("return_token_ids", "return_draft_sources", "prompt_logprobs"),
)
"""Fields of a chat that its other spellings have no place for, or write in another way."""


def _spelled_otherwise(vocab: int) -> dict[str, Schema]:
    out = {*_ANSWERED_ELSEWHERE, "truncate_prompt_tokens", "max_completion_tokens", "logprobs", "top_logprobs"}
    out |= {"stream_options"}
    return {name: schema for name, schema in chat(vocab)[1].items() if name not in out}


def response(vocab: int) -> Fields:
    part = record({"type": one_of("input_text", "output_text", "text"), "text": STRING})
    said = either(STRING, {"type": "array", "items": part})
    item = either(
        record({"role": one_of("user", "assistant", "system", "developer"), "content": said}),
        record({"type": one_of("function_call"), "call_id": STRING, "name": STRING, "arguments": STRING}),
        record({"type": one_of("function_call_output"), "call_id": STRING, "output": said}),
    )
    flat = record(
        {"type": one_of("function"), "name": text(tools.MAX_NAME_LENGTH, 1)},
        {"description": STRING, "parameters": OBJECT, "strict": ANY},
    )
    form = either(
        record({"type": one_of("text", "json_object")}),
        record({"type": one_of("json_schema"), "schema": ANY}, {"name": STRING, "strict": BOOLEAN}),
    )
    own = {
        "instructions": STRING,
        "max_output_tokens": integer(1),
        "stream_options": ANY,
        "tools": {"type": "array", "items": flat},
        "tool_choice": either(one_of("none", "auto", "required"), record({"type": one_of("function"), "name": STRING})),
        "text": record({}, {"format": form}),
        "reasoning": record({}, {"effort": STRING}),
        "include": array(one_of("message.output_text.logprobs"), 8),
        "top_logprobs": integer(0, validate.MAX_TOP_LOGPROBS),
        "metadata": ANY,
        "service_tier": ANY,
        "user": ANY,
        "truncation": one_of("disabled"),
    }
    entry = either(text(INT64, 1), {"type": "array", "items": item, "minItems": 1})
    return {"input": entry}, {**_spelled_otherwise(vocab), **own}


def message(vocab: int) -> Fields:
    own = {"stop_sequences": array(WORD, validate.MAX_STOPS), "metadata": ANY, "service_tier": ANY}
    return {"max_tokens": integer(1), "messages": _turns()}, {
        **_spelled_otherwise(vocab),
        **_asked_of_messages(),
        **own,
    }


def counting() -> Fields:
    """What makes the prompt; how an answer would be drawn and ended says nothing here."""
    return {"messages": _turns()}, {**_CHAT, **_asked_of_messages()}


def _turns() -> Schema:
    texts = either(STRING, {"type": "array", "items": _TEXT_PART})
    result = record({"type": one_of("tool_result"), "tool_use_id": STRING}, {"content": texts, "is_error": BOOLEAN})
    use = record({"type": one_of("tool_use"), "id": STRING, "name": STRING}, {"input": OBJECT})
    thought = record({"type": one_of("thinking"), "thinking": STRING})
    turn = either(
        record({"role": one_of("user"), "content": _blocks(either(_TEXT_PART, result))}),
        record({"role": one_of("assistant"), "content": _blocks(either(_TEXT_PART, use, thought))}),
        record({"role": one_of("system"), "content": _blocks(_TEXT_PART)}),
    )
    return {"type": "array", "items": turn, "minItems": 1}


def _asked_of_messages() -> dict[str, Schema]:
    tool = record({"name": text(tools.MAX_NAME_LENGTH, 1), "input_schema": OBJECT}, {"description": STRING})
    return {
        "system": either(STRING, {"type": "array", "items": _TEXT_PART}),
        "tools": {"type": "array", "items": tool},
        "tool_choice": either(
            record({"type": one_of("auto", "any", "none")}), record({"type": one_of("tool"), "name": STRING})
        ),
        "thinking": record({"type": one_of("enabled", "disabled", "adaptive")}),
        "output_config": record({}, {"format": record({"type": one_of("json_schema"), "schema": OBJECT})}, closed=True),
    }


def _blocks(block: Schema) -> Schema:
    return either(STRING, {"type": "array", "items": block, "minItems": 1})


def tokenizing() -> Fields:
    own = {"prompt": STRING, "messages": {"type": "array", "items": MESSAGE, "minItems": 1}}
    return {}, {**own, "add_special_tokens": BOOLEAN, "return_token_strs": BOOLEAN, **_CHAT}


def detokenizing(vocab: int) -> Fields:
    return {"tokens": array(token(vocab), INT64)}, {}


_POOLED: dict[str, Schema] = {"truncate_prompt_tokens": integer(-1), "priority": PRIORITY, "timeout": TIMEOUT}


def embedding(vocab: int) -> Fields:
    words, ids = text(INT64, 1), array(token(vocab), INT64, 1)
    entry = either(words, ids, array(words, MAX_TEXTS, 1), array(ids, MAX_TEXTS, 1))
    return {"input": entry}, {
        "encoding_format": one_of("float", "base64"),
        "dimensions": integer(1),
        "user": ANY,
        **_POOLED,
    }


def scoring() -> Fields:
    words = text(INT64, 1)
    texts = either(words, array(words, MAX_TEXTS, 1))
    return {"text_1": texts, "text_2": texts}, _POOLED


def reranking() -> Fields:
    words = text(INT64, 1)
    needed = {"query": words, "documents": array(either(words, record({"text": words})), MAX_TEXTS, 1)}
    return needed, {"top_n": integer(0, 2**31), "return_documents": BOOLEAN, **_POOLED}
