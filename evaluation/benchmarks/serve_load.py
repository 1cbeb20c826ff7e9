"""Clients of `serve_gpu`: many streams at once from one process, each read to its end.

    python -m evaluation.benchmarks.serve_load  < {"url", "token", "model", "prompts", "outputs"}  > one line of JSON

Waits for a line on standard input after it has connected, so that several such processes begin together.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

import aiohttp


async def _stream(session: aiohttp.ClientSession, work: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
    body = {
        "model": work["model"], "prompt": prompt, "max_tokens": work["outputs"], "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    chunks: list[float] = []
    tail = b""
    async with session.post(work["url"] + "/v1/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {await response.text()}")
        async for part in response.content.iter_any():
            chunks.append(time.perf_counter())
            tail = (tail + part)[-2000:]
    if not tail.endswith(b"data: [DONE]\n\n"):
        raise RuntimeError(f"a stream broke off: {tail[-300:]!r}")
    usage = json.loads(tail.split(b"data: ")[-2])["usage"]
    return {
        "first": chunks[0],
        "last": chunks[-1],
        "tokens": usage["completion_tokens"],
        "reads": len(chunks),
        "longest_gap": max((b - a for a, b in itertools.pairwise(chunks)), default=0.0),
    }


async def main() -> None:
    loop = asyncio.get_running_loop()
    work = json.loads(sys.stdin.readline())
    headers = {"Authorization": f"Bearer {work['token']}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**20) as session:
        async with session.get(work["url"] + "/v1/models") as response:
            response.raise_for_status()
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        begun, cpu = time.perf_counter(), time.process_time()
        streams = await asyncio.gather(*(_stream(session, work, prompt) for prompt in work["prompts"]))
        print(json.dumps({"begun": begun, "cpu_s": time.process_time() - cpu, "streams": streams}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
