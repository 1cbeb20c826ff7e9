"""CPU per streamed token of the engine's API process, by API and by what the model's answers are read for.

    python -m evaluation.benchmarks.stream_cpu [--streams 64] [--tokens 200] [--http] [--profile CASE] [--out FOLDER]

The application as it is served, and a core in the same process that says one token per stream and step. Without --http
the handlers' own work alone: from the core's message to the bytes of the events. With it through aiohttp on a loopback
socket, read by a client in a process of its own. Processor time over tokens, the least of some rounds, so that other
work on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import math
import pstats
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
from aiohttp import web

from engines.native.ipc import Add, Ending, FromCore, Ready, ToCore, Update, decode_from_core, encode
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, Timeouts
from engines.native.serve.app import Api
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.core_process import CoreProcess
from engines.native.serve.engine import Engine, EngineLimits
from engines.native.serve.generate import Generator
from engines.native.serve.message_events import MessageEvents
from engines.native.serve.messages import MessagesEndpoint
from engines.native.serve.metrics import Metrics
from engines.native.serve.model import ServedModel, load
from engines.native.serve.openai import ChunkEvents
from engines.native.serve.response_events import ResponseEvents
from engines.native.serve.responses import ResponsesEndpoint
from engines.native.serve.sse import EventStream, SlowReaders
from evaluation.benchmarks import report, serve_model
from evaluation.benchmarks.report import Row

STEP_S = 0.01
"""Between two steps of the core, with --http: the process must idle in between, or tokens gather and cost less."""
TOKEN = "benchmark"
_PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_TAGGED = _PLAIN + "{% if tools is defined and false %}<tool_call>{{ tools }}</tool_call><think></think>{% endif %}"
_FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
_CHAT = {"messages": [{"role": "user", "content": "hello"}]}

Case = tuple[str, str, Any, Any, dict[str, Any]]
"""(template, path, endpoint, events, body)"""
CASES: dict[str, Case] = {
    "completions": (_PLAIN, "completions", CompletionEndpoint, ChunkEvents, {"prompt": "hello"}),
    "chat": (_PLAIN, "chat/completions", ChatEndpoint, ChunkEvents, _CHAT),
    "chat, reasoning model": (_TAGGED, "chat/completions", ChatEndpoint, ChunkEvents, _CHAT),
    "chat, tools": (
        _TAGGED,
        "chat/completions",
        ChatEndpoint,
        ChunkEvents,
        {**_CHAT, "tools": [{"type": "function", "function": _FUNCTION}]},
    ),
    "messages": (_PLAIN, "messages", MessagesEndpoint, MessageEvents, _CHAT),
    "responses": (_PLAIN, "responses", ResponsesEndpoint, ResponseEvents, {"input": "hello"}),
}


class SteadyCore(CoreProcess):
    """A core in this process. It says nothing until `streams` requests are there, and then a token to each per step."""

    def __init__(self, streams: int, tokens: int, step_s: float) -> None:
        self._streams, self._tokens, self._step_s = streams, tokens, step_s
        self._asked: list[int] = []
        self._complete = asyncio.Event()

    async def start(self) -> None:
        return

    def send(self, message: ToCore) -> None:
        if isinstance(message, Add):
            self._asked.append(message.id)
            if len(self._asked) == self._streams:
                self._complete.set()

    async def messages(self) -> AsyncIterator[FromCore]:
        yield Ready(1000, 16, 4096, self._streams, {})
        while True:
            await self._complete.wait()
            self._complete.clear()
            asked, self._asked = self._asked, []
            for step in range(self._tokens):
                await asyncio.sleep(self._step_s)
                yield decode_from_core(self._said(asked, step))

    def _said(self, asked: list[int], step: int) -> bytes:
        tokens = (np.arange(len(asked), dtype=np.int32) * 7 + step) % 250 + 260  # words
        endings = [Ending(each, Finish.LENGTH) for each in asked] if step == self._tokens - 1 else []
        counts = (len(asked), 0, len(asked), 0)
        ids = np.array(asked, np.int64).tobytes()
        return encode(Update(ids, tokens.tobytes(), b"", {}, [], [], endings, *counts))

    def last_words(self) -> str:
        return "ended"

    def kill(self) -> None:
        return

    async def close(self, grace_s: float = 0.0) -> None:
        return


def served(template: str, folder: Path) -> ServedModel:
    paths = serve_model.write("tiny", folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({"chat_template": template}))
    return load("benchmark", open_model("safetensors", {**paths, settings.name: str(settings)}))


async def without_http(engine: Engine, model: ServedModel, case: Case, streams: int, body: dict[str, Any]) -> None:
    """What `Api._stream` does, with nobody to write to."""
    _, _, make, make_events, _ = case

    async def one() -> None:
        endpoint = make(model, body, 4096)
        generator = Generator(engine, model.detokenizer, await endpoint.generation())
        events, sink = make_events(body, endpoint, generator), Sink()
        async with aclosing(generator.deltas()) as deltas:
            async for delta in deltas:
                if said := events.of(delta):
                    await sink.send(*said)

    await asyncio.gather(*(one() for _ in range(streams)))


class Sink(EventStream):
    """Has no client."""

    def __init__(self) -> None:
        super().__init__(cast(web.Request, None), SlowReaders())

    async def _write(self, data: bytes) -> None:
        return


async def over_http(api: Api, case: Case, streams: int, body: dict[str, Any]) -> None:
    """Until a client in another process has read all streams."""
    runner = web.AppRunner(api.app, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, stdin=asyncio.subprocess.PIPE
    )  # fmt: skip
    work = {"url": f"http://127.0.0.1:{port}/v1/{case[1]}", "token": TOKEN, "body": body, "streams": streams}
    try:
        await client.communicate(json.dumps(work).encode())
        if client.returncode:
            raise RuntimeError(f"the client ended with {client.returncode}")
    finally:
        await runner.cleanup()


_CLIENT = """
import asyncio, json, sys, aiohttp

async def one(session, work):
    headers = {"Authorization": "Bearer " + work["token"]}
    async with session.post(work["url"], json=work["body"], headers=headers) as response:
        response.raise_for_status()
        async for _ in response.content.iter_any():
            pass

async def main():
    work = json.loads(sys.stdin.read())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(one(session, work) for _ in range(work["streams"])))

asyncio.run(main())
"""


async def round_of(case: Case, model: ServedModel, streams: int, tokens: int, http: bool) -> float:
    """CPU seconds of this process for `streams` × `tokens`."""
    limits, metrics = EngineLimits(streams, Timeouts()), Metrics()
    engine = Engine(lambda: SteadyCore(streams, tokens, STEP_S if http else 0.0), limits, metrics)
    api = Api(engine, model, TOKEN, max_body_bytes=2**20)
    life = asyncio.create_task(engine.run())
    while engine.ready is None:
        await asyncio.sleep(0)
    body = {"model": "benchmark", "stream": True, "max_tokens": tokens, "ignore_eos": True, **case[4]}
    if case[1] == "messages":
        del body["ignore_eos"]
    if case[1] == "responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    begun = time.process_time()
    if http:
        await over_http(api, case, streams, body)
    else:
        await without_http(engine, model, case, streams, body)
    used = time.process_time() - begun
    life.cancel()
    return used


def costs(
    names: list[str], models: dict[str, ServedModel], streams: int, tokens: int, rounds: int, http: bool
) -> dict[str, float]:
    """µs per token by case. What a request costs before and after its tokens is taken off: the difference of two
    lengths, each the least of the rounds, in which the cases take turns."""
    least = dict.fromkeys(((name, length) for name in names for length in (20, 20 + tokens)), math.inf)
    for _ in range(rounds):
        for name, length in least:
            model = models[CASES[name][0]]
            used = asyncio.run(round_of(CASES[name], model, streams, length, http))
            least[name, length] = min(least[name, length], used)
    return {name: (least[name, 20 + tokens] - least[name, 20]) / (streams * tokens) * 1e6 for name in names}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        models = {template: served(template, Path(folder) / str(at)) for at, template in enumerate((_PLAIN, _TAGGED))}
        asked = (options.cases, models, options.streams, options.tokens, options.rounds, options.http)
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(costs, *asked)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        metric = "API process, CPU per token" + ("" if options.http else ", without HTTP")
        rows = [
            Row(f"{name}, {options.streams} streams", metric, value, "µs", "lower")
            for name, value in costs(*asked).items()
        ]
    print(report.table(rows))
    if options.out:
        report.write("stream_cpu", "cpu", "CPU", rows, options.out, ("aiohttp", "orjson", "msgspec"))


if __name__ == "__main__":
    main(sys.argv[1:])
