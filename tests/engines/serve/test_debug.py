"""/debug of a real instance with a tiny model: traces while it serves, where its memory is, and who may ask."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from typing import Any

import httpx2 as httpx
import pytest

from engines.native.ipc import MemoryAsked, MemoryFound, ToCore, Trace, Traced
from engines.native.serve.errors import ApiError
from engines.native.serve.questions import Questions
from engines.native.serve.step_times import StepTimes
from engines.native.step_clock import PHASES
from tests.engines import shared_instances
from tests.engines.instances import NAME, Running
from tests.engines.traffic import traffic


@pytest.fixture(scope="module")
def tiny() -> Running:
    return shared_instances.tiny()


def refused(response: httpx.Response) -> tuple[int, str | None, str | None]:
    error = response.json()["error"]
    return response.status_code, error["param"], error["code"]


@pytest.mark.slow
def test_a_trace_holds_the_steps_that_were_asked_and_the_engine_serves_on(tiny: Running) -> None:
    asked = {"prompt": [5, 9, 60], "max_tokens": 6, "temperature": 0}
    before = tiny.complete(**asked)["choices"][0]["text"]
    with traffic(tiny, prompt=[5, 9, 60, 3], max_tokens=20, ignore_eos=True, n=4) as statuses:
        answer = tiny.post("/debug/trace", {"steps": 5})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-tursiops-steps"] == "5"
    assert answer.headers["content-disposition"] == f'attachment; filename="trace-{NAME}.json.gz"'
    events = json.loads(gzip.decompress(answer.content))["traceEvents"]
    counts = Counter(event.get("name") for event in events)
    assert [counts[phase] for phase in PHASES] == [5] * len(PHASES)
    launches = [event for event in events if event.get("name") == "launch"]
    products = [event for event in events if "linear" in str(event.get("name"))]
    inside = [p for p in products if any(a["ts"] <= p["ts"] <= a["ts"] + a["dur"] for a in launches)]
    assert len(inside) == len(products) >= 5  # on a CPU a step is computed where it is launched
    assert set(statuses) == {200}
    assert tiny.complete(**asked)["choices"][0]["text"] == before


@pytest.mark.slow
def test_one_trace_at_a_time_and_none_of_an_idle_engine(tiny: Running) -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {tiny.token}"}, timeout=30) as other:

        async def both() -> list[httpx.Response]:
            url = tiny.url + "/debug/trace"
            return await asyncio.gather(
                *(asyncio.to_thread(client.post, url, json={"timeout": 0.5}) for client in (tiny.client, other))
            )

        answers = [refused(answer) for answer in asyncio.run(both())]
    assert sorted(answers, key=str) == [(409, None, "already_running"), (409, None, "no_steps")]


@pytest.mark.slow
def test_memory_adds_up_and_is_what_was_planned(tiny: Running) -> None:
    found = tiny.client.get(tiny.url + "/debug/memory").json()
    parts = {part["part"]: part for part in found["parts"]}
    assert set(parts) == {"weights", "kv_cache", "tables", "swap", "other"}
    assert found["total"] == sum(part["bytes"] for part in found["parts"])
    assert parts["kv_cache"]["bytes"] == parts["kv_cache"]["planned"] > 0
    assert parts["weights"]["measured"]
    assert parts["weights"]["bytes"] >= parts["weights"]["planned"]
    assert found["gpu"] is None
    assert found["process"]["core_resident"] == found["total"]
    assert found["process"]["api_resident"] > 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"steps": 0}, "steps", "invalid_value"),
        ({"steps": 201}, "steps", "invalid_value"),
        ({"steps": "5"}, "steps", "invalid_type"),
        ({"timeout": 1e9}, "timeout", "invalid_value"),
        ({"step": 5}, "step", "unknown_field"),
    ],
)
def test_wrong_questions_are_refused_by_name(tiny: Running, body: dict[str, Any], param: str, code: str) -> None:
    assert refused(tiny.post("/debug/trace", body)) == (400, param, code)


@pytest.mark.slow
def test_a_snapshot_needs_a_gpu_and_all_of_it_the_token(tiny: Running) -> None:
    answer = tiny.post("/debug/memory/snapshot", {})
    assert refused(answer) == (400, None, "no_gpu")
    assert "GET /debug/memory" in answer.json()["error"]["message"]
    for method, path in (("POST", "/debug/trace"), ("GET", "/debug/memory"), ("POST", "/debug/memory/snapshot")):
        assert httpx.request(method, tiny.url + path).status_code == 401


@pytest.mark.slow
def test_each_phase_counts_each_step(tiny: Running) -> None:
    steps = tiny.metric('step_phase_seconds_count{phase="launch"}')
    tiny.complete(prompt=[5, 9, 60], max_tokens=6, ignore_eos=True)
    for phase in (*PHASES, "deliver", "detokenize"):
        assert tiny.metric(f'step_phase_seconds_count{{phase="{phase}"}}') == steps + 6
    assert tiny.metric('step_phase_seconds_sum{phase="launch"}') > tiny.metric(
        'step_phase_seconds_sum{phase="schedule"}'
    )


def test_step_times_are_a_histogram() -> None:
    times = StepTimes("t")
    times.detokenizing = 3e-5
    times.step((2e-5, 0.03, 0.0, 20.0, 1e-5), 0.0)
    times.step((2e-5, 0.04, 0.0, 0.0, 0.0), 0.0)
    (family,) = times.collect()
    values = {(s.name, s.labels["phase"], s.labels.get("le")): s.value for s in family.samples}
    assert values["t_sum", "launch", None] == pytest.approx(0.07)
    assert [values["t_bucket", "launch", le] for le in ("0.025", "0.05", "+Inf")] == [0, 2, 2]
    assert [values["t_bucket", "commit", le] for le in ("10.0", "+Inf")] == [1, 2]
    assert values["t_sum", "detokenize", None] == pytest.approx(3e-5)
    assert values["t_count", "detokenize", None] == 2


async def test_a_question_is_closed_by_its_answer_the_cores_end_or_time() -> None:
    sent: list[ToCore] = []
    questions = Questions(sent.append)
    trace = Trace("timeline", 1, 1.0, "f")
    first = asyncio.create_task(questions.trace(trace, 5))
    memory = asyncio.create_task(questions.memory(5))
    await asyncio.sleep(0)
    assert sent == [trace, MemoryAsked()]
    with pytest.raises(ApiError, match="another trace runs"):
        await questions.trace(trace, 5)
    questions.answer(Traced(1))
    assert await first == Traced(1)
    questions.lost("the core was killed")
    with pytest.raises(ApiError, match="the core was killed"):
        await memory
    with pytest.raises(ApiError, match=r"did not answer within 0\.01 s"):
        await questions.trace(trace, 0.01)
    questions.answer(MemoryFound({}))  # of one that left: nobody waits
    assert len(sent) == 3
