"""BFCL rows: read, asked, scored."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evaluation.quality.bfcl import Result, Row, judge, read_results, read_rows, report, run
from evaluation.quality.bfcl_score import fault, tool

FUNCTION: dict[str, Any] = {
    "name": "geo.area",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "float"},
            "count": {"type": "integer"},
            "unit": {"type": "string"},
            "points": {"type": "array", "items": {"type": "tuple"}},
            "deep": {"type": "dict", "properties": {}},
            "exact": {"type": "boolean"},
        },
        "required": ["base"],
    },
}
OPTIONAL: dict[str, Any] = {"count": [3, ""], "unit": ["sq. m", ""], "points": [[[1, 2]], ""], "exact": [True, ""]}
ANSWER: dict[str, Any] = {
    "geo.area": {"base": [2.0], **OPTIONAL, "deep": [{"a": [1, 2], "b": ["x", ""]}, ""]},
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": 2.0},
        {"base": 2},
        {"base": 2.0, "unit": "SQ M", "count": 3, "points": [[1, 2]], "exact": True},
        {"base": 2.0, "deep": {"a": 2}},
        {"base": 2.0, "deep": {"a": 1, "b": "X"}},
    ],
)
def test_right(arguments: dict[str, Any]) -> None:
    assert fault([("geo.area", arguments)], [FUNCTION], [ANSWER]) == ""


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("geo.volume", {"base": 2.0}, "instead of geo.area"),
        ("geo.area", {}, "base is missing"),
        ("geo.area", {"base": 3.0}, "not one of"),
        ("geo.area", {"base": "2"}, "another type"),
        ("geo.area", {"base": True}, "another type"),
        ("geo.area", {"base": 2.0, "count": True}, "another type"),
        ("geo.area", {"base": 2.0, "count": 3.5}, "another type"),
        ("geo.area", {"base": 2.0, "exact": 1}, "another type"),
        ("geo.area", {"base": 2.0, "height": 1}, "no parameter"),
        ("geo.area", {"base": 2.0, "points": [[2, 1]]}, "not one of"),
        ("geo.area", {"base": 2.0, "deep": {"b": "x"}}, "not one of"),
        ("geo.area", {"base": 2.0, "deep": {"a": 1, "c": 1}}, "not one of"),
    ],
)
def test_wrong(name: str, arguments: dict[str, Any], why: str) -> None:
    assert why in fault([(name, arguments)], [FUNCTION], [ANSWER])


def test_a_parameter_that_may_not_be_left_out() -> None:
    answer = {"geo.area": {**ANSWER["geo.area"], "unit": ["m"]}}
    assert "unit is missing" in fault([("geo.area", {"base": 2.0})], [FUNCTION], [answer])


def test_parallel_calls_in_any_order_and_each_once() -> None:
    other = {"geo.area": {**ANSWER["geo.area"], "base": [5]}}
    two, five = ("geo.area", {"base": 2}), ("geo.area", {"base": 5})
    assert fault([five, two], [FUNCTION], [ANSWER, other]) == ""
    assert fault([two, two], [FUNCTION], [ANSWER, other])
    assert "1 calls instead of 2" in fault([two], [FUNCTION], [ANSWER, other])


def test_types_are_json_schemas() -> None:
    parameters = tool(FUNCTION)["function"]["parameters"]
    assert parameters["type"] == "object"
    kinds = {name: schema["type"] for name, schema in parameters["properties"].items()}
    assert kinds["base"] == "number"
    assert parameters["properties"]["points"]["items"]["type"] == "array"
    assert "type" not in tool({"name": "f", "parameters": {"x": {"type": "any"}}})["function"]["parameters"]["x"]


def answered(*calls: tuple[str, str]) -> dict[str, Any]:
    made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"message": {"content": None, "tool_calls": made or None}, "finish_reason": "tool_calls"}


def test_judged_and_reported() -> None:
    row = Row("simple_python_0", "simple_python", [], [FUNCTION], [ANSWER])
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    results = [
        judge(row, answered(*calls), usage)
        for calls in ([("geo.area", '{"base": 2}')], [("geo.area", '{"base": 9}')], [("geo.area", '{"base')], [])
    ]
    assert [(bool(each.fault), each.parsed) for each in results] == [
        (False, True),
        (True, True),
        (True, False),
        (True, False),
    ]
    assert "| all | 4 | 2 (50.0%) | 1 (25.0%) | 28 |" in report(results, 1.0)


def test_rows_are_taken_evenly(tmp_path: Path) -> None:
    (tmp_path / "possible_answer").mkdir()
    for category in ("simple_python", "multiple"):
        rows = [
            {"id": f"{category}_{i}", "question": [[{"role": "user", "content": "x"}]], "function": []}
            for i in range(9)
        ]
        answers = [{"id": row["id"], "ground_truth": [i]} for i, row in enumerate(rows)]
        for folder, lines in ((tmp_path, rows), (tmp_path / "possible_answer", answers)):
            (folder / f"BFCL_v4_{category}.json").write_text("\n".join(map(json.dumps, lines)))
    read = read_rows(tmp_path, ["simple_python", "multiple"], 5)
    assert [row.id for row in read] == [
        "simple_python_0",
        "multiple_0",
        "simple_python_1",
        "multiple_1",
        "simple_python_2",
    ]
    assert read[2].possible == [1]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert read_results(path) == []
    row = Row("multiple_0", "multiple", [], [FUNCTION], [ANSWER])
    done = judge(row, answered(("geo.area", '{"base": 2}')), {"prompt_tokens": 5, "completion_tokens": 7})
    line = json.dumps(asdict(done))
    path.write_text(f"{line}\n{line[:40]}")
    assert read_results(path) == [done]
    assert path.read_text() == f"{line}\n"  # the half line is gone, and the next one will be whole


async def served(status: int) -> tuple[list[Result], list[dict[str, Any]]]:
    """Results and the bodies asked, of two rows put to a server that calls geo.area for everything."""
    bodies: list[dict[str, Any]] = []

    async def chat(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        bodies.append(await request.json())
        choice = answered(("geo.area", '{"base": 2}'))
        usage = {"prompt_tokens": 5, "completion_tokens": 7}
        return web.json_response({"choices": [choice], "usage": usage}, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    rows = [Row(f"multiple_{i}", "multiple", [{"role": "user"}], [FUNCTION], [ANSWER]) for i in range(2)]
    results: list[Result] = []
    try:
        await run(f"http://127.0.0.1:{runner.addresses[0][1]}", "m", "secret", rows, 2, results.append)
    finally:
        await runner.cleanup()
    return results, bodies


def test_rows_are_asked_greedily_with_their_functions_as_tools() -> None:
    results, bodies = asyncio.run(served(200))
    assert sorted(result.id for result in results) == ["multiple_0", "multiple_1"]
    assert all(result.fault == "" and result.parsed for result in results)
    assert bodies[0] == {
        "model": "m",
        "messages": [{"role": "user"}],
        "tools": [tool(FUNCTION)],
        "temperature": 0,
        "max_tokens": 512,
    }


def test_a_broken_server_is_no_weak_model() -> None:
    with pytest.raises(RuntimeError, match="status 500"):
        asyncio.run(served(500))
