"""The tokens of a model as llguidance reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from engines.native.grammar.spec import BadGrammar
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.serve.detokenize import Detokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """tokenizer: llguidance's LLTokenizer. size: ids that the model's logits have. ends: ids that end an answer."""

    tokenizer: Any
    size: int
    ends: tuple[int, ...]

    @property
    def words(self) -> int:
        """int32 words of one token mask."""
        return -(-self.size // 32)


class _Tokens:
    """What llguidance asks of a tokenizer: bytes per id, and ids of a text."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes], special: Iterable[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, sorted(special), end
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False).ids
        return ids


def whole(tokenizer: Tokenizer, size: int, special: frozenset[int], ends: tuple[int, ...]) -> Vocabulary:
    """For masks: 0.1 to 0.6 s of work that holds the interpreter. Raises BadGrammar for a tokenizer whose tokens have
    no bytes of their own, or a model without an end."""
    return _vocabulary(tokenizer, _pieces(tokenizer, size), special, ends)


def checking(tokenizer: Tokenizer, size: int, special: frozenset[int], ends: tuple[int, ...]) -> Vocabulary:
    """To tell whether a grammar can be compiled, in no time: only bytes and special tokens have a text."""
    pieces = _pieces(tokenizer, size)
    return _vocabulary(tokenizer, [piece if len(piece) == 1 else b"" for piece in pieces], special, ends)


def of_model(format: str, paths: dict[str, str]) -> Vocabulary:
    """`whole`, of a model's files. Raises BadModel for files that cannot be read."""
    files = open_model(format, paths)
    tokenizer, facts = load_tokenizer(files)
    return whole(tokenizer, files.config.vocab, facts.special_ids, facts.eos_ids)


def _pieces(tokenizer: Tokenizer, size: int) -> list[bytes]:
    pieces = Detokenizer(tokenizer, size).pieces
    if pieces is None:
        raise BadGrammar("this model's tokenizer has no bytes per token; structured output needs a byte-level or "
                         "SentencePiece tokenizer")  # fmt: skip
    return pieces


def _vocabulary(
    tokenizer: Tokenizer, pieces: list[bytes], special: frozenset[int], ends: tuple[int, ...]
) -> Vocabulary:
    import llguidance

    ends = tuple(end for end in ends if end < len(pieces))
    if not ends:
        raise BadGrammar("this model names no token that ends an answer; structured output needs one")
    special = frozenset(token for token in special if token < len(pieces)) | frozenset(ends)
    tokens = list(pieces)
    for token in special:
        tokens[token] = (tokenizer.id_to_token(token) or "").encode()
    wrapper = llguidance.TokenizerWrapper(_Tokens(tokenizer, tokens, special, ends[0]))
    return Vocabulary(llguidance.LLTokenizer(wrapper, n_vocab=len(pieces), eos_token=list(ends)), len(pieces), ends)
