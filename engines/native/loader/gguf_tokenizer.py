"""A `tokenizers.Tokenizer` from the vocabulary that a GGUF file carries: byte-level BPE ("gpt2") or SentencePiece BPE
("llama")."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from engines.native.loader.errors import BadModel
from engines.native.loader.gguf import GgufFile
from engines.native.loader.pretokenizers import PRE, pre_of

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_SPACE = "\u2581"  # SentencePiece's visible space


def from_gguf(file: GgufFile) -> tuple[Tokenizer, str, str]:
    """(tokenizer, kind, pre). Raises BadModel("unknown_tokenizer"), naming the key."""
    model = file.metadata.get("tokenizer.ggml.model")
    tokens: list[str] = _list(file, "tokenizer.ggml.tokens")
    if model == "gpt2":
        tokenizer, kind, pre = *_byte_level(file, tokens), str(file.metadata.get("tokenizer.ggml.pre", "default"))
    elif model == "llama":
        tokenizer, kind, pre = _sentencepiece(file, tokens), "spm", ""
    else:
        raise BadModel(
            "unknown_tokenizer",
            f"{file.path.name}: key tokenizer.ggml.model is {model!r}",
            "the native engine reads gpt2 (byte-level BPE) and llama (SentencePiece BPE)",
        )
    _add_special(tokenizer, file, tokens)
    return tokenizer, kind, pre


def _list(file: GgufFile, key: str) -> Any:
    value = file.metadata.get(key)
    if value is None or isinstance(value, str | int | float):
        raise BadModel("unknown_tokenizer", f"{file.path.name}: key {key} is absent or no list")
    return value


def _byte_level(file: GgufFile, tokens: list[str]) -> tuple[Tokenizer, str]:
    name = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    pre = pre_of(name)
    if pre is None:
        raise BadModel(
            "unknown_tokenizer",
            f"{file.path.name}: key tokenizer.ggml.pre is {name!r}",
            f"the pre-tokenizers known are {', '.join(sorted(PRE))}; another one would split text wrongly",
        )
    merges = [tuple(merge.split(" ", 1)) for merge in _list(file, "tokenizer.ggml.merges")]
    try:
        model = BPE(vocab=_vocab(tokens), merges=merges, fuse_unk=False, ignore_merges=pre.ignore_merges)
    except Exception as error:  # the library raises a bare Exception
        raise BadModel("unknown_tokenizer", f"{file.path.name}: key tokenizer.ggml.merges: {error}") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre.splitter()
    if pre.normalizer is not None:
        tokenizer.normalizer = pre.normalizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, "bpe"


def _vocab(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def _sentencepiece(file: GgufFile, tokens: list[str]) -> Tokenizer:
    """SentencePiece merges the pair whose result has the best score: the same as BPE with merges in that order."""
    vocab = _vocab(tokens)
    scores = _list(file, "tokenizer.ggml.scores")
    ranked = []
    for token, index in vocab.items():
        for cut in range(1, len(token)):
            left, right = vocab.get(token[:cut]), vocab.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-float(scores[index]), left, right))
    ranked.sort()
    merges = [(tokens[left], tokens[right]) for _, left, right in ranked]
    unknown = int(file.metadata.get("tokenizer.ggml.unknown_token_id", 0))
    tokenizer = Tokenizer(BPE(vocab, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True))
    prefix = [normalizers.Prepend(_SPACE)] if file.metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _add_special(tokenizer: Tokenizer, file: GgufFile, tokens: list[str]) -> None:
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    if kinds is None:
        return
    added = [
        AddedToken(token, special=int(kind) == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if int(kind) in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
