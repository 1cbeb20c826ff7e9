"""Where one request stands in its grammar. Advanced at commit, token by token, with the mask of the next."""

from __future__ import annotations

import copy
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engines.native.grammar.compiler import readable
from engines.native.grammar.spec import INVALID_GRAMMAR, Think

if TYPE_CHECKING:
    from engines.native.grammar.vocabulary import Vocabulary

Int32 = NDArray[np.int32]
_LIMIT = "too many"  # items, expressions, states: how the library says that a grammar went over one of its limits


class _Phase(enum.Enum):
    THINKING = "thinking"  # free, until </think>
    UNDECIDED = "undecided"  # the first token: an answer, or <think>
    ANSWER = "answer"


class Matcher:
    """bits: int32 [words], the tokens that may come next (bit t % 32 of word t // 32). complete: the grammar is met and
    nothing can follow. error: why it can't go on; code: whose fault that is, the grammar's (`INVALID_GRAMMAR`) or ours
    (""). All are as of the last `fill`."""

    def __init__(
        self, compiled: Any, vocabulary: Vocabulary, stop_ids: Sequence[int], think: Think | None, thinking: bool
    ) -> None:
        """compiled: an LLMatcher of its own. stop_ids: end the answer wherever the grammar lets it end, and nowhere
        else. think: the answer may come after thinking; thinking: the prompt ends inside it."""
        self._compiled, self._vocabulary, self._think = compiled, vocabulary, think
        self._stops, self._ends = _words(stop_ids), _words(vocabulary.ends)
        self._phase = _Phase.ANSWER
        if think is not None:
            self._phase = _Phase.THINKING if thinking else _Phase.UNDECIDED
        self._past: list[_Phase] = []  # the phase before each token
        self.bits: Int32 = np.zeros(vocabulary.words, np.int32)
        self.complete = False
        self.error = self.code = ""

    def advance(self, token: int) -> None:
        """`token` was drawn. One that the grammar does not allow leaves an `error`. `fill` must follow."""
        self._past.append(self._phase)
        if self._think is not None and self._phase is not _Phase.ANSWER:
            if self._phase is _Phase.THINKING:
                self._phase = _Phase.ANSWER if token == self._think.end else _Phase.THINKING
                return
            if token == self._think.begin:
                self._phase = _Phase.THINKING
                return
            self._phase = _Phase.ANSWER
        if not self._compiled.consume_token(token):
            said = readable(self._compiled.get_error())
            if _LIMIT in said.lower():
                self._refuse(f"the grammar became too complex: {said}")
            else:
                self.error = f"token {token} does not follow the grammar: {said}"

    def _refuse(self, reason: str) -> None:
        self.error, self.code = reason, INVALID_GRAMMAR

    def rollback(self, tokens: int) -> None:
        """Take back the last `tokens` (≤ those advanced). `fill` must follow."""
        if not tokens:
            return
        past = self._past[-tokens:]
        after = [*past[1:], self._phase]
        answers = (_Phase.ANSWER, _Phase.UNDECIDED)  # an undecided token that did not open the thinking was an answer's
        consumed = sum(phase in answers and then is _Phase.ANSWER for phase, then in zip(past, after, strict=True))
        self._compiled.rollback(consumed)
        self._phase = past[0]
        del self._past[-tokens:]
        self.complete, self.error, self.code = False, "", ""

    def copy(self) -> Matcher:
        """One that stands at the same place, and goes its own way."""
        other = copy.copy(self)
        other._compiled, other._past = self._compiled.deep_copy(), list(self._past)
        return other

    def stops_at(self, token: int) -> bool:
        """Whether `token` is one of the request's own stop tokens."""
        return any(word == token >> 5 and int(flags) >> (token & 31) & 1 for word, flags in self._stops)

    @property
    def wants_mask(self) -> bool:
        """Whether its mask must be computed: not while it thinks."""
        return not self.error and self._phase is not _Phase.THINKING

    def settle(self, bits: Int32, may_end: bool, any_left: bool) -> None:
        """Take `bits`, as the compiler wrote them but without its ends, as the next mask: with our stop tokens in the
        place of those. may_end: it set one of them; any_left: another bit is set."""
        if self._phase is _Phase.THINKING:
            bits[:] = -1
            _clear(bits, (*self._ends, *self._stops))
        elif self._compiled.is_error():
            self._refuse(f"the grammar became too complex: {readable(self._compiled.get_error())}")
        else:
            if not any_left:
                self.complete = may_end
                if not may_end:
                    self._refuse("no token of this model can follow in the grammar")
            if may_end:
                _set(bits, self._stops)
            if self._phase is _Phase.UNDECIDED and self._think is not None:
                _set(bits, _words([self._think.begin]))
        self.bits = bits

    def write(self, bits: Int32) -> None:
        """The compiler's mask of one matcher into `bits`, without the threads of `fill`."""
        self._compiled.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)

    @property
    def compiled(self) -> Any:
        return self._compiled

    @property
    def ends(self) -> Words:
        """The compiler's own ends: the same of all matchers of a model."""
        return self._ends


def fill(matchers: Sequence[Matcher], executor: Any) -> None:
    """The next masks of all, in parallel on `executor` (an LLExecutor), without the interpreter's lock."""
    if not matchers:
        return
    bits = np.zeros((len(matchers), len(matchers[0].bits)), np.int32)
    wanted = [(matcher, index) for index, matcher in enumerate(matchers) if matcher.wants_mask]
    if len(wanted) == 1:
        wanted[0][0].write(bits[wanted[0][1]])
    elif wanted:
        pairs = [(matcher.compiled, index) for matcher, index in wanted]
        executor.unsafe_compute_mask_ptr(pairs, bits.ctypes.data, bits.strides[0], len(bits))
    may_end = np.zeros(len(bits), np.bool_)
    for word, flags in matchers[0].ends:  # of all rows at once: one by one they would take longer than the masks
        may_end |= (bits[:, word] & flags) != 0
        bits[:, word] &= ~flags
    left = np.any(bits, axis=1)
    for index, matcher in enumerate(matchers):
        if not matcher.error:
            matcher.settle(bits[index], bool(may_end[index]), bool(left[index]))


Words = tuple[tuple[int, np.int32], ...]
"""Few tokens of a mask: the words that they are in, and their bits there. A whole mask is 600 words per 20,000 tokens,
and in a step of a GPU there is no time to go through those of every row again and again."""


def _words(tokens: Sequence[int]) -> Words:
    flags: dict[int, int] = {}
    for token in tokens:
        flags[token >> 5] = flags.get(token >> 5, 0) | 1 << (token & 31)
    return tuple((word, np.uint32(each).view(np.int32)) for word, each in flags.items())


def _clear(bits: Int32, words: Words) -> None:
    for word, flags in words:
        bits[word] &= ~flags


def _set(bits: Int32, words: Words) -> None:
    for word, flags in words:
        bits[word] |= flags
