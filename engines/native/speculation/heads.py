"""Heads as versions: what a folder that holds no model but an EAGLE-3 head or Medusa heads is, from its files' headers.
The proposers that compute with them check every tensor when they load (`plugins.speculative.eagle_head`, `medusa`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import read_json
from engines.native.loader.safetensors import QUANTIZED_WIDTHS, read_safetensors
from engines.native.loader.tensors import TensorInfo

EAGLE3, MEDUSA = "eagle3", "medusa"
_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def head_kind(said: Mapping[str, Any]) -> str:
    """By config.json; "" for a model. speculators names the kind, SGLang the class, and Medusa counts its heads."""
    names = " ".join(map(str, said.get("architectures") or ())).lower()
    if said.get("speculators_model_type") == EAGLE3 or EAGLE3 in names:
        return EAGLE3
    return MEDUSA if MEDUSA in names or "medusa_num_heads" in said else ""


def feature_width(said: Mapping[str, Any], hidden: int) -> int:
    """Values that the head's proposer has the target keep of each token. hidden: the target's hidden size."""
    layer = said.get("transformer_layer_config") or said
    return int((head_kind(said) == EAGLE3 and layer.get("hidden_size")) or hidden)


def config_of(format: str, paths: Mapping[str, str]) -> dict[str, Any]:
    """A head's config.json; {} where the files are a model's. Raises BadModel."""
    if format != "safetensors":
        return {}
    said = read_json({name: Path(path) for name, path in paths.items()}, "config.json", required=False)
    return said if head_kind(said) else {}


def head_report(format: str, paths: Mapping[str, str]) -> dict[str, Any] | None:
    """As `engines.native.inspect` reports a model: hidden and vocab are those of the target, the task is the kind, and
    there is no tokenizer. None where the files are not a head's. Raises BadModel."""
    said = config_of(format, paths)
    if not said:
        return None
    kind = head_kind(said)
    shards = [Path(path) for name, path in sorted(paths.items()) if name.endswith(".safetensors")]
    tensors = {name: info for path in shards for name, info in read_safetensors(path, "t2d", QUANTIZED_WIDTHS).items()}
    if not tensors:
        raise BadModel("missing_tensor", "the head's .safetensors files hold no tensor", "import it again")
    hidden, vocab = _sizes(said, tensors)
    types = Counter(info.type for info in tensors.values() if info.type in _FLOATS)
    parameters = sum(info.elements for info in tensors.values())
    unknown = dict.fromkeys(("ffn", "heads", "kv_heads", "head_dim", "context_length"), 0)
    layers = 1 if kind == EAGLE3 else int(said.get("medusa_num_layers") or 1)
    shape = {"architecture": kind, "task": kind, "layers": layers, "hidden": hidden, "vocab": vocab}
    return {
        "shape": {**shape, **unknown, "parameters": parameters},
        "dtype": _FLOATS[types.most_common(1)[0][0]] if types else "float32",
        "quantization": "",
        "license": str(said.get("license") or ""),
        "tokenizer": {},
        "chat_template": "",
        "tensors": len(tensors),
        "weights_bytes": sum(info.nbytes for info in tensors.values()),
    }


def _sizes(said: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> tuple[int, int]:
    """(hidden size, vocabulary) of the target. The paper's authors don't write those of Medusa, which its output
    matrices have: [vocabulary, hidden size]."""
    layer = said.get("transformer_layer_config") or said
    hidden = said.get("target_hidden_size") or layer.get("hidden_size")
    vocab = layer.get("vocab_size")
    wide = [info.shape for info in tensors.values() if len(info.shape) == 2 and info.shape[0] > info.shape[1]]
    if not (hidden and vocab) and wide:
        hidden, vocab = hidden or wide[0][1], vocab or wide[0][0]
    if not hidden or not vocab:
        raise BadModel(
            "missing_tensor",
            "the head's config.json has neither hidden_size nor vocab_size, and no tensor tells",
            "write both into config.json: those of the model that it was trained for",
        )
    return int(hidden), int(vocab)
