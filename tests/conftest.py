"""What holds for every test. Fixtures live beside the tests that use them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A failure must come again when its commit is looked at. New examples: HYPOTHESIS_PROFILE=explore, as the nightly runs.
settings.register_profile("same", derandomize=True, print_blob=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Two torch threads that spin on a busy machine turn a step of 31 ms into more than a second: set before any import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ARTIFACTS = Path(__file__).resolve().parents[1] / "test-artifacts"


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Folder of what tests leave for people to look at: screenshots, tables. Not in git."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS
