"""What holds for every test. Fixtures live beside the tests that use them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A failure must come again when its commit is looked at. New examples: HYPOTHESIS_PROFILE=explore, as the nightly runs.
settings.register_profile("same", derandomize=True, print_blob=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Two torch threads that spin on a busy machine turn a step of 31 ms into more than a second: set before any import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402 - its threads read what is set above

# Triton decides when it is imported whether kernels are compiled or interpreted; without a GPU the tests interpret.
# Here, since any folder's test module may be the first that imports it.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from tests.background import Background  # noqa: E402 - after what is set above, like all that follows

BACKGROUND = pytest.StashKey[Background]()
ARTIFACTS = Path(__file__).resolve().parents[1] / "test-artifacts"


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Folder of what tests leave for people to look at: screenshots, tables. Not in git."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS


def pytest_collection_finish(session: pytest.Session) -> None:
    jobs = {}
    for item in session.items:
        if isinstance(item, pytest.Function) and (job := getattr(item.module, "BACKGROUND", {}).get(item.name)):
            jobs[item.nodeid] = job
    session.stash[BACKGROUND] = Background(jobs)
    if jobs and not session.config.option.collectonly and not hasattr(session.config, "workerinput"):
        session.stash[BACKGROUND].begin()  # a worker of xdist waits to see which of them it gets


def pytest_sessionfinish(session: pytest.Session) -> None:
    if background := session.stash.get(BACKGROUND, None):
        background.end()


@pytest.fixture
def from_background(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """What the test's job in its module's BACKGROUND gave, or raised: tests/background.py."""
    return lambda: request.session.stash[BACKGROUND].wait(request.node.nodeid)
