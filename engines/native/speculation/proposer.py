"""What a proposer is: it guesses the tokens that follow, from what was said or with a smaller model. A plugin: a class
under the entry point group `tursiops.engine_proposers`, called with ProposerSettings; option `speculation` names it.

    begin(row)     a request has got a row; its tokens stand in the history
    propose(rows)  → a tree for each; none is an answer, too
    observe(rows)  they have grown, whether by what was proposed or not
    end(row)       the request leaves its row: ended, or preempted (then it begins again in another)

`begin` is called while the prompt's pass is on its way; `observe` and then `propose` while the device waits. What can
be done later, a proposer may put off until `meanwhile()`, if it has such a method: called when a pass was launched.

A proposer never changes what is said: the model checks each guess. One that raises is left out from then on, and the
log says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from engines.native.config import ConfigError
from engines.native.speculation.names import BUILT_IN, GROUP, proposer_names
from engines.native.speculation.tree import Int32, Tree


@dataclass(frozen=True, slots=True)
class History:
    """The scheduler's columns, shared and read only. token_ids: int32 [rows, max length]; known: int32 [rows], how many
    of them are set: prompt and output."""

    token_ids: Int32
    known: Int32


@dataclass(frozen=True, slots=True)
class ProposerSettings:
    """history: of all rows. vocab: token ids of the model. identity: of model and tokenizer, for what is kept on disk.
    folder: where a proposer may keep files between starts; None = nowhere. trees: whether the engine can verify trees;
    else only the first chain of each is used. runner: of the target model, for proposers that compute with it (its
    class is `engines.native.runner.ModelRunner`); None in tests. draft: format and paths of a draft model's files.
    target: the same of the target model, whose tokenizer a draft model must share; None = it is not compared."""

    history: History
    vocab: int
    identity: str = ""
    folder: Path | None = None
    trees: bool = True
    runner: Any = None
    draft: tuple[str, dict[str, str]] | None = None
    target: tuple[str, dict[str, str]] | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Proposer(Protocol):
    """Two more members are of use where a proposer has them: `meanwhile()`, called while a pass is on its way, for work
    that it has put off; `tokens_behind`, of prompts that it computes in parts: while there are any it goes on being
    asked, and what that takes is not counted against it."""

    def begin(self, row: int, salt: str, prompt_len: int) -> None:
        """A request has `row`: history.token_ids[row, :known[row]] are its prompt (the first prompt_len) and what it
        has said. Only requests with an equal salt may learn from each other."""
        ...

    def propose(self, rows: Int32, limit: Int32) -> Sequence[Tree]:
        """rows: int32 [n]; limit: int32 [n], the most nodes that are of use to each (may be 0). Of each a tree."""
        ...

    def observe(self, rows: Int32, since: Int32) -> None:
        """rows: int32 [n] have grown: tokens since[i] … known[rows[i]] − 1 are new. The next `propose` follows them."""
        ...

    def end(self, row: int) -> None:
        """The request leaves `row`; its tokens are still in the history."""
        ...

    def stats(self) -> dict[str, float]:
        """Plain numbers for the metrics: sizes, bytes."""
        ...

    def close(self) -> None:
        """The engine stops: write what is kept."""
        ...


def make_proposer(name: str, settings: ProposerSettings) -> Proposer:
    """Raises ConfigError for a name that nothing has, with those there are, and what the proposer itself refuses."""
    return factory(name)(settings)


def factory(name: str) -> Callable[[ProposerSettings], Proposer]:
    """Raises ConfigError."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        try:
            return cast(Callable[[ProposerSettings], Proposer], getattr(importlib.import_module(module), attribute))
        except ImportError as error:
            raise ConfigError(f"speculation: the proposer {name!r} is not installed: {error}") from error
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        known = ", ".join(proposer_names())
        raise ConfigError(f"speculation names {name!r}; it can name {known}, or one that a plugin adds")
    if len(found) > 1:
        raise ConfigError(f"proposer {name!r} is in several packages: {', '.join(point.value for point in found)}")
    return cast(Callable[[ProposerSettings], Proposer], found[0].load())
