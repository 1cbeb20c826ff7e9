"""What each kind of data set is given, and what it gives."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from evaluation.schema import Dataset
from evaluation.workload.item import Item, Turn
from evaluation.workload.seeds import rng
from evaluation.workload.text import Fitter
from evaluation.workload.tokens import Tokenizer

Spec = TypeVar("Spec", bound=Dataset)


class Made(Struct):
    item: Item
    ids: list[list[int]]  # of each turn's whole prompt, what a session has said before among them


class Draw:
    """The streams of one run and stream, its tokenizer, and what was learned of it."""

    def __init__(self, seed: int, stream: str, tokenizer: Tokenizer, chat: bool) -> None:
        self._seed, self.stream, self.tokenizer, self.chat = seed, stream, tokenizer, chat
        self.fitter = Fitter(tokenizer)
        self._template: int | None = None

    def rng(self, *path: str | int) -> np.random.Generator:
        return rng(self._seed, self.stream, *path)

    async def template_tokens(self) -> int:
        """That a chat template adds to a message (case gpustack #4560: 83 of 1,107)."""
        if self._template is None:
            text = "one"
            alone = len(await self.tokenizer.ids(Turn(messages=[{"role": "user", "content": text}], prompt=text)))
            doubled = Turn(messages=[{"role": "user", "content": f"{text} {text}"}], prompt=f"{text} {text}")
            self._template = max(0, 2 * alone - len(await self.tokenizer.ids(doubled)))
        return self._template


class Source(Generic[Spec]):
    """A kind of data set. `item(index)` is the same whenever it is asked for, and in whichever order."""

    def __init__(self, spec: Spec, draw: Draw) -> None:
        self.spec, self.draw = spec, draw

    @property
    def available(self) -> int | None:
        """Distinct items; None where they are made."""
        return None

    async def item(self, index: int) -> Made:
        """Raises DatasetError."""
        raise NotImplementedError(f"{type(self).__name__}.item")  # each kind has its own
