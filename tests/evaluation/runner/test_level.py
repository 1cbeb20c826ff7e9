"""What a level makes of its records, without a clock and a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from evaluation.client.pool import Sent
from evaluation.runner.level import Level, LevelPlan
from evaluation.runner.traffic import traffic
from evaluation.schema import Health
from evaluation.spec_errors import read_spec
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Planned
from evaluation.workload.tokens import EstimatedTokens
from tests.evaluation.records import record


async def nothing() -> AsyncIterator[Planned]:
    return
    yield


def spec(**changes):
    return read_spec(
        {
            "endpoint": {"url": "http://127.0.0.1:9"},
            "dataset": {"kind": "synthetic"},
            "load": {"kind": "concurrency", "concurrency": 1},
            "min_requests": 100,
            "steady": {"min_s": 1, "max_s": 60},
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons"),
    [
        ({}, "steady", []),
        ({"steady": {"min_s": 20, "max_s": 60}}, "undetermined", ["data_ended"]),
        ({"min_requests": 1000}, "undetermined", ["data_ended"]),
    ],
)
def test_a_data_set_that_ends_leaves_the_rules_of_the_window_as_they_are(changes, verdict, reasons):
    plan = LevelPlan(index=0, rate=None, planned=nothing(), warm_up_s=0, concurrency=1)
    level = Level(plan, spec(**changes), [], progress=lambda share, text: None)
    for number in range(400):
        level._take(record(number * 10, ttft=8, index=number))
    found = level._result(Sent(start_ns=0, end_ns=4_000_000_000, records=400, health=Health()))
    assert (found.verdict, found.reasons) == (verdict, reasons)


async def test_a_data_set_that_is_used_up_is_told(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    asked = spec(dataset={"kind": "jsonl", "path": str(path)})
    sent = await traffic(asked, EstimatedTokens(), rate=None, index=0, seed=1, first=0)
    assert len(sent.built.items) == 2
    with pytest.raises(DatasetError, match="no more distinct prompts: 2 are used up before level 2"):
        await traffic(asked, EstimatedTokens(), rate=None, index=1, seed=1, first=2)
