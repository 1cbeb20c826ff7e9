"""The tiny engine and a living node for every test here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tursiops.core import registry

from tests import factories
from tests.platform.fleet.tiny_engine import TinyEngine


@pytest.fixture(autouse=True)
def tiny() -> Iterator[None]:
    with registry.engines.register_temporarily("tiny", TinyEngine):
        yield


@pytest.fixture
def node(db):
    """24 GB free of 32."""
    return factories.make_node()


@pytest.fixture
def make_tiny(db):
    def make(team=None, **fields):
        revision = {"engine": "tiny", **fields.pop("revision", {})}
        return factories.make_deployment(team, revision=revision, **fields)

    return make
