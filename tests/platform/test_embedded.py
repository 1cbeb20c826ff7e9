"""The smaller tier on what a newcomer has: SQLite in a file. Key flows of the suite, run again in a process without
DATABASE_URL; a list, so that each part can add its own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests import background

ROOT = Path(__file__).parents[2]
FLOWS = [
    "tests/platform/core/test_events.py",
    "tests/platform/core/test_isolation.py",
    "tests/platform/core/test_home.py",
    "tests/platform/core/test_migrations.py",
    "tests/platform/core/test_store.py",
    "tests/platform/jobs/test_services.py",
    "tests/platform/jobs/test_worker.py::test_job_of_a_killed_worker_runs_once_more_and_its_children_are_gone",
    "tests/platform/registry/test_api.py",
]


SERVICES = ("REDIS_URL", "TEST_SERVICES_DIR")  # without these it starts a Valkey of its own, apart from the others


def flows() -> None:
    with tempfile.TemporaryDirectory(prefix="ts-embedded-") as folder:
        environment = {**dict.fromkeys(SERVICES), "DATABASE_URL": "", "TURSIOPS_DATA_DIR": f"{folder}/data"}
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *FLOWS]
        done = background.run(argv, env=environment, timeout=840)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert Path(folder, "data").exists(), "the flows ran in a data folder of their own"


BACKGROUND = {"test_key_flows_on_sqlite": flows}


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.timeout(1200)  # it may wait behind others
def test_key_flows_on_sqlite(from_background):
    from_background()
