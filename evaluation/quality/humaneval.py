"""HumanEval of a served model: how many of its programs pass their tests at the first try (pass@1, greedy).

    python -m evaluation.quality.humaneval --url http://127.0.0.1:8000 --model qwen \\
        --data ../shared/data/human_eval/HumanEval.jsonl.gz

Each of the 164 problems (https://github.com/openai/human-eval, MIT) is one request: to /v1/chat/completions, or with
--plain to /v1/completions for a model that goes on with the function as it stands. Programs run in `sandbox` alone.
--output gets a line of JSON per problem as it is answered, and a later run with the same --output goes on after them;
it must ask the same model in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from evaluation.metrics.stats import clopper_pearson
from evaluation.quality import sandbox
from evaluation.quality.bfcl import earlier_rows

MAX_TOKENS = 768
TIMEOUT_S = 1800.0
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(")
"""A completion goes on with the function; what follows it is not asked for."""
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_ASKED = "Complete this Python function. Answer with the whole function in one code block, imports included.\n\n"


@dataclass(frozen=True, slots=True)
class Problem:
    id: str
    prompt: str
    test: str
    entry_point: str

    def asked(self) -> str:
        """The message to a model that chats."""
        return f"{_ASKED}```python\n{self.prompt}```"


@dataclass(slots=True)
class Result:
    """fault: why the program did not pass, "" for one that did. model, plain: as it was asked; model "" = not known, of
    rows that were written before it was said."""

    id: str
    fault: str
    program: str
    finish: str = ""
    completion_tokens: int = 0
    model: str = ""
    plain: bool = False


def read_problems(data: Path, count: int = 0) -> list[Problem]:
    """The first `count`; 0 = all."""
    packed = data.read_bytes()
    text = (gzip.decompress(packed) if data.suffix == ".gz" else packed).decode()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    problems = [Problem(row["task_id"], row["prompt"], row["test"], row["entry_point"]) for row in rows]
    return problems[:count] if count else problems


def program_of(problem: Problem, answer: str, plain: bool) -> str:
    """What is run: the answer's function, and the tests of the problem. An answer that repeats the function stands for
    itself; one that holds only its body follows the prompt."""
    if plain:
        code = problem.prompt + answer
    else:
        blocks = _BLOCK.findall(answer)
        named = [block for block in blocks if f"def {problem.entry_point}" in block]
        code = (named or blocks or [answer])[0]
        if f"def {problem.entry_point}" not in code:
            code = problem.prompt + code
        else:  # helpers and imports of the prompt come first; what the answer defines again is the answer's
            code = f"{problem.prompt}    pass\n\n{code}"
    return f"{code}\n\n{problem.test}\n\ncheck({problem.entry_point})\n"


async def ask(session: aiohttp.ClientSession, url: str, model: str, problem: Problem, plain: bool) -> Result:
    """Raises RuntimeError for an answer that is none: a broken server must not look like a weak model."""
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": MAX_TOKENS}
    if plain:
        path, body = "completions", {**body, "prompt": problem.prompt, "stop": list(STOPS)[:4]}
    else:
        path, body = "chat/completions", {**body, "messages": [{"role": "user", "content": problem.asked()}]}
    async with session.post(f"{url}/v1/{path}", json=body) as response:
        answer = await response.json()
        if response.status != 200:
            raise RuntimeError(f"{problem.id}: status {response.status}: {answer}")
    choice = answer["choices"][0]
    program = program_of(problem, choice["text"] if plain else choice["message"]["content"] or "", plain)
    outcome = await asyncio.to_thread(sandbox.run, program)
    tokens = answer["usage"]["completion_tokens"]
    return Result(problem.id, outcome.reason, program, choice["finish_reason"], tokens, model, plain)


async def run(
    url: str,
    model: str,
    key: str,
    problems: list[Problem],
    *,
    plain: bool,
    concurrency: int,
    done: Callable[[Result], None],
) -> None:
    """`done` is called with each result, in the order of the answers. Raises sandbox.SandboxUnavailable before
    anything is asked."""
    sandbox.run("pass")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    gate = asyncio.Semaphore(concurrency)

    async def one(problem: Problem) -> None:
        async with gate:
            done(await ask(session, url, model, problem, plain))

    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session:
        await asyncio.gather(*map(one, problems))


def summary(results: list[Result]) -> dict[str, Any]:
    """pass@1 with its interval of 95 %."""
    passed = sum(not result.fault for result in results)
    low, high = clopper_pearson(passed, len(results)) if results else (0.0, 1.0)
    return {
        "problems": len(results),
        "passed": passed,
        "pass_at_1": passed / len(results) if results else None,
        "interval": [low, high],
        "cut_off": sum(result.finish == "length" for result in results),
    }


def read_results(path: Path) -> list[Result]:
    return [Result(**row) for row in earlier_rows(path)]


def of_another(results: list[Result], model: str, plain: bool) -> str:
    """Why these can't be counted with answers of this model, asked this way; "" if they can."""
    for result in results:
        if result.model and (result.model, result.plain) != (model, plain):
            asked = "--plain" if result.plain else "a chat"
            return (
                f"{result.id} was answered by {result.model} in {asked}; give another file, or the same model and way"
            )
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--url", required=True, help="of the engine or the gateway, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="", help="API key; - reads it from standard input")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/human_eval/HumanEval.jsonl.gz"))
    parser.add_argument("--problems", type=int, default=0, help="the first so many; 0 = all")
    parser.add_argument("--plain", action="store_true", help="the model goes on with the function: no chat")
    parser.add_argument("--concurrency", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    key = input() if options.key == "-" else options.key
    problems = read_problems(options.data, options.problems)
    wanted = {problem.id for problem in problems}
    earlier = read_results(options.output) if options.output else []
    if other := of_another(earlier, options.model, options.plain):
        parser.error(f"--output {options.output}: {other}")
    results = [result for result in earlier if result.id in wanted]
    rest = [problem for problem in problems if problem.id not in {result.id for result in results}]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(options.output.open("a", encoding="utf-8")) if options.output else None

        def done(result: Result) -> None:
            results.append(result)
            print(f"{len(results)}/{len(problems)} {result.id}: {result.fault or 'passed'}", flush=True)
            if sink is not None:
                print(json.dumps(asdict(result)), file=sink, flush=True)

        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        url = options.url.rstrip("/")
        asyncio.run(run(url, options.model, key, rest, plain=options.plain, concurrency=options.concurrency, done=done))
    print(json.dumps({**summary(results), "seconds": round(time.monotonic() - began, 1)}, indent=1))


if __name__ == "__main__":
    main()
