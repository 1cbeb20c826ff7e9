"""`python -m tursiops.gateway`: one gateway process."""

from __future__ import annotations

import contextlib
import gc
import logging
import resource
import sys

import structlog
import uvicorn

from tursiops.gateway.app import Gateway
from tursiops.gateway.config import from_settings
from tursiops.settings.env import SettingsError

OPEN_FILES = 65_536


def main() -> int:
    try:
        config = from_settings()
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    configure_logging(config.log_format)
    allow_files(OPEN_FILES)
    gc.freeze()  # what is imported lives for ever: the collector need not look at it again
    gc.set_threshold(20_000, 20, 50)  # 100 requests at once make 70,000 objects and no garbage: it took 5 % of the CPU
    structlog.get_logger().info("gateway.start", host=config.host, port=config.port, web=config.web_socket)
    uvicorn.run(
        Gateway(config),
        host=config.host,
        port=config.port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(config.drain_timeout),
        ws_max_size=4 * 2**20,
        forwarded_allow_ips="127.0.0.1",  # a TLS proxy on this host is believed, nobody else
    )
    return 0


def allow_files(wanted: int) -> None:
    """Raise this process's limit of open files to `wanted`, as far as it may. A stream takes two sockets: the usual
    limit of 1,024 would shut the door at 500 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def configure_logging(log_format: str) -> None:
    """Events with names and fields on stderr; JSON lines or for people's eyes."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    sys.exit(main())
