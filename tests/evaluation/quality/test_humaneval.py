"""HumanEval's rows: asked, made into programs, run, counted."""

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from evaluation.quality.humaneval import (
    Problem,
    Result,
    main,
    of_another,
    program_of,
    read_problems,
    read_results,
    run,
    summary,
)
from evaluation.quality.sandbox import run as run_program

PROMPT = 'from typing import List\n\n\ndef add(numbers: List[int]) -> int:\n    """ Sum.\n    """\n'
TEST = "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n"
PROBLEM = Problem("HumanEval/x", PROMPT, TEST, "add")
RIGHT = "def add(numbers: List[int]) -> int:\n    return sum(numbers)\n"


@pytest.mark.parametrize(
    "answer",
    [
        f"Here it is:\n```python\n{RIGHT}```\nIt sums.",
        f"```\n{RIGHT}```",
        f"```python\nprint(1)\n```\nor\n```python\n{RIGHT}```",
        f"```python\n{RIGHT}",
        RIGHT,
        "```python\n    return sum(numbers)\n```",
    ],
)
def test_answers_of_a_chat_become_the_program(answer):
    assert run_program(program_of(PROBLEM, answer, plain=False)).passed


def test_a_completion_goes_on_with_the_function():
    assert run_program(program_of(PROBLEM, "    return sum(numbers)\n", plain=True)).passed


@pytest.mark.parametrize(
    "answer", ["", "I can't.", f"```python\n{RIGHT.replace('sum', 'max')}```", "```python\npass\n```"]
)
def test_wrong_answers_do_not_pass(answer):
    assert not run_program(program_of(PROBLEM, answer, plain=False)).passed


def test_problems_are_read_from_the_packed_file(tmp_path):
    row = {"task_id": "HumanEval/0", "prompt": PROMPT, "test": TEST, "entry_point": "add", "canonical_solution": ""}
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(
        gzip.compress("".join(json.dumps({**row, "task_id": f"HumanEval/{n}"}) + "\n" for n in range(3)).encode())
    )
    assert [problem.id for problem in read_problems(path)] == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
    assert len(read_problems(path, 2)) == 2


async def answered(content, status=200, plain=False):
    """The results of two problems, from a server that says `content`."""
    asked = []

    async def answer(request):
        asked.append((request.path, await request.json()))
        choice = {"finish_reason": "stop", "text": content, "message": {"content": content}}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": 7}}, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    results = []
    try:
        await run(
            f"http://127.0.0.1:{port}", "m", "", [PROBLEM, PROBLEM], plain=plain, concurrency=2, done=results.append
        )
    finally:
        await runner.cleanup()
    return results, asked


def test_a_chat_is_asked_greedily_and_judged_by_the_tests():
    results, asked = asyncio.run(answered(f"```python\n{RIGHT}```"))
    assert [result.fault for result in results] == ["", ""]
    path, body = asked[0]
    assert path == "/v1/chat/completions"
    assert body["temperature"] == 0
    assert PROMPT in body["messages"][0]["content"]


def test_a_plain_model_goes_on_with_the_prompt():
    results, asked = asyncio.run(answered("    return 3\n", plain=True))
    assert [result.fault for result in results] == ["AssertionError"] * 2
    assert [(result.model, result.plain) for result in results] == [("m", True)] * 2
    assert asked[0][0] == "/v1/completions"
    assert asked[0][1]["prompt"] == PROMPT


def test_a_server_that_fails_is_no_weak_model():
    with pytest.raises(RuntimeError, match="status 500"):
        asyncio.run(answered("", status=500))


def test_counts_and_their_interval(tmp_path):
    results = [Result(str(n), "" if n < 3 else "AssertionError", "", "length" if n == 0 else "stop") for n in range(4)]
    found = summary(results)
    assert (found["passed"], found["pass_at_1"], found["cut_off"]) == (3, 0.75, 1)
    assert found["interval"][0] < 0.75 < found["interval"][1]
    assert summary([])["pass_at_1"] is None
    path = tmp_path / "out.jsonl"
    path.write_text('{"id": "a", "fault": "", "program": "p"}\n{"id": "b", "fau')
    assert [result.id for result in read_results(path)] == ["a"]
    assert path.read_text().endswith("}\n")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"model": "other"}, "HumanEval/x was answered by other in a chat"),
        ({"model": "m", "plain": True}, "HumanEval/x was answered by m in --plain"),
    ],
)
def test_a_file_of_another_run_is_not_gone_on_with(tmp_path, monkeypatch, capsys, row, said):
    path, data = tmp_path / "out.jsonl", tmp_path / "data.jsonl"
    path.write_text(json.dumps({"id": "HumanEval/x", "fault": "", "program": "p", **row}) + "\n")
    problem = {"task_id": "HumanEval/x", "prompt": PROMPT, "test": TEST, "entry_point": "add"}
    data.write_text(json.dumps(problem))
    told = ["humaneval", "--url", "http://127.0.0.1:1", "--model", "m", "--data", str(data), "--output", str(path)]
    monkeypatch.setattr("sys.argv", told)
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*told, *(["--plain"] if row.get("plain") else [])])
    path.write_text(json.dumps({"id": "HumanEval/x", "fault": "", "program": "p", **row, "model": "m"}) + "\n")
    main()  # its one row is there, and of the same run
    assert json.loads(capsys.readouterr().out)["passed"] == 1


def test_rows_from_before_the_model_was_said_are_taken():
    assert of_another([Result("HumanEval/x", "", "p")], "m", True) == ""
