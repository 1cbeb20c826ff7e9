"""What the parent and its sending processes say to each other: msgpack, four bytes of length before each."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from evaluation.schema import Endpoint, RequestRecord
from evaluation.workload.item import Planned


class Begin(Struct, tag=True, kw_only=True):
    """First of all. `slots`: of a closed loop, in this process; null in an open one."""

    endpoint: Endpoint
    address: tuple[str, int]
    api_key: str
    process: int
    level: int
    slots: int | None = None


class Start(Struct, tag=True):
    """The schedule's zero."""

    start_ns: int


class More(Struct, tag=True):
    planned: list[Planned]


class End(Struct, tag=True):
    """No more will be planned; end once all is done."""


class Halt(Struct, tag=True):
    """`cut`: in flight too; else only what is not sent yet."""

    cut: bool


class Ready(Struct, tag=True):
    """Loaded, and the address could be used."""


class Records(Struct, tag=True):
    records: list[RequestRecord]
    items: int  # finished since the last such message: requests, or whole sessions


class Vitals(Struct, tag=True, kw_only=True):
    """Of one process, at its end."""

    process: int
    wall_s: float
    cpu_s: float
    loop_lags_ms: list[float]
    chunks: int
    files_open: int
    files_limit: int


ToChild = Begin | Start | More | End | Halt
ToParent = Ready | Records | Vitals
_ENCODER = msgspec.msgpack.Encoder()
_TO_CHILD = msgspec.msgpack.Decoder(ToChild)
_TO_PARENT = msgspec.msgpack.Decoder(ToParent)


def pack(message: Any) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(4, "big") + body


async def read_for_child(reader: asyncio.StreamReader) -> ToChild:
    """Raises asyncio.IncompleteReadError once the other side has gone."""
    return _TO_CHILD.decode(await _body(reader))


async def read_for_parent(reader: asyncio.StreamReader) -> ToParent:
    """Raises asyncio.IncompleteReadError once the other side has gone."""
    return _TO_PARENT.decode(await _body(reader))


async def _body(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
