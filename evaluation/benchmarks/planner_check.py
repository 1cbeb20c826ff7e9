"""The planner against measurement: a native engine on the demo model is calibrated, planned, and then loaded.

    python -m evaluation.benchmarks.planner_check [--model FILE.gguf] [--dtype int8] [--speculation auto] [--out FOLDER]

Under seven minutes on two quiet cores. Memory: the engine's own count (/debug/memory) beside the plan's. Latency: a
Poisson load at a share of the planned capacity, run by `python -m evaluation run`. Throughput: as many requests at once
as a burst, whose end is simulated. Nothing that is compared was calibrated with: other lengths, other batches. How well
answers can be guessed is the traffic's own, as their lengths are: it is taken from requests before those that are
compared, of the same kind and none of them the same. Steps are timed before the load and after it: a machine that
changes meanwhile is no error of the plan, and the last two rows tell how much it did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from evaluation.benchmarks import report
from evaluation.benchmarks.report import Row
from evaluation.client.pool import send
from evaluation.commands.plan import model_of
from evaluation.planner import capacity, hardware, memory, predict, schemes
from evaluation.planner.calibrate import Recipe, Timed, measure
from evaluation.planner.candidates import default_kv
from evaluation.planner.capacity import Bounds, Mean
from evaluation.planner.confirm import TARGETS
from evaluation.planner.roofline import Roof
from evaluation.planner.simulate import Limits, Work, simulate
from evaluation.planner.util_grid import Timing, fit
from evaluation.profile import Guesses, guesses_in
from evaluation.quality.instance import Instance, end_on_signals
from evaluation.schema import Endpoint, RequestRecord, ResultDoc, read_result
from evaluation.workload.item import Item, Turn, plan

DEMO = Path.home() / ".cache" / "tursiops" / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SEQUENCES, LENGTH, STEP_TOKENS = 16, 2048, 512
KV_BYTES = 256 * 2**20
PROMPT, OUTPUT = 96, 40
BURST = 20
WARM_UP_S = 20.0
SHARE = 0.55
"""Of the planned capacity that the latencies are measured at."""
KEY = "TURSIOPS_PLANNER_CHECK_KEY"
RECIPE = Recipe(
    rows=(1, 3, 8, 16), contexts=(64, 320), prompts=(32, 64, 128, 192, 480), beside=(48, 192), step_tokens=STEP_TOKENS,
    repeats=2,
)  # fmt: skip

Triple = tuple[str, str, float, float, float | None]
"""(metric, unit, predicted, measured, target)"""


def memory_figures(instance: Instance, timing: Timing, kv_dtype: str) -> list[Triple]:
    """The engine's own count of its process, after it has worked, beside the plan's lines."""
    address = f"{instance.url}/debug/memory"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {instance.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        table: dict[str, Any] = json.loads(answer.read())
    measured = {part["part"]: part["bytes"] for part in table["parts"]}
    roof = timing.roof
    engine = memory.native(roof.device, roof.scheme, max_length=LENGTH, sequences=SEQUENCES, step_tokens=STEP_TOKENS)
    lines = memory.fixed_lines(roof.model, roof.scheme, engine, roof.device)
    block = int(memory.kv_per_token(roof.model, kv_dtype)) * engine.block
    kv = KV_BYTES // block * block
    weights = next(line.bytes for line in lines if line.part == "weights")
    parts = [
        ("weights", weights, measured["weights"]),
        ("KV cache", kv, measured["kv_cache"]),
        ("all", memory.total(lines) + kv, table["total"]),
    ]
    return [
        (f"memory: {name}", "MiB", predicted / 2**20, found / 2**20, TARGETS["memory"])
        for name, predicted, found in parts
    ]


async def burst(endpoint: Endpoint, key: str, seed: int) -> list[RequestRecord]:
    """All at once."""
    chooser = np.random.default_rng(seed)
    items = [
        Item(turns=[Turn(prompt=chooser.integers(1000, 30_000, PROMPT).tolist(), max_tokens=OUTPUT)])
        for _ in range(BURST)
    ]
    records: list[RequestRecord] = []
    endpoint = msgspec.structs.replace(endpoint, extra_body={"temperature": 0, "ignore_eos": True})
    await send(plan(items), endpoint, on_record=records.append, concurrency=BURST, api_key=key)
    if failed := [record.error for record in records if record.status != "ok"]:
        raise RuntimeError(f"{len(failed)} of {BURST} requests of the burst failed: {failed[0]}")
    return records


def throughput(timing: Timing, before: list[RequestRecord], records: list[RequestRecord]) -> Triple:
    """Requests/s until the last answer's end. before: another burst, which tells how well its answers are guessed."""
    begun = min(record.sent_ns or 0 for record in records)
    measured = BURST / ((max(record.end_ns or 0 for record in records) - begun) / 1e9)
    prompt, cached, output = (np.full(BURST, float(each)) for each in (PROMPT, 0, OUTPUT))
    work = Work(np.zeros(BURST), prompt, cached, output, guesses_in(before))
    planned = simulate(work, Limits(SEQUENCES, STEP_TOKENS), timing.seconds)
    return "throughput of a burst", "req/s", planned.rate, measured, TARGETS["requests_per_s"]


def load_test(url: str, model: str, key: str, rate: float, seconds: float) -> tuple[ResultDoc, list[RequestRecord]]:
    """A Poisson load by evaluation's own runner, in a process of its own. Also gives its requests, warm-up and all."""
    spec = {
        "name": "planner_check",
        "endpoint": {
            "url": url, "model": model, "api": "completions", "api_key_env": KEY,
            "extra_body": {"temperature": 0, "ignore_eos": True},
        },
        "dataset": {"kind": "synthetic", "prompt": {"mean": PROMPT}, "output": {"mean": OUTPUT}},
        "load": {"kind": "rate", "rate": rate},
        "min_requests": max(20, int(rate * seconds * 0.8)),
        "warm_up_s": WARM_UP_S,
        "steady": {"min_s": seconds * 0.8, "max_s": seconds},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ts-planner-") as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps(spec))
        out = Path(folder) / "run"
        argv = [sys.executable, "-m", "evaluation", "run", str(path), "--out", str(out), "--progress", "json"]
        done = subprocess.run(
            argv, env={**os.environ, KEY: key}, capture_output=True, text=True, check=False, timeout=280
        )
        result, requests = out / "result.json", out / "requests.jsonl"
        if not result.is_file() or not requests.is_file():
            raise RuntimeError(f"the load test left no result: {done.stdout[-1000:]} {done.stderr[-1000:]}")
        records = [msgspec.json.decode(line, type=RequestRecord) for line in requests.read_bytes().splitlines()]
        return read_result(result.read_bytes()), records


def latency_figures(timing: Timing, result: ResultDoc, records: list[RequestRecord], guesses: Guesses) -> list[Triple]:
    """P50 of the level, beside a simulation of the same requests at the same times."""
    level = result.levels[0]
    if level.window is None:
        raise RuntimeError(f"the level ({level.verdict}) has no window: {level.reasons}")
    sent = sorted((each for each in records if each.status == "ok"), key=lambda each: each.intended_ns)
    at = np.array([each.intended_ns for each in sent], np.float64)
    prompt, output = (
        np.array([float(each.prompt_tokens or 0) for each in sent]),
        np.array([float(each.output_tokens or 1) for each in sent]),
    )
    work = Work((at - at[0]) / 1e9, prompt, np.zeros(len(sent)), output, guesses)
    planned = predict.run(timing, work, Limits(SEQUENCES, STEP_TOKENS)).middle
    inside = (level.window.start_ns <= at) & (at < level.window.end_ns)
    found: list[Triple] = []
    for metric, target in (("tpot", TARGETS["tpot"]), ("ttft", TARGETS["ttft_p50"]), ("e2el", None)):
        summary = level.metrics.get(f"{metric}_intended") or level.metrics.get(metric)
        if summary is None or summary.p50 is None:
            raise RuntimeError(f"the level ({level.verdict}) has no {metric}: {level.reasons}")
        middle = float(np.median(getattr(planned, metric)[inside])) * 1e3
        name = f"{metric.upper()} P50 at {level.rate or 0:.2f} req/s ({level.verdict})"
        found.append((name, "ms", middle, summary.p50, target))
    return found


def between(before: Timed, after: Timed) -> Timed:
    """Means of the same steps, so that a machine that slowly changes is met as it was in the middle."""
    pairs = zip(before.measurements, after.measurements, strict=True)
    steps = [
        msgspec.structs.replace(
            one, seconds=(one.seconds + other.seconds) / 2, guesses=(one.guesses + other.guesses) / 2
        )
        for one, other in pairs
    ]
    overhead = (before.overhead_s + after.overhead_s) / 2
    return Timed(measurements=steps, overhead_s=overhead, spread=max(before.spread, after.spread))


def rows_of(case: str, figures: list[Triple]) -> list[Row]:
    """Each measured figure with the planned one as its peer, and their distance with its target."""
    rows = []
    for metric, unit, predicted, measured, target in figures:
        rows.append(Row(case, metric, measured, unit, "lower", "planner", predicted))
        away = abs(predicted / measured - 1) * 100
        rows.append(Row(case, f"{metric}, residual", away, "%", "lower", target=target and target * 100))
    return rows


def check(model: Path, dtype: str, speculation: str, seconds: float) -> list[Row]:
    name = model.stem
    device, scheme = hardware.gpu("cpu2"), schemes.scheme(dtype)
    kv_dtype = default_kv(device, scheme)
    roof = Roof(model_of(model, name), device, scheme, kv_dtype)
    settings = {
        "device": "cpu", "dtype": dtype, "max_model_len": LENGTH, "max_num_seqs": SEQUENCES,
        "kv_cache_bytes": KV_BYTES,
        "options": {"max_batched_tokens": STEP_TOKENS, "prefix_cache": False, "speculation": speculation},
    }  # fmt: skip
    with Instance(model, name, **settings) as instance:
        endpoint = Endpoint(url=instance.url, model=name, api="completions")

        def timed() -> Timed:
            return asyncio.run(measure(endpoint, RECIPE, api_key=instance.token))

        def timing_of(found: Timed) -> Timing:
            return Timing(roof, fit(roof, found.measurements, overhead_s=found.overhead_s, kv_dtype=kv_dtype))

        before = timed()
        best = capacity.largest(timing_of(before), Mean(PROMPT, 0, OUTPUT), Bounds(SEQUENCES, 1e9, STEP_TOKENS))
        if best is None:
            raise RuntimeError("the grid says that this machine serves nothing")
        bursts = [asyncio.run(burst(endpoint, instance.token, seed)) for seed in (8, 9)]
        rate = SHARE * best.rate
        print(f"planned capacity {best.rate:.2f} req/s; loading at {rate:.2f}", flush=True)
        result, records = load_test(instance.url, name, instance.token, rate, seconds)
        after = timed()
        timing = timing_of(between(before, after))
        guesses = guesses_in(record for record in records if record.warm_up)
        print(f"{guesses.tokens:.2f} tokens a pass, {guesses.checked:.2f} guesses checked for them, as it warmed up")
        for point in timing.grid.points if timing.grid else []:
            print(f"  {point.op} {point.kind} at {point.rows:g} rows: {point.util:.3f}")
        figures = [throughput(timing, *bursts), *latency_figures(timing, result, records, guesses)]
        figures += memory_figures(instance, timing, kv_dtype)
    case = f"{name} {dtype}, speculation {speculation}"
    return [*rows_of(case, figures), *machine_rows(case, before, after)]


def machine_rows(case: str, before: Timed, after: Timed) -> list[Row]:
    """How quiet the machine was: where these are several per cent, so are the residuals."""
    pairs = zip(before.measurements, after.measurements, strict=True)
    drift = median(abs(other.seconds / one.seconds - 1) for one, other in pairs)
    spread = max(before.spread, after.spread)
    return [
        Row(case, "machine: steps after the load against before, median change", drift * 100, "%", "lower"),
        Row(case, "machine: spread of repeats, median", spread * 100, "%", "lower"),
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--dtype", choices=["int8", "float32"], default="int8")
    parser.add_argument("--speculation", choices=["auto", "off"], default="auto", help="the engine's option")
    parser.add_argument("--seconds", type=float, default=75.0, help="of the load test")
    parser.add_argument("--out", type=Path, help="folder for planner_check.cpu.json")
    options = parser.parse_args(arguments)
    end_on_signals()
    rows = check(options.model, options.dtype, options.speculation, options.seconds)
    print(report.table(rows))
    if options.out:
        name = f"{len(os.sched_getaffinity(0))} CPU cores"
        report.write("planner_check", "cpu", name, rows, options.out, ("torch",))
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
