"""The log of an engine, from its run folder: the last 64 KB first, then what has come since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from engines.api import RunDir
from tursiops.core.errors import Unavailable
from tursiops.deployments.models import Instance, InstanceState

TAIL = 64 * 1024  # bytes
_OVER = {InstanceState.STOPPED, InstanceState.FAILED}


@dataclass(frozen=True)
class LogPage:
    text: str
    next: int  # byte offset to ask for next
    ended: bool  # nothing more will come while the instance stays as it is


def read(instance: Instance, after: int | None) -> LogPage:
    """At most 64 KB from byte `after`; from the tail where None, or where the file was emptied since."""
    if instance.node is not None and instance.node.name != settings.NODE_NAME:
        raise Unavailable(
            f"The log lies on node {instance.node.name}, which this web process does not share a disk with.",
            hint=f"Read run/instances/{instance.pk}/engine.log in the data folder of that node.",
        )
    ended = instance.state in _OVER
    try:
        with RunDir(Path(settings.RUN_DIR) / "instances" / str(instance.pk)).log_path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(0, size - TAIL) if after is None or after > size else after
            file.seek(begin)
            data = file.read(TAIL)
    except FileNotFoundError:
        return LogPage("", 0, ended)
    if after is None and begin:
        cut = data.find(b"\n") + 1  # begin with a whole line
        data, begin = data[cut:], begin + cut
    whole = _without_split_character(data)
    return LogPage(whole.decode("utf-8", "replace"), begin + len(whole), ended and begin + len(whole) >= size)


def _without_split_character(data: bytes) -> bytes:
    """`data` without a UTF-8 character at its end of which bytes are still to come."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if back >= length else data[:-back]
    return data
