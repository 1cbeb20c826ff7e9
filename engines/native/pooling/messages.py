"""What the API process and a pooling core say to each other, beside what every core says (`engines.native.ipc`)."""

from __future__ import annotations

import msgspec

from engines.native.request import Finish


class Pool(msgspec.Struct, tag=True, array_like=True):
    """n texts of one request. token_ids: int32 bytes, of one text after the other; lengths: int32 bytes [n]; seconds:
    int32 bytes [n], where each text's second segment begins, its length where it has none. Times in seconds from
    arrival, 0 = no limit."""

    id: int
    token_ids: bytes
    lengths: bytes
    seconds: bytes
    priority: int = 0
    queue_timeout: float = 0.0
    timeout: float = 0.0


class PoolEnd(msgspec.Struct, array_like=True):
    """How a request ended. vectors: float32 bytes [n, width], where it succeeded. code: of a time-out, its layer."""

    id: int
    finish: Finish
    vectors: bytes = b""
    message: str = ""
    code: str = ""


class PoolUpdate(msgspec.Struct, tag=True, array_like=True):
    """All that one pass brought. running: requests that were begun, waiting: those that were not."""

    started: list[int]
    ends: list[PoolEnd]
    running: int
    waiting: int
