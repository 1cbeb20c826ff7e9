"""One instance with the scripted core for the tests that don't break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines import shared_instances
from tests.engines.instances import Running
from tests.engines.weights import smollm2

SCRIPTED = "tests.engines.scripted_instance"


@pytest.fixture(scope="session")
def instance() -> Iterator[Running]:
    """An engine that answers with its prompt; 5 ms a step."""
    running = Running(smollm2(), module=SCRIPTED, script={"step_s": 0.005}, options={"max_body_bytes": 100_000})
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def talker() -> Running:
    """An engine whose answer is the text of the messages; it knows tags of reasoning and of tool calls."""
    return shared_instances.talker()
