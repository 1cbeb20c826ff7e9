"""`tursiops-eval plan …`: what to buy, from a profile; the grid of a running engine; a plan against its load test."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evaluation.commands import ERROR, FAIL, PASS
from evaluation.planner import benchmark_rows, confirm, hardware, schemes, show, util_grid
from evaluation.planner.answers import Plan
from evaluation.planner.calibrate import CalibrationError, Recipe, calibrate
from evaluation.planner.candidates import default_kv
from evaluation.planner.constraints import ConstraintError
from evaluation.planner.memory import Layout
from evaluation.planner.model_spec import ModelSpec, SpecError, load
from evaluation.planner.recommend import recommend
from evaluation.planner.roofline import Roof
from evaluation.profile import ProfileError, fit, guesses_in, read_profile
from evaluation.schema import Endpoint, Objective, RequestRecord, read_result

if TYPE_CHECKING:
    from evaluation.commands import Commands

REFUSALS = (
    ProfileError, SpecError, ConstraintError, CalibrationError, confirm.ConfirmError, hardware.UnknownGpu,
    schemes.UnknownScheme, msgspec.ValidationError, msgspec.DecodeError, OSError, ValueError,
)  # fmt: skip


def register(commands: Commands) -> None:
    parser = commands.add_parser("plan", help="memory, latency and cost of a deployment before it is bought")
    actions = parser.add_subparsers(dest="planning", required=True, metavar="ACTION")
    make = actions.add_parser("recommend", help="which hardware serves a profile")
    make.add_argument("profile", type=Path, help="a BusinessProfile in JSON (docs/planner.md)")
    _add_model(make)
    make.add_argument("--constraints", type=Path, help="JSON: gpus, schemes, prices … (docs/planner.md)")
    make.add_argument("--grid", type=Path, action="append", default=[], help="measured by `calibrate`; may be repeated")
    make.add_argument("--out", type=Path, help="write the plan as JSON")
    make.set_defaults(action=_told(_recommend))
    fitting = actions.add_parser("profile", help="fit a profile from exported usage records")
    fitting.add_argument("rows", type=Path, help="JSON list, or JSON lines, with the fields of UsageRecord")
    fitting.add_argument("--name", default="fitted")
    fitting.add_argument("--slo", action="append", default=[], metavar="METRIC:QUANTILE:MS", help="as ttft:0.95:800")
    fitting.add_argument(
        "--guessed", type=Path, help="requests.jsonl of a load test, for what speculation makes of them"
    )
    fitting.add_argument("--out", type=Path, required=True)
    fitting.set_defaults(action=_told(_profile))
    live = actions.add_parser("calibrate", help="time a running engine's steps, or take them from a benchmark's file")
    _add_model(live)
    live.add_argument("--gpu", required=True, help=f"one of {', '.join(hardware.table())}")
    live.add_argument("--scheme", default="bfloat16", help=f"of the weights: {', '.join(schemes.SCHEMES)}")
    live.add_argument("--kv-dtype", default="", help="of the KV cache; as the weights are computed by default")
    live.add_argument("--tp", type=int, default=1)
    live.add_argument("--url", default="", help="of the engine, without /v1")
    live.add_argument("--served", default="", help="the model's name there")
    live.add_argument("--key-env", default="", help="environment variable with its key")
    live.add_argument("--benchmark", type=Path, help="a file of docs/benchmarks instead of --url")
    live.add_argument("--case", default="", help="what its cases begin with, as llama8b")
    live.add_argument("--rows", type=_numbers, default=(1, 4, 16, 64), help="decode rows, as 1,8,64")
    live.add_argument("--contexts", type=_numbers, default=(128, 1024))
    live.add_argument("--prompts", type=_numbers, default=(64, 512, 2048))
    live.add_argument("--beside", type=_numbers, default=(128,), help="prompts that are timed beside rows that decode")
    live.add_argument("--step-tokens", type=int, default=8192, help="the engine's max_batched_tokens")
    live.add_argument("--repeats", type=int, default=3)
    live.add_argument("--out", type=Path, required=True)
    live.set_defaults(action=_told(_calibrate))
    check = actions.add_parser("confirm", help="a plan's figures beside a load test's")
    check.add_argument("plan", type=Path)
    check.add_argument("result", type=Path, help="result.json of a run at the planned peak")
    check.add_argument("--choice", type=int, default=None, help="index; the recommended one by default")
    check.set_defaults(action=_told(_confirm))


def _told(action: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """What was given wrong is one line on stderr."""

    def told(options: argparse.Namespace) -> int:
        try:
            return action(options)
        except REFUSALS as error:
            print(f"tursiops-eval plan: {error}", file=sys.stderr)
            return ERROR

    return told


def model_of(path: Path, name: str = "") -> ModelSpec:
    """From a config.json, a folder that has one, a shape in JSON, or a GGUF file (read by the engine's inspector)."""
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".gguf":
        return load(_inspected(path), name or path.stem)
    return load(json.loads(path.read_text(encoding="utf-8")), name or path.parent.name)


def _recommend(options: argparse.Namespace) -> int:
    profile = read_profile(options.profile.read_bytes())
    constraints = json.loads(options.constraints.read_text(encoding="utf-8")) if options.constraints else {}
    measured = [util_grid.read(path) for path in options.grid]
    plan = recommend(profile, model_of(options.model, options.name), constraints, measured, _now())
    if options.out:
        _write(options.out, plan)
    print(show.text(plan))
    return PASS if plan.recommended is not None else FAIL


def _profile(options: argparse.Namespace) -> int:
    text = options.rows.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    else:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    profile = fit(rows, options.name, slo=[_objective(each) for each in options.slo])
    if options.guessed:
        lines = options.guessed.read_bytes().splitlines()
        records = [msgspec.json.decode(line, type=RequestRecord) for line in lines]
        profile = msgspec.structs.replace(profile, guesses=guesses_in(records))
    _write(options.out, profile)
    prefixes = ", ".join(f"{group.prefix_tokens} tokens × {group.share:.0%}" for group in profile.groups)
    print(
        f"{profile.source}: {profile.arrivals.rate:.3f} requests/s, peak {profile.arrivals.peak:.3f}; "
        f"prefixes: {prefixes}"
    )
    return PASS


def _calibrate(options: argparse.Namespace) -> int:
    device, scheme = hardware.gpu(options.gpu), schemes.scheme(options.scheme)
    kv_dtype = options.kv_dtype or default_kv(device, scheme)
    roof = Roof(model_of(options.model, options.name), device, scheme, kv_dtype, Layout(options.tp))
    if options.benchmark:
        rows = benchmark_rows.read(options.benchmark, options.case, options.step_tokens)
        grid = util_grid.fit(
            roof, list(rows.measurements.values()), kv_dtype=kv_dtype, device_name=rows.device, versions=rows.versions,
            created_at=_now(),
        )  # fmt: skip
    elif options.url:
        recipe = Recipe(
            rows=options.rows, contexts=options.contexts, prompts=options.prompts, beside=options.beside,
            step_tokens=options.step_tokens, repeats=options.repeats, last_id=min(30_000, roof.model.vocab),
            first_id=min(1_000, roof.model.vocab // 2),
        )  # fmt: skip
        endpoint = Endpoint(url=options.url, model=options.served)
        key = os.environ.get(options.key_env, "") if options.key_env else ""
        grid = asyncio.run(calibrate(endpoint, roof, recipe, api_key=key, kv_dtype=kv_dtype, created_at=_now()))
    else:
        raise ValueError("calibrate: neither --url nor --benchmark was given; name a running engine or a file")
    _write(options.out, grid)
    error = "too few points to tell" if grid.error is None else f"{grid.error:.1%}"
    print(f"{options.out}: {len(grid.points)} points; left out one by one, their median error is {error}")
    return PASS


def _confirm(options: argparse.Namespace) -> int:
    plan = msgspec.json.decode(options.plan.read_bytes(), type=Plan)
    index = options.choice if options.choice is not None else plan.recommended
    if index is None or not 0 <= index < len(plan.choices):
        raise ValueError(f"choice: {index} is none of the plan's {len(plan.choices)} choices; give --choice")
    result = read_result(options.result.read_bytes())
    residuals = confirm.confirm(plan.choices[index], plan.summary["peak"], result)
    print(confirm.table(residuals))
    return FAIL if any(each.verdict == "missed" for each in residuals) else PASS


def _inspected(path: Path) -> dict[str, Any]:
    """The shape of a GGUF file: docs/contracts.md §8."""
    spec = json.dumps({"paths": {path.name: str(path.resolve())}, "format": "gguf"})
    argv = [sys.executable, "-m", "engines.native.inspect"]
    done = subprocess.run(argv, input=spec, capture_output=True, text=True, check=False, timeout=120)
    last = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    if last.get("type") != "report":
        raise SpecError(f"{path}: {last.get('message') or done.stderr[-500:] or 'the inspector said nothing'}")
    report = last["data"]
    return {**report["shape"], "dtype": report["dtype"]}


def _objective(text: str) -> Objective:
    try:
        metric, quantile, limit = text.split(":")
        return msgspec.convert({"metric": metric, "quantile": float(quantile), "limit_ms": float(limit)}, Objective)
    except (ValueError, msgspec.ValidationError) as error:
        raise ProfileError(f"slo: {text!r} ({error}); write metric:quantile:milliseconds, as ttft:0.95:800") from error


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, help="config.json, its folder, a shape, or a GGUF file")
    parser.add_argument("--name", default="", help="of the model in the plan")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
