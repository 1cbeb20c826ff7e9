from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from tursiops.core.audit import Actor
from tursiops.jobs import runner
from tursiops.jobs.models import Job
from tursiops.registry import services, sources

from tests import tiny_models
from tests.platform.registry import hub_server


@pytest.fixture
def store_dir(settings, tmp_path):
    settings.STORE_DIR = tmp_path / "store"
    return settings.STORE_DIR


IMPATIENT = """
import sys
from tursiops.registry.importer import __main__, download
download.BACKOFF_S /= 50
sys.exit(__main__.main())
"""


@pytest.fixture
def hub(settings, tmp_path, monkeypatch) -> Iterator[hub_server.Hub]:
    """A hub with one repository, acme/tiny, of a tiny Llama in safetensors, beside files that must not be taken. The
    importer goes on after a cut as ever, but 50 times sooner."""
    monkeypatch.setattr(sources.BuiltInSource, "command", lambda _: [sys.executable, "-c", IMPATIENT])
    folder = tiny_models.write_safetensors(tmp_path / "hub")
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    files |= {
        "pytorch_model.bin": b"pickle",
        "modeling_tiny.py": b"import os",
        "README.md": b"---\nlicense: mit\n---\n",
    }
    state = hub_server.Hub(files=files)
    server = hub_server.start(state)
    settings.HF_ENDPOINT = state.endpoint
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def imported(team, store_dir) -> Callable[..., Job]:
    """`imported(source, ref, …)`: queue an import and run it to its end, as a worker would."""

    def import_(source: str, ref: str = "", *, user=None, **fields) -> Job:
        actor = Actor("alice", user)
        job = services.import_model(team=team, actor=actor, source=source, ref=ref, **fields)
        return rerun(job)

    return import_


def rerun(job: Job) -> Job:
    runner.run_job(job.pk)
    job.refresh_from_db()
    return job
