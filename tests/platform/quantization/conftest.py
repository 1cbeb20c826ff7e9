from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tursiops.core import store
from tursiops.core.audit import Actor
from tursiops.core.registry import optimizers
from tursiops.jobs import run, runner
from tursiops.jobs import services as jobs
from tursiops.jobs.models import Job, JobState
from tursiops.quantization import devices, execute, schemes, services
from tursiops.quantization.asked import Asked, Calibration, Choice
from tursiops.quantization.models import Quantization
from tursiops.registry.models import Version

from tests import factories, tiny_models

DUMMY = Path(__file__).parents[2] / "dummy_plugin"
ALICE = Actor("alice")
TINY_SHAPE = {
    "architecture": "llama",
    "layers": 1,
    "hidden": 32,
    "ffn": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "vocab": 259,
    "context_length": 128,
    "parameters": 17_600,
    "tied_embeddings": True,
}


@pytest.fixture
def store_dir(settings, tmp_path) -> Path:
    settings.STORE_DIR = tmp_path / "store"
    return settings.STORE_DIR


@pytest.fixture
def base(team, store_dir, tmp_path) -> Version:
    """A tiny Llama in safetensors, as an import would have left it."""
    folder = tiny_models.write_safetensors(tmp_path / "tiny")
    files = {path.name: store.put_file(path) for path in folder.iterdir()}
    model = factories.make_model(team, name="tiny")
    return factories.make_version(
        model, files=files, format="safetensors", quantization="", shape=TINY_SHAPE, license="mit", size_bytes=72_000
    )


@pytest.fixture
def copies(monkeypatch) -> Iterator[None]:
    """The dummy plugin's optimizer, whose child copies the base's files and behaves as its recipe's `act` says."""
    monkeypatch.syspath_prepend(str(DUMMY))
    import dummy_plugin

    with optimizers.register_temporarily("copies", dummy_plugin.Copies()):
        yield
    sys.modules.pop("dummy_plugin", None)


@pytest.fixture
def measured(monkeypatch) -> dict[str, Any]:
    """What the engine's children would tell of base and version, without their torch: tests/engines/test_measure.py
    and the slow test here have the real ones."""
    told: dict[str, Any] = {
        "before": {"perplexity": 20.0, "memory_bytes": 1000, "decode_tokens_per_s": 10.0},
        "after": {
            "perplexity": 20.1,
            "perplexity_ratio": 1.005,
            "same_top": 0.97,
            "kl": 0.01,
            "memory_bytes": 500,
            "decode_tokens_per_s": 15.0,
        },
    }
    monkeypatch.setattr(execute, "_measured", lambda *args: (told["before"], told["after"]))
    return told


def asked(*choices: Choice, device: str = "cpu", tp: int = 1, **calibration: Any) -> Asked:
    return Asked(choices, devices.device(device), tp, Calibration(**calibration))


def choice(scheme: str, **fields: Any) -> Choice:
    return Choice(schemes.scheme(scheme), **fields)


@pytest.fixture
def started(base, copies) -> Callable[..., Quantization]:
    """`started(act)`: a queued job of the dummy optimizer."""

    def start(act: str = "", key: str | None = None, **fields: Any) -> Quantization:
        options = {"act": act} if act else {}
        wanted = asked(choice("copy", options=options, **fields))
        return services.quantize(base=base, actor=ALICE, asked=wanted, idempotency_key=key)[0]

    return start


def cancel_as_soon_as(monkeypatch: pytest.MonkeyPatch, ready: Callable[[Job], bool]) -> None:
    """Alice cancels the job that runs, when its child is looked after and `ready` says so."""
    real = run.JobRun.look_after

    def cancel_then_look(self) -> None:
        job = Job.objects.get(pk=self.job.pk)
        if job.state == JobState.RUNNING and ready(job):
            jobs.cancel_job(job=job, actor=ALICE)
        self._looked_at = 0.0
        real(self)

    monkeypatch.setattr(run.JobRun, "look_after", cancel_then_look)


def ran(row: Quantization) -> Job:
    """The row's job, after one attempt of a worker."""
    job: Job = row.job
    runner.run_job(job.pk)
    job.refresh_from_db()
    row.refresh_from_db()
    return job
