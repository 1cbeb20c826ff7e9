"""The numbers and switches of an encoder, and how its tokens become one vector. No torch: the inspector reads it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

ENCODERS = ("bert", "roberta", "xlm-roberta")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")


class Task(enum.StrEnum):
    """What a model is for, as its files say."""

    GENERATE = "generate"
    EMBED = "embed"
    SCORE = "score"


class Pool(enum.StrEnum):
    """Which hidden states make the vector: their mean, the first token's, the last token's."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The BERT family: attention both ways, a norm after each half of a layer, learned positions."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    vocab: int
    positions: int  # rows of the table
    first_position: int  # row of a text's first token: 0 in BERT, after the padding's in RoBERTa
    token_types: int
    norm_eps: float
    activation: str

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def context_length(self) -> int:
        """Tokens."""
        return self.positions - self.first_position


@dataclass(frozen=True, slots=True)
class Head:
    """What comes after the layers. `labels`: 0 for embeddings, 1 for a cross-encoder's score."""

    task: Task
    pool: Pool
    normalize: bool = False  # vectors of length 1
    max_tokens: int = 0  # of one text, as the model was trained; 0 = its whole context
    lower: bool = False  # texts are lowered before they are tokenized
    labels: int = 0
    sigmoid: bool = False  # of the score
    matryoshka: bool = False  # a vector's leading part is a vector, too
    dimensions: tuple[int, ...] = ()  # the lengths that may be asked for; () = any, where matryoshka
