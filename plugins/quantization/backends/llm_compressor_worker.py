"""Runs in llm-compressor's own environment, as a script: a folder of transformers in, one of compressed-tensors out.

On stdin one JSON object: {"model", "output": folders, "rows": .npy of int32 [samples, tokens] or "", "stages": the
recipe as `llm_compressor.stages` makes it, "dtype"}. On stdout lines of JSON: {"module": name} when one is begun,
{"fallback": name, "reason"}, {"log": text}; at last {"done": true}. Imports nothing of ours.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from typing import Any

_BEGUN = re.compile(r"Quantizing \d+ module\(s\): (\[.*\])")
_NEAREST = re.compile(r"(?:Affected modules|hessian inversion failure): (.+)$", re.DOTALL)
_SKIPPED = re.compile(r"Skipping (?:smooth_layer )?(\S+?),? (.+)$", re.DOTALL)


def say(**fields: Any) -> None:
    sys.__stdout__.write(json.dumps(fields) + "\n")  # type: ignore[union-attr] # always there in a child
    sys.__stdout__.flush()  # type: ignore[union-attr]


class Listener:
    """Hears what llm-compressor logs: a module that begins, and those that it could not do as asked."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, message: Any) -> None:
        text, level = message.record["message"], message.record["level"].name
        begun, nearest, skipped = _BEGUN.search(text), _NEAREST.search(text), _SKIPPED.search(text)
        if begun:
            for name in ast.literal_eval(begun[1]):
                say(module=name)
        elif nearest:  # a summary of ten names, and below it one of all
            names = [name for name in nearest[1].split(", ") if not name.startswith("and ")]
            self._fallbacks(names, "the Hessian could not be inverted: rounded to nearest")
        elif level in ("WARNING", "ERROR") and skipped:
            self._fallbacks([skipped[1]], skipped[2][:300])
        elif level in ("WARNING", "ERROR"):
            say(log=text[:500])

    def _fallbacks(self, names: list[str], reason: str) -> None:
        for name in names:
            if name not in self._told:
                self._told.add(name)
                say(fallback=name, reason=reason)


def main() -> None:
    spec = json.load(sys.stdin)
    sys.stdout = sys.stderr  # progress bars and prints of libraries are no lines of the protocol
    import torch
    from llmcompressor import oneshot
    from loguru import logger
    from transformers import AutoModelForCausalLM

    logger.remove()
    logger.add(Listener(), level="DEBUG")
    kept = getattr(torch, spec["dtype"])
    # Processors compute in float32, some of them sixty times faster than in 16 bits.
    dtype, device = (kept, "cuda") if torch.cuda.is_available() else (torch.float32, "cpu")
    model = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=dtype, device_map=device)
    given: dict[str, Any] = {}
    if spec["rows"]:
        given = {"dataset": loader(spec["rows"]), **calibrated(spec["rows"])}
    oneshot(model=model, recipe=[modifier(**stage) for stage in spec["stages"]], **given)
    narrow(model, kept)
    model.save_pretrained(spec["output"], save_compressed=True)
    say(done=True)


def narrow(model: Any, dtype: Any) -> None:
    """What is not quantized, in the type that it is kept in. Quantized weights are rounded when they are saved, and by
    the scales that they were found for."""
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is None:
            for parameter in module.parameters(recurse=False):
                if parameter.is_floating_point() and parameter.dim() > 1:
                    parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype


def calibrated(rows: str) -> dict[str, int]:
    import numpy

    samples, tokens = numpy.load(rows, mmap_mode="r").shape
    return {"num_calibration_samples": samples, "max_seq_length": tokens}


def loader(rows: str) -> Any:
    """The rows as they are, one after the other, in their order."""
    import numpy
    import torch

    ids = torch.from_numpy(numpy.load(rows)).long()
    samples: Any = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in ids]
    return torch.utils.data.DataLoader(samples, batch_size=1, shuffle=False)


def modifier(kind: str, **fields: Any) -> Any:
    """One of llm-compressor's, by its name."""
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier

    if kind == "QuantizationModifier":
        return QuantizationModifier(**fields)
    if kind == "GPTQModifier":
        return GPTQModifier(**fields)
    if kind == "SmoothQuantModifier":
        from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

        return SmoothQuantModifier(**fields)
    if kind == "AWQModifier":
        from llmcompressor.modifiers.transform.awq import AWQModifier

        return AWQModifier(**fields)
    from llmcompressor.modifiers.autoround import AutoRoundModifier

    return AutoRoundModifier(**fields)


if __name__ == "__main__":
    main()
