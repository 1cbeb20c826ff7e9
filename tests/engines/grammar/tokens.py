"""A vocabulary for tests of grammars: every byte, some longer tokens, and special ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llguidance

from engines.native.grammar.compiler import Compiler
from engines.native.grammar.spec import BadGrammar
from engines.native.grammar.vocabulary import Vocabulary

LONGER = [b'{"', b'": ', b'", "', b"true", b"  ", b"12", b"[[", "é".encode(), "😀".encode(), b"\n  "]
END, END_OF_TURN, THINK, UNTHINK, TOOL = range(256 + len(LONGER), 256 + len(LONGER) + 5)
SPECIAL = [b"</s>", b"<|im_end|>", b"<think>", b"</think>", b"<tool_call>"]
TOKENS = [*(bytes([byte]) for byte in range(256)), *LONGER, *SPECIAL]
SIZE = len(TOKENS)


class Tokens:
    """As llguidance asks for them."""

    bos_token_id, eos_token_id, special_token_ids, tokens = None, END, list(range(END, SIZE)), TOKENS

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


VOCABULARY = Vocabulary(
    llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()), n_vocab=SIZE, eos_token=[END, END_OF_TURN]),
    SIZE,
    (END, END_OF_TURN),
)


def compiler() -> Compiler:
    return Compiler(lambda: VOCABULARY)


def compiled(source: str) -> Any:
    """Raises BadGrammar."""
    return _shared.submit(source).result(60).deep_copy()


def accepts(source: str, text: str) -> bool:
    """Whether `text` as a whole is in the language of `source`."""
    matcher, ids = compiled(source), list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def attempt(make: Callable[[Any], str], given: Any) -> tuple[Any, str]:
    """(the matcher of `make(given)`, ""), or (None, the reason why there is none)."""
    try:
        return compiled(make(given)), ""
    except BadGrammar as error:
        return None, str(error)


_shared = compiler()
