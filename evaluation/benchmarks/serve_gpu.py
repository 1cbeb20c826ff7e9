"""The native engine over HTTP, streamed: what the API process takes from the figures of `engine_gpu`.

    python -m evaluation.benchmarks.serve_gpu [--shape llama8b] [--streams 64 256] [--out FOLDER]

The same prompts twice in one run, random bf16 weights, greedy, no prefix cache: offline (token ids in and out), then
through the real API process and core, streamed to clients in processes of their own. Both by the same formula:
T(N): from the start to the end of the last answer, median over rounds; TPOT = (T(N) − T(1)) / (N − 1).
`perf_counter` is the machine's monotonic clock, so times of different processes can be compared.
Needs msgspec, pyzmq, orjson, psutil, prometheus-client, aiohttp and tokenizers beside torch.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch

from engines.api import LaunchSpec, Local, ModelFile, Phase, RunDir
from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from evaluation.benchmarks import report, serve_model
from evaluation.benchmarks.engine_cases import BATCHED, LENGTH, ROWS
from evaluation.benchmarks.engine_gpu import prompts, seconds
from evaluation.benchmarks.random_model import random_runner
from evaluation.benchmarks.report import Row

INPUTS, OUTPUTS = 128, 256
CLIENTS = 4
TARGET = 1.05
TOKEN = "benchmark"

Prompts = list[list[int]]


def _sizes(shape: str) -> dict[str, Any]:
    """What both ways are given."""
    if shape == "tiny":
        return {"device": "cpu", "dtype": "float32", "max_model_len": 512, "max_num_seqs": 64}
    return {"device": "cuda", "dtype": "bfloat16", "max_model_len": LENGTH, "max_num_seqs": ROWS}


def _options(shape: str) -> dict[str, Any]:
    return {"prefix_cache": False, "max_batched_tokens": 512 if shape == "tiny" else BATCHED}


def offline(shape: str, paths: dict[str, str], batches: dict[int, list[Prompts]], outputs: int) -> dict[int, float]:
    """TPOT in ms per number of prompts."""
    config = EngineConfig(speculation="off", format="safetensors", paths=paths, **_sizes(shape), **_options(shape))
    runner = random_runner(open_model("safetensors", paths).config, config, seed=1)
    found = {}
    for batch, rounds in batches.items():
        seconds(config, runner, rounds[0], outputs)
        whole, first = (median(seconds(config, runner, asked, n) for asked in rounds) for n in (outputs, 1))
        found[batch] = (whole - first) / (outputs - 1) * 1e3
        print(f"offline, {batch}: {found[batch]:.3f} ms per token", flush=True)
    del runner
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


class Server:
    """The API process and its core; `start` returns when they answer."""

    def __init__(self, shape: str, paths: dict[str, str], folder: Path) -> None:
        self._run_dir = RunDir(folder)
        spec = LaunchSpec(
            instance_id="benchmark",
            served_name="benchmark",
            files=[ModelFile(name, "0" * 64, Path(path).stat().st_size) for name, path in paths.items()],
            format="safetensors",
            options=_options(shape) | {"speculation": "off"},
            **_sizes(shape),
        )
        self._run_dir.write_spec(spec, Local(paths, "127.0.0.1", 0, TOKEN, 1))
        self.url = ""

    async def __aenter__(self) -> Server:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SERVE, str(self._run_dir.path), stdin=asyncio.subprocess.DEVNULL
        )
        while True:
            state = self._run_dir.read_state()
            if state is not None and state.phase is Phase.READY:
                self.url = f"http://127.0.0.1:{state.port}"
                return self
            if self._process.returncode is not None:
                raise RuntimeError(f"the server ended: {state.reason if state else 'without a word'}")
            await asyncio.sleep(0.2)

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await self._process.wait()

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of (API process, core) so far."""
        api = psutil.Process(self._process.pid)
        times = [api.cpu_times(), *(child.cpu_times() for child in api.children())]
        used = [each.user + each.system for each in times]
        return used[0], sum(used[1:])


_SERVE = """
import asyncio, signal, sys
from pathlib import Path
from engines.api import RunDir
from engines.native.serve.lifecycle import Instance

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return await Instance(RunDir(Path(sys.argv[1])), stop, core_module="evaluation.benchmarks.serve_core").serve()

sys.exit(asyncio.run(main()))
"""


async def http_seconds(server: Server, asked: Prompts, outputs: int) -> tuple[float, list[dict[str, Any]]]:
    """(wall time until the last answer's end, what each stream saw)."""
    shares = [asked[index::CLIENTS] for index in range(min(CLIENTS, len(asked)))]
    clients = []
    for share in shares:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "evaluation.benchmarks.serve_load",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26,
        )  # fmt: skip
        work = {"url": server.url, "token": TOKEN, "model": "benchmark", "prompts": share, "outputs": outputs}
        assert client.stdin is not None
        client.stdin.write(json.dumps(work).encode() + b"\n")
        clients.append(client)
    for client in clients:
        assert client.stdout is not None
        await client.stdout.readline()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(b"go\n")
    answers = [json.loads((await client.communicate())[0]) for client in clients]
    streams = [stream for answer in answers for stream in answer["streams"]]
    for stream in streams:
        if stream["tokens"] != outputs:
            raise RuntimeError(f"a stream has {stream['tokens']} tokens, {outputs} were asked for")
    begun = min(answer["begun"] for answer in answers)
    return max(stream["last"] for stream in streams) - begun, streams


async def over_http(
    shape: str, paths: dict[str, str], batches: dict[int, list[Prompts]], outputs: int, folder: Path
) -> dict[int, dict[str, float]]:
    """Per number of streams: TPOT in ms, and what the processes spent on it."""
    found = {}
    async with Server(shape, paths, folder) as server:
        for batch, rounds in batches.items():
            await http_seconds(server, rounds[0], outputs)
            whole, gaps, reads, api_s, core_s, wall = [], [], 0, 0.0, 0.0, 0.0
            for asked in rounds:
                before = server.cpu_s()
                taken, streams = await http_seconds(server, asked, outputs)
                after = server.cpu_s()
                api_s, core_s, wall = api_s + after[0] - before[0], core_s + after[1] - before[1], wall + taken
                whole.append(taken)
                gaps += [stream["longest_gap"] for stream in streams]
                reads += sum(stream["reads"] for stream in streams)
            first = [(await http_seconds(server, asked, 1))[0] for asked in rounds]
            tokens = batch * outputs * len(rounds)
            found[batch] = {
                "tpot": (median(whole) - median(first)) / (outputs - 1) * 1e3,
                "api_us": api_s / tokens * 1e6,
                "api_share": api_s / wall,
                "core_share": core_s / wall,
                "tokens_per_read": tokens / reads,
                "gap": max(gaps) * 1e3,
            }
            print(f"HTTP, {batch}: {found[batch]}", flush=True)
    return found


def rows(shape: str, batch: int, offline_ms: float, http: dict[str, float]) -> list[Row]:
    case = f"{shape} {batch} streams"
    return [
        Row(case, "TPOT over HTTP / offline", http["tpot"] / offline_ms, "x", "lower", target=TARGET),
        Row(case, "TPOT offline", offline_ms, "ms", "lower"),
        Row(case, "TPOT over HTTP", http["tpot"], "ms", "lower"),
        Row(case, "API process, CPU per token", http["api_us"], "µs", "lower"),
        Row(case, "API process, share of a core", http["api_share"], "", "lower"),
        Row(case, "core process, share of a core", http["core_share"], "", "lower"),
        Row(case, "tokens per read of a client", http["tokens_per_read"], "", "lower"),
        Row(case, "longest gap in a stream", http["gap"], "ms", "lower"),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("llama8b", "qwen06b", "tiny"), default="llama8b")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--outputs", type=int, default=OUTPUTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--device", default="h200", help="short name of the device, part of the file's name")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args(arguments)
    if options.shape != "tiny" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; only --shape tiny runs on a CPU")
    device_name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = serve_model.write(options.shape, folder / "model")
        shape = open_model("safetensors", paths).config
        chooser = random.Random(1)
        batches = {
            batch: [
                prompts(chooser, batch, min(INPUTS, shape.context_length // 4), shape) for _ in range(options.rounds)
            ]
            for batch in options.streams
        }
        begun = time.monotonic()
        alone = offline(options.shape, paths, batches, options.outputs)
        served = asyncio.run(over_http(options.shape, paths, batches, options.outputs, folder / "run"))
        print(f"{time.monotonic() - begun:.0f} s", flush=True)
    found = [row for batch in options.streams for row in rows(options.shape, batch, alone[batch], served[batch])]
    packages = ("torch", "triton", "aiohttp", "pyzmq")
    report.write("serve_gpu", options.device, device_name, found, options.out, packages, commit=options.commit)
    print(report.table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
