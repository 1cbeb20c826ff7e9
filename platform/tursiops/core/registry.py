"""Plugin points: named places with named items. The places are fixed here; the items are closed once Django is up.

Built-in items are registered by the apps' `ready()`, those of plugins by `core.plugins`; both before the start ends.
Afterwards every process holds the same items, so a name in a row means the same thing everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.apps import apps

from engines.api import Engine
from tursiops.core.errors import NotFound


class RegistryError(Exception):
    """A programming or packaging error at start: a name taken twice, an unknown point, a registration too late."""


@dataclass(frozen=True)
class Entry:
    item: Any
    origin: str  # module or plugin, "tursiops.registry", "plugin acme 1.2"


class Point:
    """One plugin point: name → item, with the origin of each."""

    def __init__(self, name: str, closed: Callable[[], bool] = lambda: apps.ready) -> None:
        self.name = name
        self._closed = closed
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, item: Any, *, origin: str) -> None:
        """Raises RegistryError if the start has ended, or if `name` is taken (both origins are named)."""
        if self._closed():
            raise RegistryError(f"{self.name} {name!r} from {origin}: the registry is closed once the start has ended")
        self._add(name, Entry(item, origin))

    @contextmanager
    def register_temporarily(self, name: str, item: Any, *, origin: str = "test") -> Iterator[None]:
        """For tests: an item that is there within the `with` block alone."""
        self._add(name, Entry(item, origin))
        try:
            yield
        finally:
            del self._entries[name]

    def get(self, name: str) -> Any:
        """Raises NotFound, with the names that exist."""
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound(
                f"There is no {self.name} {name!r}.", hint=f"Available: {', '.join(self.names()) or 'none'}."
            )
        return entry.item

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def origin(self, name: str) -> str:
        return self._entries[name].origin

    def _add(self, name: str, entry: Entry) -> None:
        taken = self._entries.get(name)
        if taken is not None:
            raise RegistryError(f"{self.name} {name!r} is registered twice: by {taken.origin} and by {entry.origin}")
        self._entries[name] = entry

    def discard_origin(self, origin: str) -> None:
        """Take back what a plugin registered before it failed."""
        self._entries = {name: entry for name, entry in self._entries.items() if entry.origin != origin}


class Points:
    """All plugin points of the platform. Reading an unknown one raises RegistryError."""

    def __init__(self, names: list[str], closed: Callable[[], bool] = lambda: apps.ready) -> None:
        self._points = {name: Point(name, closed) for name in names}

    def __getitem__(self, name: str) -> Point:
        try:
            return self._points[name]
        except KeyError:
            raise RegistryError(f"there is no plugin point {name!r}; points: {', '.join(self._points)}") from None

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points.values())


points = Points(["job_kinds", "model_sources", "engines", "optimizers"])
job_kinds = points["job_kinds"]  # jobs.kinds.JobKind
model_sources = points["model_sources"]  # plugins.api.ModelSource
optimizers = points["optimizers"]  # plugins.api.Optimizer
engines = points["engines"]  # functions without arguments that give an engines.api.Engine


def engine(name: str) -> Engine:
    """The engine of that name, built in, installed or of a plugin. Raises NotFound with the names that exist."""
    found: Engine = engines.get(name)()
    return found
