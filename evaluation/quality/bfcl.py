"""Tool calls of a served model on rows of the Berkeley Function-Calling Leaderboard: how many come out as calls, and
how many are right.

    python -m evaluation.quality.bfcl --url http://127.0.0.1:8000 --model qwen --data ../shared/data/bfcl_v4 --rows 200

Each row is one greedy request to /v1/chat/completions with the row's functions as tools. Rows are taken evenly from the
categories, from the beginning. --output gets a line of JSON per row as it is answered; Ctrl-C reports what there is,
and a later run with the same --output goes on with the rows that are not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from evaluation.quality.bfcl_score import Call, fault, tool

CATEGORIES = ("simple_python", "multiple", "parallel")
MAX_TOKENS = 512
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    category: str
    messages: list[dict[str, Any]]
    functions: list[dict[str, Any]]
    possible: list[dict[str, Any]]


@dataclass(slots=True)
class Result:
    """fault: why the answer is wrong, "" for a right one. parsed: it has calls, and all arguments are JSON objects."""

    id: str
    category: str
    fault: str
    parsed: bool
    calls: list[Any] = field(default_factory=list)
    content: str | None = None
    finish: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_rows(data: Path, categories: list[str], count: int) -> list[Row]:
    """`count` rows, one of each category in turn."""
    rows = []
    for place, category in enumerate(categories):
        share = count // len(categories) + (place < count % len(categories))
        answers = {row["id"]: row for row in _lines(data / "possible_answer" / f"BFCL_v4_{category}.json")}
        for turn, row in enumerate(_lines(data / f"BFCL_v4_{category}.json")[:share]):
            possible = answers[row["id"]]["ground_truth"]
            read = Row(row["id"], category, row["question"][0], row["function"], possible)
            rows.append((turn, place, read))
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_results(path: Path) -> list[Result]:
    return [Result(**row) for row in earlier_rows(path)]


def earlier_rows(path: Path) -> list[dict[str, Any]]:
    """What an earlier run wrote; none where there is no file. A last line that was cut off is not a result: it is
    taken out of the file, so that the next line written stands alone."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def judge(row: Row, choice: dict[str, Any], usage: dict[str, Any]) -> Result:
    """One answer, scored."""
    message = choice["message"]
    calls: list[Call] = []
    broken = ""
    for call in message.get("tool_calls") or []:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError as error:
            broken = f"arguments are no JSON: {error}"
            continue
        calls.append((call["function"]["name"], arguments))
        if not isinstance(arguments, dict):
            broken = "arguments are no object"
    wrong = broken or ("no call" if not calls else fault(calls, row.functions, row.possible))
    return Result(
        row.id,
        row.category,
        wrong,
        parsed=bool(calls) and not broken,
        calls=list(message.get("tool_calls") or []),
        content=message.get("content"),
        finish=choice["finish_reason"],
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
    )


async def ask(session: aiohttp.ClientSession, url: str, model: str, row: Row) -> Result:
    """Raises RuntimeError for an answer that is none: a broken server must not look like a weak model."""
    body = {
        "model": model,
        "messages": row.messages,
        "tools": [tool(function) for function in row.functions],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        answer = await response.json()
        if response.status != 200:
            raise RuntimeError(f"{row.id}: status {response.status}: {answer}")
    return judge(row, answer["choices"][0], answer["usage"])


async def run(
    url: str, model: str, key: str, rows: list[Row], concurrency: int, done: Callable[[Result], None]
) -> None:
    """`done` is called with each result, in the order of the answers."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    gate = asyncio.Semaphore(concurrency)

    async def one(row: Row) -> None:
        async with gate:
            done(await ask(session, url, model, row))

    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session:
        await asyncio.gather(*map(one, rows))


def report(results: list[Result], seconds: float) -> str:
    """A Markdown table, one line per category and one for all."""
    lines = ["| rows | n | calls parsed | right | tokens out |", "|---|---|---|---|---|"]
    groups = {category: [each for each in results if each.category == category] for category in CATEGORIES}
    for name, group in [*groups.items(), ("all", results)]:
        if group:
            parsed, right = sum(each.parsed for each in group), sum(not each.fault for each in group)
            tokens = sum(each.completion_tokens for each in group)
            share = f"{parsed} ({parsed / len(group):.1%}) | {right} ({right / len(group):.1%})"
            lines.append(f"| {name} | {len(group)} | {share} | {tokens} |")
    return "\n".join([*lines, "", f"{seconds:.0f} s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--url", required=True, help="of the engine or the gateway, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="", help="API key; - reads it from standard input")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/bfcl_v4"))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--categories", nargs="+", choices=CATEGORIES, default=list(CATEGORIES))
    parser.add_argument("--concurrency", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    key = input() if options.key == "-" else options.key
    rows = read_rows(options.data, options.categories, options.rows)
    wanted = {row.id for row in rows}
    results = [result for result in read_results(options.output) if result.id in wanted] if options.output else []
    rest = [row for row in rows if row.id not in {result.id for result in results}]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(options.output.open("a", encoding="utf-8")) if options.output else None

        def done(result: Result) -> None:
            results.append(result)
            print(f"{len(results)}/{len(rows)} {result.id}: {result.fault or 'right'}", flush=True)
            if sink is not None:
                print(json.dumps(asdict(result)), file=sink, flush=True)

        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        asyncio.run(run(options.url.rstrip("/"), options.model, key, rest, options.concurrency, done))
    print(report(results, time.monotonic() - began))


if __name__ == "__main__":
    main()
