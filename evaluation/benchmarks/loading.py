"""From process start to first token, by phase, and what loading holds in memory.

    python -m evaluation.benchmarks.loading [--shape llama8b] [--layers N] [--dtype D] [--folder DIR] [--out FOLDER]

Makes a safetensors model of the shape with random bfloat16 weights in DIR (kept there; a temporary folder if none is
given), so that it lies in the page cache, then starts the real API process and core on it and asks for one token.
Phases by the core's own clock (`loading_core`), all on the machine's monotonic clock. --cold drops the file from the
page cache before each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import torch

from engines.api import LaunchSpec, Local, ModelFile, Phase, RunDir
from evaluation.benchmarks import report, serve_model
from evaluation.benchmarks.report import Row

TARGET_S = 25.0
"""Of an 8B model, from the page cache."""
TOKEN = "benchmark"
_BLOCK = 32 * 2**20
_MIB = 2**20

_SERVE = """
import asyncio, sys
from pathlib import Path
from engines.api import RunDir
from engines.native.serve import __main__ as served

served.core_module = lambda run_dir: "evaluation.benchmarks.loading_core"
sys.exit(asyncio.run(served.serve(RunDir(Path(sys.argv[1])))))
"""


def make_model(shape: str, layers: int, folder: Path) -> dict[str, str]:
    """The files of a model with random weights; what is there already is used again."""
    made = folder / "made.json"
    if made.is_file():
        paths: dict[str, str] = json.loads(made.read_text())
        return paths
    paths = serve_model.write(shape, folder, layers)
    file = Path(paths["model.safetensors"])
    block = torch.randn(_BLOCK // 2).mul_(0.02).bfloat16().view(torch.uint8).numpy().data
    size = file.stat().st_size
    with file.open("r+b") as out:
        at = 8 + int.from_bytes(out.read(8), "little")
        out.seek(at)
        while at < size:
            at += out.write(block[: size - at])
    made.write_text(json.dumps(paths))
    return paths


def warm(path: str) -> None:
    """Into the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(_BLOCK):
            pass


def cool(path: str) -> None:
    """Out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


async def start(folder: Path, paths: dict[str, str], sizes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Marks by name; each stands for the end of its phase."""
    run_dir = RunDir(folder)
    files = [ModelFile(name, "0" * 64, Path(path).stat().st_size) for name, path in paths.items()]
    spec = LaunchSpec(
        instance_id="benchmark", served_name="benchmark", files=files, format="safetensors", options={}, **sizes
    )
    run_dir.write_spec(spec, Local(paths, "127.0.0.1", 0, TOKEN, 1))
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVE, str(folder), stdin=asyncio.subprocess.DEVNULL
    )
    try:
        while True:
            state = run_dir.read_state()
            if state is not None and state.phase is Phase.READY:
                break
            if process.returncode is not None:
                raise RuntimeError(f"the server ended: {state.reason if state else 'without a word'}")
            await asyncio.sleep(0.01)
        ready = time.perf_counter()
        await first_token(f"http://127.0.0.1:{state.port}")
        told = time.perf_counter()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    marks: dict[str, dict[str, Any]] = json.loads((folder / "marks.json").read_text())
    return {"begun": {"at": begun}, **marks, "ready over HTTP": {"at": ready}, "first token": {"at": told}}


async def first_token(url: str) -> None:
    body = {"model": "benchmark", "prompt": list(range(300, 428)), "max_tokens": 1, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url + "/v1/completions", json=body) as response,
    ):
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {await response.text()}")
        await response.read()


def rows(case: str, rounds: list[dict[str, dict[str, Any]]], size: int, target: float | None) -> list[Row]:
    """Of the fastest round."""
    marks = min(rounds, key=lambda each: each["first token"]["at"] - each["begun"]["at"])
    found = []
    before = marks["begun"]["at"]
    for name, mark in list(marks.items())[1:]:
        found.append(Row(case, name, mark["at"] - before, "s", "lower"))
        before = mark["at"]
    weights = next(row for row in found if row.metric == "weights")
    found.append(Row(case, "process start to first token", before - marks["begun"]["at"], "s", "lower", target=target))
    found.append(Row(case, "rate of the weights", size / weights.value / 1e9, "GB/s", "higher"))
    loaded = marks["weights"]
    found.append(Row(case, "resident after the weights, its own", loaded["RssAnon"] / _MIB, "MiB", "lower"))
    found.append(Row(case, "most resident until then", loaded["VmHWM"] / _MIB, "MiB", "lower"))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("llama8b", "qwen06b", "tiny"), default="llama8b")
    parser.add_argument("--layers", type=int, default=0, help="fewer than the shape has, for small machines")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--kv-cache-bytes", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the model is made, or was")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        paths = make_model(options.shape, options.layers, options.folder or Path(name) / "model")
        file = paths["model.safetensors"]
        sizes = {
            "dtype": options.dtype,
            "max_model_len": min(options.max_model_len, 512) if options.shape == "tiny" else options.max_model_len,
            "kv_cache_bytes": options.kv_cache_bytes,
        }
        rounds = []
        for number in range(options.rounds):
            (cool if options.cold else warm)(file)
            rounds.append(asyncio.run(start(Path(name) / f"run{number}", paths, sizes)))
        size = os.path.getsize(file)
    layers = f", {options.layers} layers" if options.layers else ""
    case = f"{options.shape}{layers}, {'cold' if options.cold else 'page cache'}"
    target = TARGET_S if options.shape == "llama8b" and not options.layers and not options.cold else None
    found = rows(case, rounds, size, target)
    print(report.table(found))
    if options.out:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        report.write("loading", options.device, name, found, options.out, ("torch", "triton"), commit=options.commit)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
