"""What the soak asks of the engine: requests of every kind, at random, and whom it ends from outside."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from engines.native.grammar import sources
from engines.native.grammar.spec import Grammar
from engines.native.grammar.vocabulary import Vocabulary
from engines.native.request import Finish, Request, SamplingParams

END = 95
"""The token that ends what follows a grammar; those before it are the printable characters of ASCII."""
DIGITS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
GRAMMARS = [sources.from_choice(["yes", "no", "perhaps"]), sources.from_schema(DIGITS)]
BROKEN = sources.from_lark("start: nothing")
"""Compiles to no grammar: such a request ends with an error."""
QUEUE_S, FIRST_S, TOTAL_S = 0.5, 0.7, 1.5
"""Time-outs of those requests that have some."""


class _Characters:
    """As llguidance asks for tokens."""

    bos_token_id, eos_token_id, special_token_ids = None, END, (END,)

    def __init__(self, vocab: int) -> None:
        self.tokens = [bytes([32 + token]) if token < END else b"<end>" * (token == END) for token in range(vocab)]

    def __call__(self, text: bytes) -> list[int]:
        return [character - 32 for character in text]


def vocabulary(size: int) -> Vocabulary:
    import llguidance

    wrapper = llguidance.TokenizerWrapper(_Characters(size))
    return Vocabulary(llguidance.LLTokenizer(wrapper, n_vocab=size, eos_token=[END]), size, (END,))


@dataclass(slots=True)
class Asked:
    """A request that has not ended. most: tokens that it can say. allowed: endings that others cause."""

    request: Request
    most: int
    allowed: set[Finish] = field(default_factory=set)
    said: list[int] = field(default_factory=list)


class Traffic:
    """longest: tokens of prompt and answer. long: share of answers that may be as long as fits; the engine admits by
    what was usual lately, so that a change of it brings preemptions."""

    def __init__(self, chooser: random.Random, vocab: int, longest: int) -> None:
        self.chooser, self.vocab, self.longest, self.long = chooser, vocab, longest, 0.0
        self.grammars = find_spec("llguidance") is not None
        self._beginnings = deque([self._tokens(longest - 1) for _ in range(12)], maxlen=12)
        self._asked = 0

    def ask(self, now: float) -> list[Asked]:
        """One prompt, for one answer or several."""
        chooser, longest = self.chooser, self.longest
        begins = chooser.choice(self._beginnings)
        shared = chooser.choice((0, 0, 16, 16, len(begins), chooser.randrange(len(begins) + 1)))
        prompt = begins[:shared] + self._tokens(chooser.choice((1, 2, 5, 9, 17, chooser.randrange(1, longest))))
        prompt = prompt[: longest - 1 + 2 * (chooser.random() < 0.02)]  # rarely more than fit
        params, hurries = self._params(), chooser.random() < 0.1
        one = Request(
            id=0, token_ids=np.array(prompt, np.int32), params=params, prompt_len=len(prompt), arrived=now,
            priority=chooser.choice((0, 0, 1, 2)), salt=chooser.choice(("", "", "a")),
            tenant=chooser.choice(("", "b", "c")),
        )  # fmt: skip
        if hurries:
            one.queue_deadline, one.first_token_deadline, one.deadline = now + QUEUE_S, now + FIRST_S, now + TOTAL_S
        allowed = {Finish.TIMEOUT} if hurries else set()
        if len(prompt) >= longest or params.grammar == Grammar(BROKEN):
            allowed.add(Finish.ERROR)
        found = []
        for _ in range(chooser.choice((1, 1, 1, 2, 4))):
            self._asked += 1
            own = replace(one, id=self._asked, params=replace(params, seed=self._asked), blocks=[], host_blocks=[])
            found.append(Asked(own, min(params.max_tokens, longest - len(prompt)), set(allowed)))
        return found

    def heard(self, asked: Asked) -> None:
        """It has ended: a prompt may begin with it."""
        if self.chooser.random() < 0.2:
            self._beginnings.append(asked.request.token_ids[: asked.request.prompt_len].tolist() + asked.said)

    def victim(self, states: Mapping[str, Sequence[Asked]]) -> tuple[str, Request, Finish]:
        """Who ends from outside, and how: the client leaves, or the API process has seen its text. states: at least
        one; each is as likely, however many are in it."""
        state = self.chooser.choice(sorted(states))
        asked = self.chooser.choice(states[state])
        finish = self.chooser.choice((Finish.ABORT, Finish.ABORT, Finish.ABORT, Finish.STOP, Finish.REPETITION))
        asked.allowed.add(finish)
        return state, asked.request, finish

    def _tokens(self, count: int) -> list[int]:
        return [self.chooser.randrange(self.vocab) for _ in range(count)]

    def _params(self) -> SamplingParams:
        chooser = self.chooser
        kinds: list[dict[str, Any]] = [
            {"temperature": 0},
            {"temperature": 0.8, "top_k": 20},
            {"temperature": 1.5, "top_p": 0.9, "min_p": 0.02},
            {"typical_p": 0.9},
            {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.3},
            {"dry_multiplier": 0.8, "no_repeat_ngram_size": 3},
            {"logit_bias": dict.fromkeys(self._tokens(3), 4.0), "bad_words": [self._tokens(1), self._tokens(2)]},
            {"allowed_token_ids": sorted(set(self._tokens(30)))},
            {"stop_token_ids": self._tokens(12), "min_tokens": chooser.choice((0, 5))},
            {"logprobs": 2},
            {"prompt_logprobs": 1},
            {"forks": True},
        ]
        asks = kinds[0] if chooser.random() < 0.3 else chooser.choice(kinds) | chooser.choice(kinds)
        if self.grammars and chooser.random() < 0.1:
            asks = {"grammar": Grammar(chooser.choice([*GRAMMARS, BROKEN])), "stop_token_ids": [END]}
        most = self.longest if chooser.random() < self.long else chooser.choice((1, 4, 16, 40))
        return SamplingParams(max_tokens=most, **asks)
