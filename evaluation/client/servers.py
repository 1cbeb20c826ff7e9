"""Servers to measure the measuring with: one as fast as it can be, one whose latencies follow a law. Real HTTP and SSE.

    python -m evaluation.client.servers null --chunks 20
    python -m evaluation.client.servers law --law '{"ttft_ms": 20, "itl_ms": 5, "slots": 4}'

Each prints its port. `running(...)` starts one as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import os
import socket
import struct
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evaluation.client.law import Law, Queue
from evaluation.client.timer import Timer
from evaluation.workload.dedupe import BlockTrie

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
MODEL = "law"


class _Message(Struct):
    content: Any = ""


class _StreamOptions(Struct):
    include_usage: bool = False


class Asked(Struct):
    """What of a request's body the law looks at."""

    messages: list[_Message] | None = None
    prompt: Any = ""
    max_tokens: int | None = None
    stream_options: _StreamOptions = msgspec.field(default_factory=_StreamOptions)
    stall_s: float = 0.0  # of /control

    def tokens(self, law: Law) -> list[int]:
        """A token is a word, or a given id; the template's come last."""
        if self.messages is None:
            return self.prompt if isinstance(self.prompt, list) else words(str(self.prompt))
        said = words(" ".join(str(message.content) for message in self.messages))
        return said + [-1] * law.template_tokens


def words(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) for word in text.split()]


_ASKED = msgspec.json.Decoder(Asked)


class HttpServer(asyncio.Protocol):
    """Reads requests, one after the other; `answer(server, path, body)` writes what it will, at any time."""

    def __init__(self, answer: Callable[[HttpServer, str, bytes], None]) -> None:
        self._answer = answer
        self._buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # of a stream socket it is a Transport

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body, path = self._buffer[end + 4 : end + 4 + length], self._buffer.split(b" ", 2)[1].decode()
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(self, path, body)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def write_json(self, value: Any, status: str = "200 OK") -> None:
        self.write_whole(msgspec.json.encode(value), "application/json", status)

    def write_whole(self, body: bytes, kind: str, status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    return chunked(b"data: " + msgspec.json.encode(value) + b"\n\n")


def content_event(text: str, chat: bool = True, finish: str | None = None) -> bytes:
    said = {"delta": {"content": text} if text else {}} if chat else {"text": text}
    choice = {"index": 0, "finish_reason": finish, "logprobs": None} | said
    kind = "chat.completion.chunk" if chat else "text_completion"
    return event({"id": "chatcmpl-1", "object": kind, "created": 1764400000, "model": MODEL, "choices": [choice]})


def usage_event(prompt: int, cached: int, output: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
             "prompt_tokens_details": {"cached_tokens": cached}}  # fmt: skip
    return event({"id": "chatcmpl-1", "choices": [], "usage": usage})


DONE = chunked(b"data: [DONE]\n\n") + LAST


class NullServer:
    """Answers at once with `chunks` events, each written by itself."""

    def __init__(self, chunks: int = 20) -> None:
        first = HEAD + content_event("The ")
        last = content_event("", finish="length") + usage_event(64, 0, chunks) + DONE
        self._writes = [first, *[content_event(f"word{number} ") for number in range(1, chunks)], last]

    def answer(self, server: HttpServer, path: str, body: bytes) -> None:
        if path.endswith("/models"):
            server.write_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            return
        transport = server.transport
        assert transport is not None
        for data in self._writes:
            transport.write(data)


class LawServer:
    """Serves by its law, on a clock of its own that stands still in a stall."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self._queue = Queue(law.slots)
        self._cache = BlockTrie(law.block_tokens, law.cache_tokens // law.block_tokens) if law.cache_tokens else None
        self._timer = Timer()
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # by its own clock
        self._numbers = itertools.count()
        self._lost_ns = 0  # stalls until now
        self._stalled_until = 0
        self._stalled_at = 0
        self._requests = self._active = 0
        self._prompt_tokens = self._hit_tokens = self._generated_tokens = 0

    def answer(self, server: HttpServer, path: str, body: bytes) -> None:
        if path.endswith("/models"):
            server.write_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            return
        if path.endswith("/metrics"):
            server.write_whole(self._metrics(), "text/plain; version=0.0.4")
            return
        try:
            asked = _ASKED.decode(body)
        except msgspec.DecodeError as error:
            server.write_json({"error": {"message": str(error)}}, "400 Bad Request")
            return
        if path.endswith("/tokenize"):
            tokens = asked.tokens(self._law)
            server.write_json({"count": len(tokens), "max_model_len": 1 << 20, "tokens": tokens})
        elif path.endswith("/control"):
            self._stall(asked.stall_s)
            server.write_json({})
        elif path.endswith("/completions"):
            self._generate(server, asked, chat=path.endswith("/chat/completions"))
        else:
            server.write_json({"error": {"message": f"no such path: {path}"}}, "404 Not Found")

    def _metrics(self) -> bytes:
        """Under vLLM's names. A request runs from its slot to its last token, however it failed for its client."""
        running = self._active if self._law.slots is None else min(self._active, self._law.slots)
        figures = {
            "num_requests_running": running,
            "num_requests_waiting": self._active - running,
            "prefix_cache_queries_total": self._prompt_tokens,
            "prefix_cache_hits_total": self._hit_tokens,
            "generation_tokens_total": self._generated_tokens,
        }
        kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in figures}
        return "".join(
            f"# TYPE vllm:{name.removesuffix('_total')} {kinds[name]}\nvllm:{name} {value}\n"
            for name, value in figures.items()
        ).encode()

    def _own_ns(self) -> int:
        now = time.monotonic_ns()
        return self._stalled_at if now < self._stalled_until else now - self._lost_ns

    def _stall(self, seconds: float) -> None:
        self._stalled_at = self._own_ns()
        self._stalled_until = time.monotonic_ns() + int(seconds * 1e9)
        self._lost_ns = self._stalled_until - self._stalled_at
        self._timer.at(self._stalled_until, self._pump)

    def _generate(self, server: HttpServer, asked: Asked, chat: bool) -> None:
        law, now = self._law, self._own_ns()
        self._requests += 1
        if self._requests == 1 and law.stall_at_s is not None:
            self._timer.at(time.monotonic_ns() + int(law.stall_at_s * 1e9), partial(self._stall, law.stall_s))
        failure = law.failure if self._requests % law.failure_every == 0 else None
        if failure == "http_500":
            server.write_json({"error": {"message": "out of memory, as told", "code": 500}}, "500 Internal Error")
            return
        if failure == "hang":
            return
        tokens = asked.tokens(law)
        cached = self._cache.add(tokens) if self._cache is not None else 0
        prefill = law.prefill_ns(len(tokens) - cached)
        output = asked.max_tokens or law.output_tokens
        if failure == "early_stop":
            output = max(1, output // 4)
        self._prompt_tokens += len(tokens)
        self._hit_tokens += cached
        begin = self._queue.admit(now, prefill + law.decode_ns(output))
        self._active += 1
        self._at(begin + prefill + law.decode_ns(output), partial(self._ended, output))
        usage = usage_event(len(tokens), cached, output) if failure != "no_usage" else b""
        step = int(law.chunk_tokens * law.itl_ms * 1e6)
        events = -(-output // law.chunk_tokens)
        half = events // 2
        for number in range(events):
            data = content_event("word " * min(law.chunk_tokens, output - number * law.chunk_tokens), chat)
            if number == 0:
                data = HEAD + data
            if number == half and failure in ("reset", "cut", "invalid_sse", "stream_error"):
                self._at(begin + prefill + number * step, partial(_fail, server, failure, number == 0))
                break
            if number == events - 1:
                reason = "stop" if failure == "early_stop" else "length"
                data += content_event("", chat, reason) + usage + DONE
            self._at(begin + prefill + number * step, partial(server.write, data))

    def _ended(self, output: int) -> None:
        self._active -= 1
        self._generated_tokens += output

    def _at(self, own_ns: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (own_ns, next(self._numbers), call))
        if self._due[0][0] == own_ns and time.monotonic_ns() >= self._stalled_until:
            self._timer.at(own_ns + self._lost_ns, self._pump)

    def _pump(self) -> None:
        if time.monotonic_ns() < self._stalled_until:
            return
        due = self._due
        while due and due[0][0] <= self._own_ns():
            heapq.heappop(due)[2]()
        if due:
            self._timer.at(due[0][0] + self._lost_ns, self._pump)


def _fail(server: HttpServer, failure: str, at_once: bool) -> None:
    transport = server.transport
    if transport is None:
        return
    if at_once:
        server.write(HEAD)
    if failure == "reset":
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by RST, not FIN
        transport.abort()
    elif failure == "cut":
        server.write(LAST)
    elif failure == "invalid_sse":
        server.write(chunked(b'data: {"choices": [{"delta": {"content": 7}}]}\n\n') + DONE)
    else:
        server.write(event({"error": {"message": "KV cache lost, as told", "code": "engine_failed"}}) + DONE)


async def serve(server: NullServer | LawServer, port: int = 0) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: HttpServer(server.answer), "127.0.0.1", port, backlog=4096)


@asynccontextmanager
async def running(law: Law | None = None, chunks: int = 20) -> AsyncIterator[str]:
    """The URL of a server in a process of its own: of the law, else the null server."""
    told = ["null", "--chunks", str(chunks)] if law is None else ["law", "--law", msgspec.json.encode(law).decode()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evaluation.client.servers", *told,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()  # it ends with its parent, however that ends
        await process.wait()


async def _main(arguments: argparse.Namespace) -> None:
    if arguments.kind == "law":
        made: NullServer | LawServer = LawServer(msgspec.json.decode(arguments.law, type=Law))
    else:
        made = NullServer(arguments.chunks)
    server = await serve(made, arguments.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await reader.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["null", "law"])
    parser.add_argument("--law", default="{}", help="JSON of evaluation.client.law.Law")
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--port", type=int, default=0, help="0: a free one; it is printed")
    arguments = parser.parse_args()
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(_main(arguments))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(arguments))


if __name__ == "__main__":
    main()
