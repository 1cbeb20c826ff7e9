"""Sources → compiled grammars, on a thread of its own: a step never waits for one. The library drops the interpreter's
lock while it compiles.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.native.grammar.spec import BadGrammar

if TYPE_CHECKING:
    from engines.native.grammar.vocabulary import Vocabulary

STACK = 64 * 2**20
"""Bytes of the thread's stack: the library follows rules and references by recursion (`sources.MAX_RULES`)."""
CACHED_GRAMMARS = 256
CACHED_BYTES = 64 * 2**20
BYTES_PER_CHARACTER = 64
"""Memory of a compiled grammar per character of its source, measured (docs/structured-output.md), and that of a small
one: a bound, no account."""
BYTES_AT_LEAST = 64 * 1024
_MESSAGE = 600  # characters of the library's message that a client gets


class Compiler:
    """Thread-safe. The thread begins with the first grammar, and so does the library."""

    def __init__(self, make_vocabulary: Callable[[], Vocabulary]) -> None:
        """make_vocabulary: called once, on the thread; what it raises, all grammars of this process fail with."""
        self._make_vocabulary = make_vocabulary
        self._vocabulary: Vocabulary | None = None
        self._queue: queue.SimpleQueue[tuple[str, Future[Any]]] = queue.SimpleQueue()
        self._cache: OrderedDict[str, Any] = OrderedDict()
        self._held = 0  # bytes, by weight()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """Once a grammar is compiled."""
        assert self._vocabulary is not None
        return self._vocabulary

    def submit(self, source: str) -> Future[Any]:
        """→ llguidance's LLMatcher at its start, to be copied; or raises BadGrammar. Callers that give up cancel it."""
        future: Future[Any] = Future()
        with self._lock:
            self._start()
            compiled = self._cache.get(source)
            if compiled is not None:
                self._cache.move_to_end(source)
        if compiled is not None:
            future.set_result(compiled)
        else:
            self._queue.put((source, future))
        return future

    def _start(self) -> None:
        if self._thread is None:
            usual = threading.stack_size(STACK)
            try:
                self._thread = threading.Thread(target=self._work, name="grammars", daemon=True)
                self._thread.start()
            finally:
                threading.stack_size(usual)

    def _work(self) -> None:
        while True:
            source, future = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._compile(source))
            except Exception as error:  # whatever it is, it is this request's, and the thread goes on
                future.set_exception(error)
            except BaseException as panic:  # what the library's own language calls one
                if type(panic).__name__ != "PanicException":
                    raise
                future.set_exception(RuntimeError(f"the grammar library failed: {panic}"))

    def _compile(self, source: str) -> Any:
        import llguidance

        with self._lock:
            if (compiled := self._cache.get(source)) is not None:  # another request was first
                return compiled
        if self._vocabulary is None:
            self._vocabulary = self._make_vocabulary()
        compiled = llguidance.LLMatcher(self._vocabulary.tokenizer, source, log_level=0)
        _begin(compiled, self._vocabulary.words)
        with self._lock:
            self._cache[source] = compiled
            self._held += weight(source)
            while len(self._cache) > CACHED_GRAMMARS or (self._held > CACHED_BYTES and len(self._cache) > 1):
                oldest, _ = self._cache.popitem(last=False)
                self._held -= weight(oldest)
        return compiled


def _begin(compiled: Any, words: int) -> None:
    """Ask for the first mask here, where no step waits for it: what the library finds on the way serves all copies.
    Raises BadGrammar: some grammars compile and allow nothing, or are over a limit, which a copy is told."""
    bits = np.zeros(words, np.int32)
    for matcher in (compiled, compiled.deep_copy()):
        if not matcher.is_error():
            matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if matcher.is_error():
            raise BadGrammar(readable(matcher.get_error()))


def weight(source: str) -> int:
    return max(BYTES_AT_LEAST, BYTES_PER_CHARACTER * len(source))


def readable(message: str) -> str:
    """The library's message: without its advice about options that a client can't set, and without its own state."""
    if message.startswith("oneOf constraints are not supported"):
        return "oneOf is taken only where its alternatives exclude each other by a type or a constant; use anyOf"
    message = message.partition("\n<state>")[0].strip()
    if message == "NoExtensionBias":
        return "no text can follow it; give each recursive rule a way to end"
    return message[:_MESSAGE]
