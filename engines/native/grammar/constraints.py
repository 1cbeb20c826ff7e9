"""The grammars of the requests in one core: compiled while they wait, followed at each commit. Owned by the scheduler;
everything but the compiling is on its thread.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.native.config import EngineConfig
from engines.native.grammar.compiler import Compiler
from engines.native.grammar.matcher import Matcher, fill
from engines.native.grammar.spec import INVALID_GRAMMAR, BadGrammar, Think
from engines.native.speculation.tree import Tree
from engines.native.step import Int32, TokenMasks

if TYPE_CHECKING:
    from engines.native.grammar.vocabulary import Vocabulary
    from engines.native.request import Request

log = logging.getLogger(__name__)

COMPILE_TIMEOUT_S = 30.0
MASK_THREADS = 4
"""A mask takes 15 to 30 µs, and waking a thread as long: 32 masks took 0.91 / 0.75 / 0.74 / 0.80 / 0.89 / 1.2 ms with
1 / 2 / 4 / 8 / 12 / 16 threads beside an H200 (2026-11-30)."""


class Constraints:
    """Requests whose grammar is being compiled, and the threads that compute masks."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._compiling: dict[int, tuple[Request, Future[Any], float]] = {}  # by request id; with its deadline
        self._executor: Any = None

    def begin(self, request: Request) -> None:
        """Compile its grammar, on the compiler's thread."""
        assert request.params.grammar is not None
        future = self._compiler.submit(request.params.grammar.source)
        self._compiling[request.id] = (request, future, math.inf)

    def compiling(self, alive: Container[int]) -> int:
        """How many requests of `alive` (ids) wait for their grammar."""
        return sum(request_id in alive for request_id in self._compiling)

    def begun(self, now: float) -> list[tuple[Request, str, str]]:
        """Requests that need not wait any longer, each with what is wrong with its grammar and the code of that
        (`Matcher.error` and `code`): "" where it has a matcher now. `now`: time.monotonic(), s."""
        done: list[tuple[Request, str, str]] = []
        for request, future, deadline in list(self._compiling.values()):
            if request.finish is not None:  # its client left, or its time was up
                future.cancel()
                del self._compiling[request.id]
            elif future.done():
                done.append((request, *self._take(request, future)))
            elif now >= deadline:
                future.cancel()
                late = f"the grammar was not compiled within {COMPILE_TIMEOUT_S:.0f} s; simplify it"
                done.append((request, late, INVALID_GRAMMAR))
            elif deadline == math.inf:
                self._compiling[request.id] = (request, future, now + COMPILE_TIMEOUT_S)
        for request, *_ in done:
            del self._compiling[request.id]
        return done

    def _take(self, request: Request, future: Future[Any]) -> tuple[str, str]:
        grammar = request.params.grammar
        assert grammar is not None
        try:
            compiled = future.result()
        except BadGrammar as error:
            # Its traceback holds this frame and those above, with whole steps; the frame holds the future, and that it.
            return f"the grammar cannot be compiled: {error.with_traceback(None)}", INVALID_GRAMMAR
        except Exception as error:
            log.exception("request %d: its grammar could not be compiled", request.id)
            return f"the engine could not compile the grammar: {type(error).__name__}: {error}", ""
        thinking = grammar.think is not None and opens(request.token_ids[: request.prompt_len], grammar.think)
        closed = grammar.think is not None and not thinking and closes(request.token_ids, grammar.think)
        try:
            request.matcher = Matcher(
                compiled.deep_copy(),
                self._compiler.vocabulary,
                request.params.stop_token_ids,
                None if closed else grammar.think,
                thinking,
            )
            fill([request.matcher], self._executor)
        except Exception as error:
            log.exception("request %d: its grammar could not be begun", request.id)
            return f"the engine could not begin the grammar: {type(error).__name__}: {error}", ""
        return request.matcher.error, request.matcher.code

    def followed(self, matcher: Matcher, tree: Tree) -> tuple[Tree, Int32]:
        """The guesses that the grammar allows, and int32 [1 + nodes, words], what may follow the token before them and
        each. It is a copy of the matcher that walks: a way that nobody has gone yet may lead into an error, from which
        there is no way back. What would end the answer is not followed."""
        keep = np.zeros(len(tree), np.bool_)
        found = {0: (matcher.bits, matcher.complete)}
        matcher = matcher.copy()
        path: list[int] = []  # the nodes that it has been advanced by
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True)):
            if parent not in found or found[parent][1] or not found[parent][0][token >> 5] >> (token & 31) & 1:
                continue
            if matcher.stops_at(token):
                continue
            way = _way(tree.parents, parent)
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(path, way, strict=False)))
            matcher.rollback(len(path) - same)
            for step in (*way[same:], node):
                matcher.advance(int(tree.tokens[step]))
            path = [*way, node]
            self._fill([matcher])
            if matcher.error:
                break
            keep[node] = True
            found[node + 1] = (matcher.bits, matcher.complete)
        return tree.kept(keep), np.stack([found[node][0] for node in sorted(found)])

    def follow(self, matchers: Sequence[Matcher], tokens: Iterable[int]) -> None:
        """Each has drawn one token: advance it, and compute the masks of all that go on."""
        for matcher, token in zip(matchers, tokens, strict=True):
            try:
                matcher.advance(token)
            except Exception as error:  # it is this request's: the step and its neighbours go on
                log.exception("a grammar could not follow token %d", token)
                matcher.error = f"the engine could not follow the grammar: {type(error).__name__}: {error}"
        self._fill(matchers)

    def _fill(self, matchers: Sequence[Matcher]) -> None:
        if self._executor is None:
            import llguidance

            self._executor = llguidance.LLExecutor(num_threads=min(MASK_THREADS, len(os.sched_getaffinity(0))))
        fill(matchers, self._executor)


def _way(parents: Int32, node: int) -> list[int]:
    """From the root to node number `node` (0 = the root, else one more than its index): indices."""
    way: list[int] = []
    while node:
        way.append(node - 1)
        node = int(parents[node - 1])
    return way[::-1]


def masks_of(matchers: Sequence[tuple[int, Matcher]]) -> TokenMasks:
    """matchers: (which of the rows that sample, its matcher), at least one."""
    places = np.array([place for place, _ in matchers], np.int64)
    return TokenMasks(places, np.stack([matcher.bits for _, matcher in matchers]))


def opens(prompt: Int32, think: Think) -> bool:
    """Whether the prompt ends inside an open thinking part."""
    return _last_tag(prompt, think) == think.begin


def closes(prompt: Int32, think: Think) -> bool:
    """Whether the prompt's last tag ends a thinking part and nothing but blanks can follow it: the template wrote an
    empty one for an answer without thinking."""
    tail = prompt[-CLOSED_WITHIN:]
    return _last_tag(tail, think) == think.end


CLOSED_WITHIN = 4
"""Tokens from </think> to the prompt's end, where it closes the thinking of the answer to come and not of an earlier
one: templates put a blank line there."""


def _last_tag(tokens: Int32, think: Think) -> int:
    tags = tokens[(tokens == think.begin) | (tokens == think.end)]
    return int(tags[-1]) if len(tags) else -1


def constraints_of(config: EngineConfig) -> Constraints:
    """For the model of `config`. Its tokenizer is read with the first grammar."""

    def vocabulary() -> Vocabulary:
        from engines.native.grammar.vocabulary import of_model

        return of_model(config.format, dict(config.paths))

    return Constraints(Compiler(vocabulary))
