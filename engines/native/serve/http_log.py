"""What the HTTP library logs of bytes that are no HTTP: nothing. They come from scanners and broken clients, before any
token is looked at, and a traceback for each would let anybody fill the disk. The client is told 400."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError


class _NoNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


def quieten() -> None:
    """Once per process; more is as good."""
    logger = logging.getLogger("aiohttp.server")
    if not any(isinstance(one, _NoNoise) for one in logger.filters):
        logger.addFilter(_NoNoise())
