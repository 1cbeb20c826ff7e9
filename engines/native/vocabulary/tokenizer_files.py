"""tokenizer.json and the files beside it, with new tokens added."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from engines.native.loader.generation import sampling_defaults
from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.tokenizer import TokenizerFacts, load_tokenizer
from engines.native.vocabulary.forms import Form, add

Write = Callable[[str, str], None]


def from_safetensors(paths: dict[str, Path], first: int, forms: Sequence[Form], write: Write) -> None:
    """As they are, padding and truncation too, and the new tokens wherever tokens are listed."""
    tokenizer = Tokenizer.from_file(str(paths["tokenizer.json"]))
    add(tokenizer, forms)
    write("tokenizer.json", tokenizer.to_str())
    config = read_json(paths, "tokenizer_config.json", required=False)
    if "added_tokens_decoder" in config:
        config["added_tokens_decoder"] |= {str(first + index): _described(form) for index, form in enumerate(forms)}
        write("tokenizer_config.json", _json(config))
    listed = read_json(paths, "added_tokens.json", required=False)
    if listed:
        write("added_tokens.json", _json(listed | {form.text: first + index for index, form in enumerate(forms)}))


def _described(form: Form) -> dict[str, Any]:
    return {
        "content": form.text,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": form.single_word,
        "special": False,
    }


def from_gguf(files: ModelFiles, facts: TokenizerFacts, forms: Sequence[Form], write: Write) -> None:
    tokenizer, _ = load_tokenizer(files)
    bos = None if facts.bos_id is None else tokenizer.id_to_token(facts.bos_id)
    if facts.add_bos and bos is not None:
        single, pair = f"{bos} $A", f"{bos} $A {bos} $B"
        tokenizer.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=[(bos, facts.bos_id)])
    add(tokenizer, forms)
    write("tokenizer.json", tokenizer.to_str())
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": files.config.context_length,
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "eos_token": tokenizer.id_to_token(facts.eos_ids[0]) if facts.eos_ids else None,
        "add_bos_token": facts.add_bos,
    }
    if facts.chat_template:
        config["chat_template"] = facts.chat_template
    write("tokenizer_config.json", _json(config))
    generation = {"bos_token_id": facts.bos_id, "eos_token_id": list(facts.eos_ids), **sampling_defaults(files)}
    write("generation_config.json", _json(generation))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
