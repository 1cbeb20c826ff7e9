"""What the back end qat is told beyond the scheme: how long it trains, what, and how fast. No torch."""

from __future__ import annotations

from typing import Any

HELD_OUT = 8
"""Every so many-th of the rows is not trained on: the last ones, by which the gap is measured."""
LEAST_TOKENS, LEAST_TEXTS = 2_000, 8
"""That are scored, and texts that they are of, none of which is trained on: a verdict from less is chance's."""
LEAST_RECOVERY = 0.3
"""Of the gap between the model and its rounded version; below, training was not worth its time."""

PROPERTIES: dict[str, dict[str, Any]] = {
    "qat_train": {
        "title": "QAT: what is trained",
        "description": "full: all rounded weights. lora: a change of low rank to them, with two thirds of the memory. "
        "Scales of the groups and norms of the layers are trained in both.",
        "enum": ["full", "lora"],
        "default": "full",
    },
    "qat_steps": {
        "title": "QAT: steps",
        "description": "Of the optimizer; some hundred are usual.",
        "type": "integer",
        "minimum": 1,
        "maximum": 100_000,
        "default": 200,
    },
    "qat_rows": {
        "title": "QAT: rows of a step",
        "description": "Calibration rows that one step learns from.",
        "type": "integer",
        "minimum": 1,
        "maximum": 256,
        "default": 4,
    },
    "qat_learning_rate": {
        "title": "QAT: learning rate",
        "description": "The greatest, after a short rise; it falls to nothing as a cosine.",
        "type": "number",
        "minimum": 0.0000001,
        "maximum": 0.1,
        "default": 0.0001,
    },
    "qat_rank": {
        "title": "QAT: rank",
        "description": "Of lora.",
        "type": "integer",
        "minimum": 1,
        "maximum": 512,
        "default": 16,
    },
    "qat_temperature": {
        "title": "QAT: temperature",
        "description": "Of both models' distributions when they are compared; above 1, unlikely tokens count more.",
        "type": "number",
        "minimum": 0.5,
        "maximum": 10,
        "default": 1,
    },
    "qat_hidden": {
        "title": "QAT: weight of hidden states",
        "description": "Of the error of each layer's outputs beside that of the distributions; 0: none.",
        "type": "number",
        "minimum": 0,
        "maximum": 100,
        "default": 0,
    },
    "qat_precision": {
        "title": "QAT: arithmetic",
        "description": "auto: bfloat16 on GPUs that have it, else float32.",
        "enum": ["auto", "float32", "bfloat16"],
        "default": "auto",
    },
    "qat_recompute": {
        "title": "QAT: compute activations twice",
        "description": "A third slower, for a good part of the memory.",
        "type": "boolean",
        "default": False,
    },
}


def held_out(rows: int, tokens: int) -> int:
    """How many of so many rows of `tokens` tokens are kept to measure by: an eighth, or as many more as LEAST_TOKENS
    take; half at most. A row's first token is not scored."""
    return max(rows // HELD_OUT, min(rows // 2, -(-LEAST_TOKENS // (tokens - 1))))


def least_rows(tokens: int) -> int:
    """Rows of so many tokens that a training needs: half of them to measure by, without the first of these, which
    mostly begins in a text that is trained on."""
    return 2 * (-(-LEAST_TOKENS // (tokens - 1)) + 1)
