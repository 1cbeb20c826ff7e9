"""The settings of LaunchSpec.options that concern the API process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.native.config import SERVE_OPTIONS, check_option
from engines.native.request import Timeouts


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """See `SERVE_OPTIONS` for meanings and ranges."""

    max_queued: int
    queue_timeout_s: int
    first_token_timeout_s: int
    request_timeout_s: int
    drain_s: int
    stall_s: int
    max_body_bytes: int
    tool_parser: str
    reasoning_parser: str

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(self.queue_timeout_s, self.first_token_timeout_s, self.request_timeout_s)


def read_options(options: dict[str, Any]) -> ServeOptions:
    """Raises ConfigError naming the option. Other keys belong to the core, which checks them."""
    values = {name: options.get(name, option.default) for name, option in SERVE_OPTIONS.items()}
    for name, option in SERVE_OPTIONS.items():
        check_option(name, option, values[name])
    return ServeOptions(**values)
