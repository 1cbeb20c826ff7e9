"""Rows as lists show them, for events: read fresh, inside the change's transaction."""

from __future__ import annotations

import uuid
from typing import Any

from tursiops.registry import selectors
from tursiops.registry.serializers import ModelSerializer, VersionSerializer


def model_row(pk: uuid.UUID) -> dict[str, Any]:
    return dict(ModelSerializer(selectors.models().get(pk=pk)).data)


def version_row(pk: uuid.UUID) -> dict[str, Any]:
    return dict(VersionSerializer(selectors.versions().get(pk=pk)).data)
