"""Child process that reads what a model is from its files: docs/contracts.md §8. No torch, no weights in memory.

python -m engines.native.inspect     spec on stdin, report or error on stdout
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import msgspec

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.models.config import DecoderConfig
from engines.native.pooling.files import PoolingFiles, open_any
from engines.protocol import Channel, ChildError, read_spec


def inspect(spec: dict[str, Any]) -> dict[str, Any]:
    """The report of contracts §8. Raises BadModel."""
    paths, format = spec.get("paths"), spec.get("format")
    if not isinstance(paths, dict) or not paths or not isinstance(format, str):
        raise ChildError("bad_spec", "the spec needs 'paths' (name → path) and 'format'")
    files = open_any(format, paths)
    if isinstance(files, PoolingFiles):
        shape, tensors = msgspec.to_builtins(files.shape()), files.stored
    else:
        shape, tensors = _shape(files.config), files.tensors
    tokenizer, facts = load_tokenizer(files)
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= files.config.vocab:
        raise BadModel(
            "unknown_tokenizer",
            f"the tokenizer has token id {highest}, but the embedding has {files.config.vocab} rows",
            "the tokenizer belongs to another model",
        )
    kinds = Counter(info.type for info in tensors.values() if len(info.shape) > 1)
    main = kinds.most_common(1)[0][0]
    floating = main in ("F32", "F16", "BF16")
    return {
        "shape": shape,
        "dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(main, "float32"),
        "quantization": "" if floating else main,
        "license": _license(files),
        "tokenizer": {
            "kind": facts.kind,
            "vocab_size": facts.vocab_size,
            "pre": facts.pre,
            "bos": facts.bos_id,
            "eos": list(facts.eos_ids),
        },
        "chat_template": facts.chat_template,
        "tensors": len(tensors),
        "weights_bytes": sum(info.nbytes for info in tensors.values()),
    }


def _shape(config: DecoderConfig) -> dict[str, Any]:
    """Fields of engines.api.ModelShape."""
    return {
        "architecture": config.architecture,
        "layers": config.layers,
        "hidden": config.hidden,
        "ffn": config.widest_ffn,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab": config.vocab,
        "context_length": config.context_length,
        "parameters": config.parameters(),
        "tied_embeddings": config.tied,
        "sliding_window": config.sliding_window,
        "kv_values": config.kv_values,
    }


def _license(files: ModelFiles | PoolingFiles) -> str:
    """From the GGUF's metadata, or the front matter of the model card."""
    if files.gguf is not None:
        return str(files.gguf.metadata.get("general.license", ""))
    card = files.paths.get("README.md")
    if card is None:
        return str(read_json(files.paths, "config.json").get("license", ""))
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    if lines[:1] != ["---"]:
        return ""
    for line in lines[1:]:
        if line == "---":
            break
        if line.startswith("license:"):
            return line.removeprefix("license:").strip().strip("\"'")
    return ""


def main() -> int:
    channel = Channel()
    try:
        channel.report(inspect(read_spec()))
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
