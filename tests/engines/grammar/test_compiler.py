"""Compiling beside the steps: cached, bounded, and never the end of the thread."""

from __future__ import annotations

import threading
import time

import pytest

from engines.native.grammar import compiler as module
from engines.native.grammar import sources
from engines.native.grammar.compiler import Compiler
from engines.native.grammar.spec import BadGrammar
from tests.engines.grammar.tokens import VOCABULARY, compiler


def test_the_same_source_is_compiled_once() -> None:
    made = compiler()
    source = sources.from_regex("ab+")
    assert made.submit(source).result(30) is made.submit(source).result(30)
    assert made.submit(sources.from_regex("ab*")).result(30) is not made.submit(source).result(30)


def test_the_least_used_leaves_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_GRAMMARS", 2)
    made = compiler()
    one, two, three = (sources.from_regex(text) for text in "abc")
    first, second = made.submit(one).result(30), made.submit(two).result(30)
    assert made.submit(one).result(30) is first
    made.submit(three).result(30)
    assert made.submit(one).result(30) is first
    assert made.submit(two).result(30) is not second


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES", 3 * module.BYTES_AT_LEAST)
    made = compiler()
    for number in range(10):
        made.submit(sources.from_regex(f"a{{{number + 1}}}")).result(30)
    assert len(made._cache) == 3
    assert made._held == sum(map(module.weight, made._cache))
    made.submit(sources.from_choice([f"{number:050}" for number in range(1000)])).result(30)
    assert len(made._cache) == 1, "one that is larger than the bound is kept alone"


def test_a_bad_one_is_refused_and_the_next_is_compiled() -> None:
    made = compiler()
    with pytest.raises(BadGrammar, match="unclosed"):
        made.submit(sources.from_regex("(")).result(30)
    assert not made.submit(sources.from_regex("a")).result(30).is_error()


def test_a_vocabulary_that_cannot_be_had_fails_each_grammar_by_its_reason() -> None:
    def fail():
        raise OSError("the file is gone")

    made = Compiler(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            made.submit(sources.from_regex("a")).result(30)


def test_who_gave_up_is_passed_over() -> None:
    gate, order = threading.Event(), []

    def vocabulary():
        gate.wait(30)
        return VOCABULARY

    made = Compiler(vocabulary)
    first = made.submit(sources.from_regex("a"))
    second, third = made.submit(sources.from_regex("b")), made.submit(sources.from_regex("c"))
    third.add_done_callback(lambda _: order.append("third"))
    assert second.cancel()
    gate.set()
    assert not first.result(30).is_error()
    assert not third.result(30).is_error()
    assert order == ["third"]
    assert sources.from_regex("b") not in made._cache


def test_other_threads_go_on_while_it_compiles() -> None:
    """The library drops the interpreter's lock: a step beside it is not held up."""
    schema = {
        "type": "object",
        "properties": {
            f"p{i}": {"type": "object", "properties": {f"q{j}": {"type": "string", "pattern": f"^[a-z]{{3,{j + 5}}}$"}
                      for j in range(20)}, "required": [f"q{j}" for j in range(20)]} for i in range(60)
        },
    }  # fmt: skip
    made = compiler()
    made.submit(sources.from_regex("a")).result(30)
    future = made.submit(sources.from_schema(schema))
    turns = 0
    while not future.done():
        time.sleep(0.001)
        turns += 1
    future.result(30)
    assert turns >= 3
