"""The smaller tier on what a newcomer has: SQLite in a file. Key flows of the suite, run again in a process without
DATABASE_URL; a list, so that each part can add its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.embedded
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_key_flows_on_sqlite(tmp_path):
    environment = {**os.environ, "DATABASE_URL": "", "TURSIOPS_DATA_DIR": str(tmp_path / "data")}
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *FLOWS]
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert (tmp_path / "data").exists(), "the flows ran in a data folder of their own"
