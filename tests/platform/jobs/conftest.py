from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tursiops.core.registry import job_kinds
from tursiops.jobs.models import Job

from tests import factories

DUMMY = Path(__file__).parents[2] / "dummy_plugin"


@pytest.fixture
def make_act(monkeypatch, team) -> Callable[..., Job]:
    """`make_act(act, **spec)`: a queued job of the dummy plugin's kind dummy.act."""
    monkeypatch.syspath_prepend(str(DUMMY))
    import dummy_plugin

    def make(act: str, **spec) -> Job:
        return factories.make_job(team, kind="dummy.act", title="Act", spec={"act": act, **spec})

    with job_kinds.register_temporarily("dummy.act", dummy_plugin.ActJob()):
        yield make
    sys.modules.pop("dummy_plugin", None)
