"""The gateway's configuration: the environment's part from the settings table, and its own bounds as constants."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tursiops.settings import base


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes. Made once at start, never changed."""

    host: str
    port: int
    web_socket: str
    redis_url: str
    run_dir: Path
    log_format: str = "console"

    body_limit: int = 8 * 2**20  # /v1 request bodies
    answer_limit: int = 32 * 2**20  # answers that are not streamed are held whole, so that they can be retried
    event_limit: int = 4 * 2**20  # one SSE event of an engine

    connect_timeout: float = 3.0
    first_event_timeout: float = 600.0  # a long prompt on a CPU takes minutes
    idle_timeout: float = 120.0  # between two pieces of a running answer
    client_timeout: float = 60.0  # a client that takes, or of its body sends, nothing for so long is given up
    ping_every: float = 15.0  # comments while a streaming client waits for its first event
    drain_timeout: float = 30.0  # running answers may finish after SIGTERM

    attempts: int = 3  # first try included
    backoff: float = 0.05  # doubles with each retry, jittered
    retry_share: float = 0.1  # of the requests of late; more would multiply an outage
    cooldown: float = 2.0  # an instance that failed is the last choice for so long

    per_instance: int = 256  # requests in flight on one instance; more wait here
    queue_length: int = 512  # waiting requests per deployment
    queue_deadline: float = 30.0

    snapshot_poll: float = 2.0  # besides the channel's notice; a revoked key is refused within 5 s
    snapshot_warn_age: float = 30.0
    snapshot_max_age: float = 24 * 3600.0  # then /v1 refuses: revocations would go unseen for too long

    usage_buffer: int = 10_000  # records in memory
    usage_stream_limit: int = 200_000  # records in Redis before they go to disk
    usage_spill_limit: int = 256 * 2**20


def from_settings() -> Config:
    """Raises SettingsError for a variable that can't be used."""
    return Config(
        host=base.GATEWAY_HOST,
        port=base.GATEWAY_PORT,
        web_socket=base.WEB_SOCKET,
        redis_url=base.REDIS_URL,
        run_dir=base.RUN_DIR,
        log_format=base.LOG_FORMAT,
    )
