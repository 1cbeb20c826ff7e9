"""The tokenizer of a model, from its GGUF file or its tokenizer.json, and what a server must know about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from engines.native.loader.errors import BadModel
from engines.native.loader.gguf import GgufFile
from engines.native.loader.gguf_tokenizer import from_gguf
from engines.native.loader.model_files import read_json

# Tokens that end an answer in one of the usual chat formats, whatever the file's eos says.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>")


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """eos_ids: any of them ends an answer, the model's own first. special_ids: never shown as text. add_bos: the
    model wants `bos_id` before a plain prompt (chat templates write it themselves)."""

    kind: str  # "bpe" | "spm" | "tokenizer.json"
    vocab_size: int
    pre: str
    bos_id: int | None
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]
    add_bos: bool
    chat_template: str


class TokenizerSource(Protocol):
    """An opened model: ModelFiles, or PoolingFiles."""

    @property
    def paths(self) -> dict[str, Path]: ...

    @property
    def gguf(self) -> GgufFile | None: ...


def load_tokenizer(files: TokenizerSource) -> tuple[Tokenizer, TokenizerFacts]:
    """`tokenizer.encode(text, add_special_tokens=False)` gives the ids of a text with special tokens recognised.
    Raises BadModel("unknown_tokenizer"), naming the key."""
    if files.gguf is not None:
        return _gguf(files.gguf)
    return _tokenizer_json(files.paths)


def _gguf(file: GgufFile) -> tuple[Tokenizer, TokenizerFacts]:
    tokenizer, kind, pre = from_gguf(file)
    metadata = file.metadata
    eos = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    special = frozenset(token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    facts = TokenizerFacts(
        kind=kind,
        vocab_size=tokenizer.get_vocab_size(),
        pre=pre,
        bos_id=None if bos is None else int(bos),
        eos_ids=_ends(tokenizer, special, eos),
        special_ids=special,
        add_bos=bos is not None and bool(metadata.get("tokenizer.ggml.add_bos_token", kind == "spm")),
        chat_template=str(metadata.get("tokenizer.chat_template", "")),
    )
    return tokenizer, facts


def _tokenizer_json(paths: dict[str, Path]) -> tuple[Tokenizer, TokenizerFacts]:
    if "tokenizer.json" not in paths:
        raise BadModel("unknown_tokenizer", "the model has no tokenizer.json", "convert its tokenizer to that format")
    try:
        tokenizer = Tokenizer.from_file(str(paths["tokenizer.json"]))
    except Exception as error:  # the library raises a bare Exception
        raise BadModel("unknown_tokenizer", f"tokenizer.json cannot be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    config = read_json(paths, "tokenizer_config.json", required=False)
    generation = read_json(paths, "generation_config.json", required=False)
    model = read_json(paths, "config.json", required=False)
    special = frozenset(token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    bos = _id_of(tokenizer, config.get("bos_token"))
    eos: list[Any] = [_id_of(tokenizer, config.get("eos_token"))]
    for source in (generation, model):
        value = source.get("eos_token_id")
        eos += value if isinstance(value, list) else [value]
    facts = TokenizerFacts(
        kind="tokenizer.json",
        vocab_size=tokenizer.get_vocab_size(),
        pre="",
        bos_id=bos,
        eos_ids=_ends(tokenizer, special, eos),
        special_ids=special,
        add_bos=bos is not None and tokenizer.encode("", add_special_tokens=True).ids[:1] == [bos],
        chat_template=_template(paths, config),
    )
    return tokenizer, facts


def _ends(tokenizer: Tokenizer, special: frozenset[int], named: list[Any]) -> tuple[int, ...]:
    usual = [tokenizer.token_to_id(text) for text in _ENDS]
    found = [int(token_id) for token_id in named if token_id is not None]
    found += [token_id for token_id in usual if token_id is not None and token_id in special]
    return tuple(dict.fromkeys(found))


def _id_of(tokenizer: Tokenizer, entry: Any) -> int | None:
    text = entry.get("content") if isinstance(entry, dict) else entry
    return tokenizer.token_to_id(text) if isinstance(text, str) else None


def _template(paths: dict[str, Path], config: dict[str, Any]) -> str:
    """chat_template.jinja wins over tokenizer_config.json, whose entry may be a list of named templates."""
    if "chat_template.jinja" in paths:
        return paths["chat_template.jinja"].read_text(encoding="utf-8")
    template = config.get("chat_template") or ""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template", "") for entry in template}
        template = named.get("default", "")
    return str(template)
