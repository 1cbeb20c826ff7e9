"""Where a request stands in its grammar: masks, ends, thinking, and the way back."""

from __future__ import annotations

import random

import llguidance
import numpy as np
import pytest

from engines.native.grammar import sources
from engines.native.grammar.matcher import Matcher, fill
from engines.native.grammar.spec import Think
from tests.engines.grammar.tokens import (
    END,
    END_OF_TURN,
    SIZE,
    SPECIAL,
    THINK,
    TOKENS,
    TOOL,
    UNTHINK,
    VOCABULARY,
    compiled,
)

EXECUTOR = llguidance.LLExecutor(2)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["x", "é"]}}},
    "required": ["a"],
    "additionalProperties": False,
}


def matcher(
    source: str, stops: tuple[int, ...] = (END, END_OF_TURN), think: Think | None = None, thinking: bool = False
) -> Matcher:
    made = Matcher(compiled(source), VOCABULARY, stops, think, thinking)
    fill([made], EXECUTOR)
    return made


def allowed(made: Matcher) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(made.bits.view(np.uint8), bitorder="little")[:SIZE]).tolist())


def write(made: Matcher, *tokens: int) -> None:
    for token in tokens:
        assert token in allowed(made)
        made.advance(token)
        fill([made], EXECUTOR)


def test_a_walk_through_the_masks_writes_what_the_grammar_accepts() -> None:
    """Random walks: each token that a mask allows is taken, and none leads into a dead end."""
    draw, ends = random.Random(7), 0
    for _ in range(60):
        made, text = matcher(sources.from_schema(SCHEMA)), b""
        for _ in range(40):
            choices = sorted(allowed(made))
            assert choices, "a matcher that is neither complete nor in error has a token to go on with"
            token = draw.choice(choices)
            if token in (END, END_OF_TURN):
                break
            text += TOKENS[token]
            write(made, token)
            if made.complete:
                break
        ends += made.complete
        assert made.error == ""
        if made.complete:
            checker = compiled(sources.from_schema(SCHEMA))
            assert checker.consume_tokens(list(text))
            assert checker.is_accepting()
    assert ends > 10


def test_every_token_that_a_mask_refuses_is_refused() -> None:
    made = matcher(sources.from_schema(SCHEMA))
    write(made, *b'{"a"')
    judge = compiled(sources.from_schema(SCHEMA))
    judge.consume_tokens(list(b'{"a"'))
    assert allowed(made) == {token for token in range(END) if judge.validate_tokens([token]) == 1}


def test_the_answer_ends_only_where_the_grammar_does() -> None:
    made = matcher(sources.from_regex("a{2,3}"))
    assert allowed(made) == {ord("a")}
    write(made, ord("a"), ord("a"))
    assert allowed(made) == {ord("a"), END, END_OF_TURN}
    assert not made.complete
    write(made, ord("a"))
    assert made.complete, "nothing can follow, so that no token is spent on an end"


def test_without_stop_tokens_only_completion_ends_it() -> None:
    made = matcher(sources.from_regex("a{1,2}"), stops=())
    write(made, ord("a"))
    assert allowed(made) == {ord("a")}
    write(made, ord("a"))
    assert made.complete


def test_a_stop_token_of_the_client_ends_it_as_the_models_own() -> None:
    made = matcher(sources.from_regex("a+"), stops=(TOOL,))
    assert allowed(made) == {ord("a")}
    write(made, ord("a"))
    assert allowed(made) == {ord("a"), TOOL}


def test_special_tokens_are_no_text() -> None:
    made = matcher(sources.from_regex("(?s:.)*"))
    assert allowed(made) & set(range(END, SIZE)) == {END, END_OF_TURN}
    named = matcher(sources.from_lark(f'start: <[{TOOL}]> "x"'))
    assert allowed(named) == {TOOL}
    assert SPECIAL[TOOL - END] == b"<tool_call>"


def test_a_token_out_of_the_grammar_is_an_error_that_names_it() -> None:
    made = matcher(sources.from_regex("ab"))
    made.advance(ord("b"))
    fill([made], EXECUTOR)
    assert f"token {ord('b')} " in made.error
    assert not made.complete


THINKING = Think(THINK, UNTHINK)


def test_the_grammar_begins_behind_the_thinking() -> None:
    made = matcher(sources.from_regex("ab"), think=THINKING, thinking=True)
    assert allowed(made) == set(range(SIZE)) - {END, END_OF_TURN}, "thinking is free, and no end of the answer"
    write(made, *b"hm, b? a?", UNTHINK)
    assert allowed(made) == {ord("a")}
    write(made, *b"ab")
    assert made.complete


def test_a_model_may_think_first_or_not() -> None:
    made = matcher(sources.from_regex("ab"), think=THINKING)
    assert allowed(made) == {ord("a"), THINK}
    write(made, ord("a"))
    assert allowed(made) == {ord("b")}
    other = matcher(sources.from_regex("ab"), think=THINKING)
    write(other, THINK, ord("x"), UNTHINK, ord("a"))
    assert allowed(other) == {ord("b")}


@pytest.mark.parametrize("thinking", [False, True])
def test_rollback_leads_back_to_every_earlier_mask(thinking: bool) -> None:
    tokens = [*b"x", UNTHINK, *b'{"a": 12}'] if thinking else [*b'{"a": 12}']
    made = matcher(sources.from_schema(SCHEMA), think=THINKING, thinking=thinking)
    seen = [allowed(made)]
    for token in tokens:
        write(made, token)
        seen.append(allowed(made))
    assert made.complete
    for back in range(1, len(tokens) + 1):
        made.rollback(back)
        fill([made], EXECUTOR)
        assert allowed(made) == seen[-1 - back]
        write(made, *tokens[len(tokens) - back :])
        assert made.complete


def test_rollback_of_a_token_that_opened_the_thinking() -> None:
    made = matcher(sources.from_regex("ab"), think=THINKING)
    write(made, THINK)
    made.rollback(1)
    fill([made], EXECUTOR)
    assert allowed(made) == {ord("a"), THINK}
    write(made, ord("a"))
    made.rollback(1)
    fill([made], EXECUTOR)
    assert allowed(made) == {ord("a"), THINK}


def test_masks_of_a_batch_are_those_of_each_alone() -> None:
    source = sources.from_schema(SCHEMA)
    starts = [b"", b'{"', b'{"a": 1', b'{"a": 1, "b": ["x"', b'{"a": 1, "b": []}']
    batch = [Matcher(compiled(source), VOCABULARY, [END], None, False) for _ in starts]
    for made, start in zip(batch, starts, strict=True):
        for token in start:
            made.advance(token)
    fill(batch, EXECUTOR)
    for made, start in zip(batch, starts, strict=True):
        alone = matcher(source, stops=(END,))
        write(alone, *start)
        assert allowed(made) == allowed(alone)
        assert made.complete == alone.complete
