"""One set of tensor names for encoders of the BERT family, and where checkpoints keep them."""

from __future__ import annotations

from engines.native.pooling.config import EncoderConfig, Head, Task

_TOP = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "embed_norm": "embeddings.LayerNorm",
}
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_BERT_HEAD = {"head_dense": "pooler.dense", "head_out": "classifier"}
_ROBERTA_HEAD = {"head_dense": "classifier.dense", "head_out": "classifier.out_proj"}
_OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""Checkpoints converted from TensorFlow long ago."""

DERIVED = ".position_ids"
"""Whole numbers from the configuration, which old checkpoints store."""
_OTHER_HEADS = ("pooler.", "cls.", "lm_head.", "classifier.")
"""Of the class that an embedding model was trained with; it does without."""


def expected_shapes(config: EncoderConfig, head: Head) -> dict[str, tuple[int, ...]]:
    """Our name → shape of every tensor that the encoder and its head need, in loading order."""
    hidden, ffn = config.hidden, config.ffn
    shapes: dict[str, tuple[int, ...]] = {
        "words.weight": (config.vocab, hidden),
        "positions.weight": (config.positions, hidden),
        "types.weight": (config.token_types, hidden),
    }
    shapes |= _norm("embed_norm", hidden)
    for layer in range(config.layers):
        prefix = f"layers.{layer}."
        for name, rows, columns in (
            *((part, hidden, hidden) for part in ("q", "k", "v", "o")),
            ("up", ffn, hidden),
            ("down", hidden, ffn),
        ):
            shapes |= {f"{prefix}{name}.weight": (rows, columns), f"{prefix}{name}.bias": (rows,)}
        shapes |= _norm(f"{prefix}attention_norm", hidden) | _norm(f"{prefix}output_norm", hidden)
    if head.task is Task.SCORE:
        shapes |= {"head_dense.weight": (hidden, hidden), "head_dense.bias": (hidden,)}
        shapes |= {"head_out.weight": (head.labels, hidden), "head_out.bias": (head.labels,)}
    return shapes


def _norm(name: str, hidden: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}


def file_names(name: str, config: EncoderConfig) -> list[str]:
    """Where a checkpoint may keep our tensor `name`, without the class's prefix; the usual place first."""
    part, kind = name.removeprefix("layers.").rsplit(".", 1)
    if name.startswith("layers."):
        layer, _, part = part.partition(".")
        usual = f"encoder.layer.{layer}.{_LAYER[part]}.{kind}"
    else:
        heads = _BERT_HEAD if config.architecture == "bert" else _ROBERTA_HEAD
        usual = f"{(_TOP | heads)[part]}.{kind}"
    old = usual
    for new, before in _OLD.items():
        old = old.replace(new, before)
    return [usual] if old == usual else [usual, old]


def is_unused(name: str, head: Head) -> bool:
    """Whether a tensor without a place in our encoder belongs to a head that we leave out on purpose."""
    return head.task is Task.EMBED and name.startswith(_OTHER_HEADS)


def prefix_of(names: list[str], architecture: str) -> str:
    """What the tensors of the encoder begin with: nothing, or the name of the part in a larger class."""
    part = "bert." if architecture == "bert" else "roberta."
    return part if any(name.startswith(part) for name in names) else ""
