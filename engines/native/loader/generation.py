"""How a model's makers want it sampled, where its files say so: defaults of fields that a request leaves out.

generation_config.json, and GGUF's general.sampling.*; of both only what says how to draw, as vLLM's
`--generation-config auto` does. A value that no request could ask for is left out, with a line in the log.
"""

from __future__ import annotations

import logging

from engines.native.loader.model_files import read_json
from engines.native.loader.tokenizer import TokenizerSource

log = logging.getLogger(__name__)

_GGUF_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
_BOUNDS = {
    "temperature": (0.0, 2.0),
    "top_k": (-1.0, 2.0**31),
    "top_p": (1e-9, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-9, 10.0),
}


def sampling_defaults(files: TokenizerSource) -> dict[str, float]:
    """Field of a request → value, for those that the files name. Raises BadModel for a JSON file that is none."""
    if files.gguf is not None:
        metadata = files.gguf.metadata
        found = {field: metadata.get(f"general.sampling.{key}") for field, key in _GGUF_KEYS.items()}
    else:
        config = read_json(files.paths, "generation_config.json", required=False)
        found = {field: config.get(field) for field in _BOUNDS}
    defaults: dict[str, float] = {}
    for field, value in found.items():
        if value is None:
            continue
        low, high = _BOUNDS[field]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            log.warning(
                "the model's files give %s = %r, which can't be a default: from %g to %g", field, value, low, high
            )
        else:
            defaults[field] = value
    return defaults
