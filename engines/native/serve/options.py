"""The settings of LaunchSpec.options that concern the API process."""

from __future__ import annotations

from typing import Any

import msgspec


class ServeOptions(msgspec.Struct, frozen=True):
    """All have defaults. Other keys of `options` belong to the core."""

    max_queued: int = 1024  # requests that wait or run; more are refused with 503
    queue_timeout_s: float = 0.0  # a request that is not begun by then ends with 504; 0 = no limit
    request_timeout_s: float = 0.0  # a request that is not finished by then ends with 504; 0 = no limit
    drain_s: float = 30.0  # after SIGTERM, time for running requests to finish
    max_body_bytes: int = 16 * 1024 * 1024


def read_options(options: dict[str, Any]) -> ServeOptions:
    """Raises ValueError naming the option."""
    try:
        result = msgspec.convert(options, ServeOptions)
    except msgspec.ValidationError as error:
        raise ValueError(f"options: {error}") from error
    for name in ServeOptions.__struct_fields__:
        if getattr(result, name) < (0 if name.endswith("_s") else 1):
            raise ValueError(f"options: {name} is {getattr(result, name)}; it must not be negative, nor a size be 0")
    return result
