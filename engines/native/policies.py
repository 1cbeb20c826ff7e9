"""In which order one tenant's waiting requests are taken. A policy is a plugin: a class under the entry point group
`tursiops.engine_policies`, called with PolicySettings; the option `policy` names it.

A policy orders; it never holds anything back. Classes, tenants and resumed requests come before it (`waiting`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, cast

from engines.native.config import ConfigError, EngineConfig
from engines.native.request import Request

GROUP = "tursiops.engine_policies"


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The options that policies read. window_s: how much later a request may have come and still overtake."""

    window_s: float = 0.05


class Policy(Protocol):
    def key(self, request: Request) -> tuple[float, ...]:
        """The least comes first, equals by arrival. Asked once when the request is queued (`arrived`, `token_ids` and
        `params` are set), so it may not depend on anything that changes; and no request may wait for ever: whoever
        comes late enough must have a greater key."""
        ...


class FirstCome:
    """By arrival."""

    def __init__(self, settings: PolicySettings = PolicySettings()) -> None:
        """It has no settings."""

    def key(self, request: Request) -> tuple[float, ...]:
        return ()


class LengthWindow:
    """Short prompts together. Time is cut into windows of `window_s`; requests that came in one window are taken by
    length of prompt, in buckets of powers of two, and windows follow each other. A request is overtaken by those of its
    own window only, so it waits at most for what came up to `window_s` after it."""

    def __init__(self, settings: PolicySettings = PolicySettings()) -> None:
        self._window_s = settings.window_s

    def key(self, request: Request) -> tuple[float, ...]:
        return (request.arrived // self._window_s, len(request.token_ids).bit_length())


_BUILT_IN: dict[str, Callable[[PolicySettings], Policy]] = {"fcfs": FirstCome, "length_window": LengthWindow}


def policy_of(config: EngineConfig) -> Policy:
    """Raises ConfigError."""
    return make_policy(config.policy, PolicySettings(window_s=config.policy_window_ms / 1000))


def make_policy(name: str, settings: PolicySettings) -> Policy:
    """Raises ConfigError for a name that nothing has, with those there are, and for one that two packages have."""
    if name in _BUILT_IN:
        return _BUILT_IN[name](settings)
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        names = sorted({*_BUILT_IN, *(point.name for point in entry_points(group=GROUP))})
        raise ConfigError(f"policy is {name!r}; it can be {', '.join(names)}, or one that a plugin adds to {GROUP}")
    if len(found) > 1:
        raise ConfigError(f"policy {name!r} is in several packages: {', '.join(point.value for point in found)}")
    return cast(Policy, found[0].load()(settings))
