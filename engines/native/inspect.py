"""Child process that reads what a model is from its files: docs/contracts.md §8. No torch, no weights in memory; of
quantized safetensors the values are looked at once, since no product tells a scale that is NaN from a bad model.

python -m engines.native.inspect     spec on stdin, report or error on stdout
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import msgspec

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.tensors import TensorInfo
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.pooling.files import PoolingFiles, open_any
from engines.native.quant.scan import scan
from engines.native.quant.stored import Stored
from engines.native.speculation.heads import head_report
from engines.protocol import Channel, ChildError, read_spec

_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def inspect(spec: dict[str, Any]) -> dict[str, Any]:
    """The report of contracts §8. Raises BadModel."""
    paths, format = spec.get("paths"), spec.get("format")
    if not isinstance(paths, dict) or not paths or not isinstance(format, str):
        raise ChildError("bad_spec", "the spec needs 'paths' (name → path) and 'format'")
    if (head := head_report(format, paths)) is not None:
        return head
    files = open_any(format, paths)
    if isinstance(files, PoolingFiles):
        shape, tensors = msgspec.to_builtins(files.shape()), files.stored
    else:
        shape, tensors = _shape(files), files.tensors
    tokenizer, facts = load_tokenizer(files)
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= files.config.vocab:
        raise BadModel(
            "unknown_tokenizer",
            f"the tokenizer has token id {highest}, but the embedding has {files.config.vocab} rows",
            "the tokenizer belongs to another model",
        )
    model = files.decoder if isinstance(files, PoolingFiles) else files
    if model is not None and model.format == "safetensors" and model.quantized:
        scan(model.tensors, model.quantized, [scale for pair in model.kv_scales.values() for scale in pair])
    dtype, quantization = _stored(tensors, {} if model is None else model.quantized)
    return {
        "shape": shape,
        "dtype": dtype,
        "quantization": quantization,
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


def _stored(tensors: dict[str, TensorInfo], quantized: dict[str, Stored]) -> tuple[str, str]:
    """(float type of the matrices that have one, what the quantized ones are or ""), of most of them."""
    schemes = Counter(str(stored.scheme) for stored in quantized.values() if stored.layout != "gguf")
    kinds = Counter(info.type for info in tensors.values() if len(info.shape) > 1)
    floats = Counter({kind: count for kind, count in kinds.items() if kind in _FLOATS})
    main = kinds.most_common(1)[0][0]
    if main in _FLOATS and not schemes:
        return _FLOATS[main], ""
    if not schemes:  # GGUF, by its own names
        return "float32", main
    dtype = _FLOATS[floats.most_common(1)[0][0]] if floats else "float32"
    others = f" and {len(schemes) - 1} more" if len(schemes) > 1 else ""
    return dtype, schemes.most_common(1)[0][0] + others


def _shape(files: ModelFiles) -> dict[str, Any]:
    """Fields of engines.api.ModelShape."""
    config = files.config
    parameters, nbytes = files.quantized_size()
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
        "quantized_parameters": parameters,
        "quantized_bytes": nbytes,
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
