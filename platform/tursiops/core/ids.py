"""Public ids: UUIDv7, so that ids sort by time and are safe to show."""

from __future__ import annotations

import uuid

import uuid_utils


def uuid7() -> uuid.UUID:
    return uuid.UUID(int=uuid_utils.uuid7().int)
