"""How fast the load client reads, and how late it sends: `python -m evaluation.benchmarks.client_speed`.

One sending process. Streams of 20 chunks from the null server, as many as it can (64 at once); then 500 streams/s, half
of what is asked of a core, from the null server and from one that spaces its chunks by 10 ms, so that each is a read of
its own. Client, server and schedule share the machine's cores. The peer is aiohttp reading lines, in one process too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import aiohttp
import numpy as np
import orjson

from evaluation.benchmarks.report import ROOT, Row, table, write
from evaluation.client.law import Law
from evaluation.client.pool import Sent, send
from evaluation.client.servers import MODEL, running
from evaluation.schema import Endpoint, RequestRecord
from evaluation.workload.item import Item, Turn, plan

CHUNKS = 20
SLOTS = 64
STREAMS = 10_000
HALF_RATE = 500.0  # streams/s
SECONDS = 10.0
CHUNKS_TARGET = 20_000.0
LAG_TARGET_MS = 5.0
SPACED = Law(ttft_ms=20.0, itl_ms=10.0)
MESSAGES = [{"role": "user", "content": "word " * 64}]


def items(count: int) -> list[Item]:
    return [Item(turns=[Turn(messages=MESSAGES, max_tokens=CHUNKS)])] * count


async def run(law: Law | None, count: int, rate: float | None) -> tuple[Sent, list[RequestRecord]]:
    """rate: streams/s; None: `SLOTS` at once. Raises RuntimeError when a stream failed: such a figure says nothing."""
    records: list[RequestRecord] = []
    offsets = None if rate is None else [round(number * 1e9 / rate) for number in range(count)]
    async with running(law, CHUNKS) as url:
        sent = await send(plan(items(count), offsets), Endpoint(url=url, model=MODEL), on_record=records.append,
                          concurrency=SLOTS if rate is None else None)  # fmt: skip
    wrong = [record.error for record in records if record.status != "ok" or len(record.chunks) != CHUNKS]
    if wrong or len(records) != count:
        raise RuntimeError(f"{len(wrong)} of {count} streams failed, the first with: {wrong[:1]}")
    return sent, records


def seconds(records: list[RequestRecord]) -> float:
    return (max(record.end_ns or 0 for record in records) - min(record.sent_ns or 0 for record in records)) / 1e9


async def by_aiohttp(count: int) -> tuple[float, float]:
    """The same closed loop as a client library does it: chunks per second, and per second of its CPU."""

    async def stream(session: aiohttp.ClientSession, url: str) -> None:
        body = {"model": MODEL, "messages": MESSAGES, "max_tokens": CHUNKS, "stream": True}
        async with session.post(url + "/v1/chat/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    orjson.loads(line[6:])

    async def slot(session: aiohttp.ClientSession, url: str) -> None:
        for _ in range(count // SLOTS):
            await stream(session, url)

    async with running(None, CHUNKS) as url, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(slot(session, url) for _ in range(SLOTS)))
        chunks = count // SLOTS * SLOTS * CHUNKS
        return chunks / (time.perf_counter() - begun), chunks / (time.process_time() - cpu)


async def measure(streams: int, rate_s: float) -> list[Row]:
    rows = []
    sent, records = await run(None, streams, None)
    reached = streams * CHUNKS / seconds(records)
    peer, peer_per_core = await by_aiohttp(streams // 4)
    case = f"null server, {SLOTS} streams at once"
    rows.append(
        Row(case, "chunks read per second", reached, "chunks/s", "higher", "aiohttp", peer, None, CHUNKS_TARGET)
    )
    share = sent.health.cpu_share or float("nan")
    per_core = (sent.health.chunks_per_s or 0.0) / share
    rows.append(
        Row(case, "chunks per second of the client's CPU", per_core, "chunks/s", "higher", "aiohttp", peer_per_core)
    )
    for name, law in (("null server", None), ("chunks 10 ms apart", SPACED)):
        case = f"{HALF_RATE:g} streams/s, {name}"
        sent, records = await run(law, int(HALF_RATE * rate_s), HALF_RATE)
        health = sent.health
        rows.append(Row(case, "pacing lag P50", health.pacing_p50_ms or 0.0, "ms", "lower"))
        asked = LAG_TARGET_MS if law is None else None
        rows.append(Row(case, "pacing lag P99", health.pacing_p99_ms or 0.0, "ms", "lower", target=asked))
        rows.append(Row(case, "loop lag P99", health.loop_p99_ms or 0.0, "ms", "lower"))
        rows.append(Row(case, "client's CPU", 100 * (health.cpu_share or 0.0), "% of a core", "lower"))
        if law is not None:
            exact = (law.prefill_ns(0) + law.decode_ns(CHUNKS)) / 1e6
            late = np.array([(record.chunks[-1][0] - (record.sent_ns or 0)) / 1e6 - exact for record in records])
            for quantile in (0.5, 0.99):
                value = float(np.quantile(late, quantile))
                rows.append(Row(case, f"E2EL over the law's P{100 * quantile:g}", value, "ms", "lower"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks", help="folder of the result")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    rows = asyncio.run(measure(arguments.streams, arguments.seconds))
    print(table(rows))
    packages = ("msgspec", "uvloop", "aiohttp")
    print(write("client_speed", "cpu", f"{os.cpu_count()} shared cores", rows, arguments.out, packages))
    return 0 if all(row.ok is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
