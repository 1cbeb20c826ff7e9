"""A run's child without a load test: it writes the result that a test asks for. tests/platform/evaluations/
test_children.py has the real one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tursiops.core.audit import Actor
from tursiops.deployments.models import InstanceState
from tursiops.evaluations import access, execute, runs
from tursiops.evaluations.models import Run, Suite
from tursiops.evaluations.targets import Target
from tursiops.jobs import runner

from evaluation.schema import LevelResult, ResultDoc, Summary, encode
from tests import factories

CHILD = """
import json, os, pathlib, sys, time
folder, result, act = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
print(json.dumps({"type": "metric", "name": "e2el_ms", "value": 1.5, "step": 3}), flush=True)
print(json.dumps({"type": "progress", "value": 0.5, "text": os.environ.get("EVALUATION_API_KEY", "no key")[:3]}))
sys.stdout.flush()
(folder / "result.json").write_text(result)
(folder / "report.html").write_text("<html>")
while act == "hang":
    time.sleep(0.05)
if act == "fail":
    print(json.dumps({"type": "error", "code": "endpoint_down", "message": "nobody answers", "hint": "Look."}))
else:
    print(json.dumps({"type": "report", "verdict": "ok", "data": {}}))
"""


def document(p95: float = 800.0, verdict: str = "pass", state: str = "complete") -> ResultDoc:
    summary = Summary(unit="ms", n=1000, p95=p95, bounds={"p95": (p95 - 5, p95 + 5)})
    level = LevelResult(index=0, rate=2.0, verdict="steady", metrics={"e2el": summary})
    return ResultDoc(id="1", kind="load", state=state, levels=[level], verdict=verdict)


class Children:
    """What the next children write and do; `seen` holds the spec of each that was started."""

    def __init__(self) -> None:
        self.document = document()
        self.act = "end"
        self.seen: list[dict[str, Any]] = []
        self.resumed = 0

    def command(self, part: str, spec: dict[str, Any], folder: Path) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        self.resumed += (folder / "result.json").exists()
        self.seen.append(spec)
        return [sys.executable, "-c", CHILD, str(folder), encode(self.document).decode(), self.act]


@pytest.fixture
def children(monkeypatch, settings, tmp_path) -> Children:
    settings.DATA_DIR, settings.STORE_DIR = tmp_path / "data", tmp_path / "store"
    found = Children()
    monkeypatch.setattr(execute, "command", found.command)
    monkeypatch.setattr(access, "models", lambda url, secret: (200, _served()))
    return found


def _served() -> list[str]:
    from tursiops.deployments.models import Deployment

    return list(Deployment.objects.values_list("name", flat=True))


@pytest.fixture
def serving(team):
    """A deployment of the team with an instance that is ready."""
    deployment = factories.make_deployment(team)
    factories.make_instance(deployment, state=InstanceState.READY, node=factories.make_node())
    return deployment


@pytest.fixture
def suite(team) -> Suite:
    return factories.make_suite(team)


@pytest.fixture
def started(member, suite, serving) -> Callable[..., Run]:
    """`started(suite=…, deployment=…)`: a run as `member` asks for it."""

    def start(**fields: Any) -> Run:
        target = Target(fields.pop("deployment", serving))
        actor = Actor(member.username, member)
        return runs.create_run(suite=fields.pop("suite", suite), target=target, actor=actor, **fields)

    return start


def worked(run: Run) -> Run:
    """Its job run to the end, as a worker would."""
    runner.run_job(run.job_id)
    return Run.objects.get(pk=run.pk)


def event_kinds(team: Any) -> list[str]:
    from tursiops.core.models import Event

    return [event.kind for event in Event.objects.filter(team=team)]
