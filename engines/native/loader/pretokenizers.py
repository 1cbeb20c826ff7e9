"""Pre-tokenizers by the name that GGUF files give them (`tokenizer.ggml.pre`). The names are llama.cpp's; each entry
must split text as the model's own tokenizer.json does, so an unknown name is refused, never guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True, slots=True)
class Pre:
    """splitter: made anew for each tokenizer. ignore_merges: a piece that is a token needs no merging."""

    splitter: Callable[[], pre_tokenizers.PreTokenizer]
    ignore_merges: bool = False
    normalizer: Callable[[], normalizers.Normalizer] | None = None


def _byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split(*patterns: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def make() -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        return pre_tokenizers.Sequence([*splits, _byte_level(use_regex=False)])

    return make


def _digits_then_words() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level(use_regex=True)])


def _words() -> pre_tokenizers.PreTokenizer:
    return _byte_level(use_regex=True)


_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

PRE = {
    "smollm": Pre(_digits_then_words),
    "qwen2": Pre(_split(_QWEN2), normalizer=normalizers.NFC),
    "llama-bpe": Pre(_split(_LLAMA3), ignore_merges=True),
    "tekken": Pre(_split(_TEKKEN), ignore_merges=True),
    "gpt-2": Pre(_words),
    # What llama.cpp does where a file names nothing.
    "default": Pre(_split(r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")),
}
ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2", "qwen2.5": "qwen2"}


def pre_of(name: str) -> Pre | None:
    return PRE.get(ALIASES.get(name, name))
