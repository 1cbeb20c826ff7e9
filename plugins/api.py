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
from typing import Any, Protocol, runtime_checkable

API_VERSION = 1
"""Rises when this module changes in a way that old plugins can't follow. A new point is no such change: a plugin that
contributes to a point which a release doesn't have is refused by the point's name."""

POINTS = ("job_kinds", "model_sources", "engines", "optimizers")
"""What a plugin may contribute: JobKind, ModelSource, Optimizer (below), engines.api.Engine."""

BUILT_IN = {"quantization": "plugins.quantization:plugin"}
"""Name → manifest of those that ship with Tursiops: they need no entry point, so an installation whose metadata is
older than its files has them too."""


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


class Optimizer(Protocol):
    """Makes another version of a model, smaller or faster. A job of it is one child process, as of a JobKind."""

    label: str

    def schemes(self) -> list[dict[str, Any]]:
        """What it can make of a model, for people and for planning; each an object of

        name, label, explanation (a sentence or two); weights, activations, kv, embedding: how each is kept, in words;
        needs_data: whether the child wants calibration rows; hardware: {"cpu" | "sm80" …: {"state": "supported" |
        "slow" | "unsupported", "reason"}}; gates: [{"up_to_parameters" (null: any), "perplexity_ratio" (at most),
        "task_recovery" (at least, 0…1)}], the first that the model fits into counts; size_factor: bytes of the
        quantized matrices for one in 16 bits; best_for: which workload it is chosen for.
        """
        ...

    def spec_schema(self) -> dict[str, Any]:
        """JSON Schema of a recipe, which is what a person chooses: the scheme and its options."""
        ...

    def problems(self, recipe: dict[str, Any], model: dict[str, Any], tensor_parallel: int) -> list[dict[str, str]]:
        """Why `recipe` can't be made of a model, found before anything is started; [] if it can.

        model: the numbers of engines.api.ModelShape. tensor_parallel: ranks that will serve it. Each problem is
        {"field", "reason", "hint"}.
        """
        ...

    def command(self) -> list[str]:
        """argv of a child that speaks engines.protocol. On stdin it gets {"recipe", "paths": {file name: path},
        "format", "calibration": path of a JSONL or text file ("" = what the optimizer ships), "workdir": folder that a
        later attempt finds again, "staging": folder for the new version's files}; it reports {"files": [{"name",
        "sha256", "size"}], "format", …}. Files lie in `staging` only when all are whole. "rules", if it judges its work
        itself: [{"metric", "value", "limit", "better": "lower" | "higher", "passed"}]; one that is not passed rejects
        the version, and the report's verdict is "failed"."""
        ...


@runtime_checkable
class TellsNeeds(Protocol):
    """What an optimizer may answer besides, where a recipe's options decide it and not the scheme alone."""

    def needs_data(self, recipe: dict[str, Any]) -> bool:
        """Whether the child wants calibration rows for `recipe`. Of one that it refuses: as the scheme says."""
        ...


@runtime_checkable
class BringsTexts(Protocol):
    """An optimizer with calibration texts of its own, which are taken where none are given."""

    def texts_bytes(self) -> int:
        """Of all of them: how many rows can be cut of them is told before a job starts."""
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
