"""The usage record as it travels from a gateway to the database (contracts.md §4)."""

from __future__ import annotations

import msgspec

STREAM = "tursiops:usage"
FIELD = b"json"


class UsageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Ids are UUID strings; `request_id` is unique, so that a replay adds nothing."""

    request_id: str
    team: str
    api_key_id: str | None = None
    user_id: str | None = None
    deployment_id: str | None = None
    instance_id: str | None = None
    served_name: str
    path: str
    status: int
    finish_reason: str = ""
    error_code: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    started_at: float  # unix seconds
    queue_ms: float | None = None
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    retries: int = 0
    disconnected: bool = False


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(UsageEntry)


def encode(entry: UsageEntry) -> bytes:
    return _encoder.encode(entry)


def decode(data: bytes) -> UsageEntry:
    """Raises msgspec.DecodeError naming the field."""
    return _decoder.decode(data)
