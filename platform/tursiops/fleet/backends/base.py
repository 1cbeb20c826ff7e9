"""What a node must be able to do with engines, whatever they run in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from engines.api import LaunchSpec, Local, Phase


@dataclass(frozen=True)
class Observation:
    """One look at an instance's engine: facts of the operating system first, then what the engine says of itself."""

    instance_id: str
    alive: bool = False  # a process that is provably ours: pid and start time (a bare pid is never trusted)
    epoch: int = 0  # of the last start in the run folder
    pid: int = 0
    pid_start_time: float = 0.0
    exit_code: int | None = None  # known for children of this node process only
    phase: Phase | None = None
    progress: float = 0.0
    reason: str = ""
    error_code: str = ""
    host: str = ""
    port: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    healthy: bool | None = None  # answer of /health; None: not asked
    proven: bool = False  # it knows the token of this start
    silent_s: float = 0.0  # since it last answered /health, while it says of itself that it is ready
    last_words: str = ""  # last line of its log


class Backend(Protocol):
    def runs(self) -> list[str]:
        """Ids of the instances that have left something here, running or not."""
        ...

    def observe(self, instance_id: str) -> Observation: ...

    def start(self, spec: LaunchSpec, local: Local) -> None:
        """Raises LaunchError with a sentence for people."""
        ...

    def terminate(self, instance_id: str) -> None:
        """Ask for a drain. Nothing happens to an instance that is not alive."""
        ...

    def kill(self, instance_id: str) -> None:
        """End all processes of an instance now."""
        ...

    def forget(self, instance_id: str) -> None:
        """Remove what an ended instance left."""
        ...


class LaunchError(Exception):
    """An engine could not be started."""
