"""What a plugin is: a Python package with an entry point in the group `tursiops.plugins` that names a `Plugin`.

    [project.entry-points."tursiops.plugins"]
    acme = "acme_tursiops:plugin"

    plugin = Plugin(
        name="acme",
        version="1.2.0",
        api=(1, 1),
        contributes={"model_sources": {"s3": "acme_tursiops.s3:S3Source"}},
    )

Contributions are named by import path and imported at the start, so that a package that can't be imported is
listed as failed, with its traceback, and stops nothing. Work is done by child processes that speak
`engines.protocol`; what is registered here only says which command to run, and must import nothing heavy.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol

API_VERSION = 1
"""Rises when this module changes in a way that old plugins can't follow."""

POINTS = ("job_kinds", "model_sources", "engines")
"""What a plugin may contribute: JobKind, ModelSource (below), engines.api.Engine."""


class PluginError(Exception):
    """A manifest or a setting that can't be used; the sentence names it."""


@dataclass(frozen=True)
class Plugin:
    """The manifest. `api` is the lowest and highest API_VERSION that it works with."""

    name: str
    version: str
    api: tuple[int, int]
    contributes: dict[str, dict[str, str]]  # point → {name: "module:attribute"}; the attribute is a class or function
    label: str = ""
    settings_schema: dict[str, Any] = field(default_factory=dict)  # JSON Schema; its form in the console comes from it
    default_settings: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises PluginError where this release can't load the plugin."""
        low, high = self.api
        if not low <= API_VERSION <= high:
            raise PluginError(
                f"{self.name} {self.version} needs plugin API {low} to {high}; this release has {API_VERSION}"
            )
        unknown = sorted(set(self.contributes) - set(POINTS))
        if unknown:
            raise PluginError(f"{self.name} contributes to {', '.join(unknown)}; plugin points are {', '.join(POINTS)}")


class JobKind(Protocol):
    """Long work that runs as one child process. The spec is checked against `spec_schema` before it is queued."""

    label: str

    def spec_schema(self) -> dict[str, Any]:
        """JSON Schema of the job's spec."""
        ...

    def command(self) -> list[str]:
        """argv of a child that speaks engines.protocol; it gets {"spec": …, "workdir": path} on stdin."""
        ...


class ModelSource(Protocol):
    """A place that models come from."""

    label: str
    ref_help: str  # what `ref` is, in a few words: shown beside the input

    def command(self) -> list[str]:
        """argv of a child that speaks engines.protocol. It gets {"ref", "revision", "staging": folder} on stdin,
        puts files into `staging` and reports {"files": [{"name", "sha256", "size"}], "revision", "license"}."""
        ...


def load(path: str) -> Any:
    """The object at "module:attribute", called without arguments if it is a class or function.

    Raises ImportError, AttributeError, or PluginError if `path` has no colon.
    """
    module, colon, attribute = path.partition(":")
    if not colon:
        raise PluginError(f"{path!r} must be written as module:attribute")
    found = getattr(importlib.import_module(module), attribute)
    return found() if callable(found) else found
