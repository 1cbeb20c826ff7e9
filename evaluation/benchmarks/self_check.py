"""Does the measuring measure? Against servers whose truth is computed: `python -m evaluation.benchmarks.self_check`.

Prints the table of accuracy with ok or MISSED per line and writes it as `self_check.cpu.json`. Real HTTP, real time:
five minutes on two cores that nothing else uses. `--only search,poisson` does some of the parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.benchmarks import self_check_peers as peers
from evaluation.benchmarks.report import Row, table, write
from evaluation.client.calibrate import calibrate
from evaluation.client.law import Law, replay
from evaluation.client.pool import send
from evaluation.client.servers import MODEL, running
from evaluation.metrics import definitions
from evaluation.metrics.quantiles import summarize
from evaluation.progress import Terminal
from evaluation.runner.run import Run
from evaluation.schema import Endpoint, RequestRecord, ResultDoc, Shape, Summary
from evaluation.spec_errors import read_spec
from evaluation.workload.arrivals import dispersion, offsets_ns
from evaluation.workload.item import Item, Turn, plan

S = 1_000_000_000


class Levels(Terminal):
    """One line for each level; what lies between is too much here."""

    def progress(self, value: float, text: str = "") -> None:
        return


PROMPT = "one two three four five six seven eight nine ten"  # ten tokens of the law server
SEED = 20261130


def within(case: str, metric: str, value: float | None, truth: float, unit: str = "ms") -> Row:
    """A figure against the law's: within 1 ms or 1 %, whichever is more."""
    allowed = max(1.0, 0.01 * truth)
    off = abs(value - truth) if value is not None else float("inf")
    row = Row(case, metric, value if value is not None else -1.0, unit, "lower", "law", truth, target=allowed)
    row.ok = off <= allowed
    return row


async def sent(
    law: Law | None,
    rate: float,
    count: int,
    *,
    arrivals: Any = "poisson",
    processes: int = 1,
    concurrency: int | None = None,
    output_tokens: int = 20,
    seed: int = SEED,
) -> tuple[list[RequestRecord], int]:
    """Records by index, and the schedule's zero in ns."""
    turn = Turn(messages=[{"role": "user", "content": PROMPT}], prompt=PROMPT, max_tokens=output_tokens)
    offsets = offsets_ns(Shape(arrivals=arrivals), rate, seed) if concurrency is None else None
    records: list[RequestRecord] = []
    async with running(law, chunks=1) as url:
        outcome = await send(
            plan([Item(turns=[turn])] * count, offsets),
            Endpoint(url=url, model=MODEL, timeout_s=60.0),
            on_record=records.append,
            processes=processes,
            concurrency=concurrency,
        )
    return sorted(records, key=lambda record: record.index), outcome.start_ns


def summary(name: str, records: list[RequestRecord]) -> Summary:
    return summarize(definitions.values(name, records), definitions.UNITS[name])


async def known_latencies(_: Path) -> list[Row]:
    """Constant latencies first, then a queue whose every wait is computed."""
    law = Law(ttft_ms=200, itl_ms=25)
    records, _zero = await sent(law, 10, 120)
    truths = {"ttft": 200.0, "e2el": 675.0, "tpot": 25.0, "itl": 25.0, "icl": 25.0}
    rows = []
    for name, truth in truths.items():
        found = summary(name, records)
        rows += [within("constant latencies", f"{name} {q}", getattr(found, q), truth) for q in ("mean", "p50", "p99")]
    queue = Law(ttft_ms=100, itl_ms=10, slots=4)
    records, zero = await sent(queue, 12, 240)
    answers = replay(queue, [(record.intended_ns - zero) / S for record in records], 10, 20)
    begun = [(record.intended_ns - zero) / S for record in records]
    waits = {
        "ttft_intended": [1000 * (answer.first_s - at) for answer, at in zip(answers, begun, strict=True)],
        "e2el_intended": [1000 * (answer.last_s - at) for answer, at in zip(answers, begun, strict=True)],
    }
    for name, values in waits.items():
        found, wanted = summary(name, records), summarize(values, "ms")
        for q in ("mean", "p50", "p90", "p99"):
            rows.append(within("queue at 87 % of capacity", f"{name} {q}", getattr(found, q), getattr(wanted, q)))
    return rows


async def poisson(_: Path) -> list[Row]:
    """Index of dispersion of what left the client, in 3,000 bins (its own chance error is 0.026)."""
    rows = []
    for processes in (1, 4, 10):
        records, zero = await sent(None, 500, 6000, processes=processes, output_tokens=1)
        times = sorted((record.sent_ns - zero) / S for record in records if record.sent_ns is not None)
        value = dispersion(times, 0.004)
        row = Row(f"Poisson, {processes} processes", "index of dispersion", value, "", "lower", "law", 1.0, target=0.1)
        row.ok = abs(value - 1) <= 0.1
        rows.append(row)
    return rows


async def stall(_: Path) -> list[Row]:
    """A server that stands still for 2 s: seen from the intended start, missed in a closed loop of one."""
    law = Law(ttft_ms=20, itl_ms=10, stall_at_s=4, stall_s=2)
    records, zero = await sent(law, 40, 480, arrivals="constant", output_tokens=3)
    begun = [(record.intended_ns - zero) / S for record in records]
    answers = replay(law, begun, 10, 3)
    wanted = summarize([1000 * (answer.last_s - at) for answer, at in zip(answers, begun, strict=True)], "ms")
    found = summary("e2el_intended", records)
    rows = [within("2 s stall, open loop", f"e2el_intended {q}", getattr(found, q), getattr(wanted, q) or 0.0)
            for q in ("p90", "p95", "p99")]  # fmt: skip
    closed, _zero = await sent(law, 1, 240, concurrency=1, output_tokens=3)
    missed = summary("e2el", closed).p99 or 0.0
    row = Row("2 s stall, closed loop of 1", "e2el p99 misses it", missed, "ms", "lower", target=500.0)
    return [*rows, row]


async def client_speed(_: Path) -> list[Row]:
    """One process: 20-chunk streams from the null server."""
    full = await calibrate(500, chunks=20, seconds=5.0)  # asks for twice the rate
    half = await calibrate(250, chunks=20, seconds=5.0)
    return [
        Row("one process, null server", "chunks read", 20 * (full.null_server_rate or 0.0), "1/s", "higher",
            target=0.99 * 20_000),
        Row("one process, 10,000 chunks/s", "pacing lag p99", half.pacing_p99_ms or 1e9, "ms", "lower", target=5.0),
    ]  # fmt: skip


async def searched(folder: Path) -> list[Row]:
    """P99 with 1,000 requests a level, on 32 slots of 150 ms: 213 requests/s by computation."""
    law = Law(ttft_ms=50, itl_ms=5, slots=32, chunk_tokens=4, output_tokens=21)
    truth = law.capacity(10, 21) or 0.0
    result = await run(law, folder / "search", {
        "load": {"kind": "search", "low": 50.0},
        "slo": [{"metric": "e2el", "quantile": 0.99, "limit_ms": 600}],
        "min_requests": 1000,
        "steady": {"min_s": 12, "max_s": 60},
    }, output=21)  # fmt: skip
    answer = result.capacity
    low, high = (answer.low or 0.0, answer.high or 0.0) if answer is not None else (0.0, 0.0)
    middle = (low * high) ** 0.5
    close = Row(
        "search", "capacity, middle of the interval", middle, "1/s", "higher", "law", truth, target=0.05 * truth
    )
    close.ok = abs(middle - truth) <= 0.05 * truth and high <= 1.0501 * low
    return [
        close,
        Row("search", "certified to pass", low, "1/s", "higher", "law", truth),
        Row("search", "certified to fail", high, "1/s", "higher", "law", truth),
        Row("search", "levels", len(result.levels), "", "lower", target=12),
    ]


async def small_sample(folder: Path) -> list[Row]:
    """200 requests, all of them fast: P99 can't be certified, and is not."""
    result = await run(Law(ttft_ms=20, itl_ms=1), folder / "small", {
        "dataset": {"kind": "synthetic", "prompt": {"mean": 20}, "output": {"mean": 8}, "requests": 200},
        "load": {"kind": "rate", "rate": 40.0},
        "slo": [{"metric": "e2el", "quantile": 0.99, "limit_ms": 5000}],
        "steady": {"min_s": 2, "max_s": 30},
    })  # fmt: skip
    level = result.levels[0]
    told = any(finding.code == "sample_too_small" for finding in level.findings)
    row = Row("200 requests against P99", f"decision: {level.decision}", level.objectives[0].n, "requests", "lower")
    row.ok = level.decision == "undetermined" and level.objectives[0].k == 0 and told
    return [row]


async def other_definitions(folder: Path) -> list[Row]:
    """guidellm's and vLLM's own figures of the same requests, converted by our importers, against ours."""
    records, _zero = await sent(Law(ttft_ms=80, itl_ms=8, chunk_tokens=2), 20, 300, output_tokens=21)
    rows = []
    for tool, found in peers.imported(records, folder).items():
        for name, theirs in found.items():
            for q in ("mean", "p50", "p99"):
                value, ours = getattr(theirs, q), getattr(summary(name, records), q)
                row = Row(f"{tool}, converted", f"{name} {q}", value, "ms", "lower", "ours", ours, target=0.02 * ours)
                row.ok = abs(value - ours) <= 0.02 * ours
                rows.append(row)
    return rows


async def run(law: Law, folder: Path, changes: dict[str, Any], output: int = 8) -> ResultDoc:
    async with running(law) as url:
        spec = {
            "endpoint": {"url": url, "timeout_s": 30},
            "dataset": {"kind": "synthetic", "prompt": {"mean": 20}, "output": {"mean": output}},
            "seed": SEED,
            "warm_up_s": 1,
            "cool_down_s": 30,
            **changes,
        }
        return await Run(read_spec(spec), folder, Levels()).go()


PARTS: dict[str, Callable[[Path], Coroutine[Any, Any, list[Row]]]] = {
    "latencies": known_latencies,
    "poisson": poisson,
    "stall": stall,
    "client": client_speed,
    "small": small_sample,
    "definitions": other_definitions,
    "search": searched,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="folder of the JSON file")
    arguments = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            print(f"{name} …", file=sys.stderr, flush=True)
            rows += asyncio.run(PARTS[name](Path(folder)))
    print(table(rows))
    missed = [row for row in rows if row.ok is False]
    print(f"\n{len(rows)} figures, {len(missed)} missed")
    path = write(
        "self_check", "cpu", platform.processor() or platform.machine(), rows, arguments.out, ("numpy", "msgspec")
    )
    print(json.dumps({"file": str(path), "missed": len(missed)}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
