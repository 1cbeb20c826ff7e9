"""Quantized weights on a CPU: speed, memory and perplexity of each way to serve the demo model, beside float32.

    python -m evaluation.benchmarks.quantization --device cpu [--rounds 3] [--model PATH.gguf] [--llama-cpp PYTHON]

One process per contender and round, rounds interleaved, medians over rounds; greedy, no stop token. prefill: 512 tokens
to the first token. decode: (T(65) − T(1)) / 64 after 128 tokens. concurrent: 8 requests of 128 tokens in and 64 out at
once, output tokens over the whole time. resident: memory of the process after that. perplexity: WikiText-2, 20 windows
of 512 tokens, positions 1 … 511 (35.209 in float32), in the first round only.
--llama-cpp: a Python with `xllamacpp`; llama.cpp then serves the same file in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import engines.native  # noqa: F401  settles how threads wait, before torch is imported
from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.memory_table import resident
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from evaluation.benchmarks.cpu_engine_contenders import prompt
from evaluation.benchmarks.quantized_folder import SCHEMES, write_quantized
from evaluation.benchmarks.report import ROOT, Row, table, write

MODEL = Path.home() / ".cache" / "tursiops" / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = ROOT / "tests" / "data" / "wikitext2_head.txt"
WINDOWS, WINDOW = 20, 512
OUTPUTS, REQUESTS = 64, 8
FLOAT, LLAMA_CPP = "float32", "llama.cpp"


@dataclass(frozen=True, slots=True)
class Contender:
    """options: of EngineConfig. scheme: of a version that is made of the model by rounding, "" for the model itself."""

    label: str
    options: dict[str, Any]
    scheme: str = ""


CONTENDERS = {
    FLOAT: Contender("float32", {"dtype": "float32", "quantized_weights": "dequantized"}),
    "int8": Contender("dynamic int8", {"dtype": "int8"}),
    "gguf": Contender("GGUF blocks kept (Q4_1)", {"quantized_weights": "kept"}),
    **{name: Contender(label, {}, name) for name, label in SCHEMES.items()},
}
TARGETS = {"int8": {"decode": 1.5, "concurrent": 2.2, "prefill": 1.0}}
"""Ratios to float32."""
PERPLEXITY_TARGETS = {"gguf": 1.005, "fp8": 1.03}
"""Ratios, too. Rounded INT8 has none: its activations need SmoothQuant, which the quantization plugin does."""


class Measured:
    """One contender, loaded in this process."""

    def __init__(self, contender: Contender, model: Path) -> None:
        files = sorted(model.iterdir()) if model.is_dir() else [model]
        self.config = EngineConfig(
            speculation="off",
            format="safetensors" if model.is_dir() else "gguf",
            paths={file.name: str(file) for file in files},
            device="cpu",
            max_model_len=1024,
            max_num_seqs=REQUESTS,
            max_batched_tokens=512,
            prefix_cache=False,
            **contender.options,
        )
        self.engine = Offline(self.config)

    def seconds(self, prompts: list[list[int]], outputs: int) -> float:
        begun = time.perf_counter()
        self.engine.generate(prompts, SamplingParams(temperature=0, max_tokens=outputs))
        return time.perf_counter() - begun

    def figures(self) -> dict[str, float]:
        long, short = _prompts()
        self.seconds([short[0]], 4)  # warm up
        found = {"prefill": median(self.seconds([ids], 1) for ids in long)}
        first = median(self.seconds([ids], 1) for ids in short[:3])
        whole = median(self.seconds([ids], OUTPUTS + 1) for ids in short[:3])
        found["decode"] = (whole - first) / OUTPUTS
        found["concurrent"] = self.seconds(short, OUTPUTS) / (len(short) * OUTPUTS)
        found["resident"] = resident() / 1e6
        return found

    def perplexity(self) -> float:
        tokenizer, _ = load_tokenizer(open_model(self.config.format, dict(self.config.paths)))
        ids = tokenizer.encode(TEXT.read_text(encoding="utf-8"), add_special_tokens=False).ids
        windows = [ids[first : first + WINDOW] for first in range(0, WINDOWS * WINDOW, WINDOW)]
        found = self.engine.generate(windows, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0))
        scores = [score for each in found for score in each.prompt_logprobs]
        if len(scores) != WINDOWS * (WINDOW - 1):
            raise RuntimeError(f"{len(scores)} tokens were scored, not {WINDOWS * (WINDOW - 1)}")
        return math.exp(-sum(scores) / len(scores))


def _prompts() -> tuple[list[list[int]], list[list[int]]]:
    return [prompt(seed, 512) for seed in range(3)], [prompt(9 + i, 128) for i in range(REQUESTS)]


def child(name: str, model: Path, *, perplexity: bool) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--device", "cpu", "--child", name]
    command += ["--model", str(model)]
    return _last_line(command + (["--perplexity"] if perplexity else []))


def llama_cpp(python: str, model: Path) -> dict[str, float]:
    long, short = _prompts()
    spec = {"long": long, "short": short, "outputs": OUTPUTS, "threads": len(os.sched_getaffinity(0))}
    script = ROOT / "evaluation" / "benchmarks" / "llama_cpp_contender.py"
    return _last_line([python, str(script), str(model), json.dumps(spec)])


def _last_line(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(names: list[str], rounds: int, model: Path, python: str) -> dict[str, dict[str, float]]:
    """Contender → figure → median over rounds."""
    results: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        models = dict.fromkeys(names, model)
        for name in names:
            if scheme := CONTENDERS[name].scheme:
                models[name] = write_quantized(model, Path(temporary) / name, scheme)
        for number in range(rounds):
            for name in names:
                found = child(name, models[name], perplexity=number == 0)
                results.setdefault(name, []).append(found)
                print(f"round {number + 1}: {name}: {found}", file=sys.stderr, flush=True)
            if python:
                results.setdefault(LLAMA_CPP, []).append(llama_cpp(python, model))
                print(f"round {number + 1}: {LLAMA_CPP}: {results[LLAMA_CPP][-1]}", file=sys.stderr, flush=True)
    return {
        name: {figure: median(one[figure] for one in found if figure in one) for figure in found[0]}
        for name, found in results.items()
    }


def rows_of(results: dict[str, dict[str, float]]) -> list[Row]:
    """Rates in tokens per second; their ratios to float32 carry the targets. llama.cpp stands beside as the peer."""
    rows = []
    for name, found in results.items():
        label = CONTENDERS[name].label if name in CONTENDERS else "llama.cpp, the same GGUF file"
        for figure in ("decode", "concurrent", "prefill"):
            case = f"{figure}, {label}"
            peer = _rate(results[LLAMA_CPP], figure) if LLAMA_CPP in results and name != LLAMA_CPP else None
            rate = _rate(found, figure)
            rows.append(Row(case, "rate", rate, "tok/s", "higher", LLAMA_CPP if peer else "", peer))
            if name != FLOAT and FLOAT in results:
                target = TARGETS.get(name, {}).get(figure)
                ratio = rate / _rate(results[FLOAT], figure)
                rows.append(Row(case, "ratio to float32", ratio, "×", "higher", target=target))
        rows.append(Row(f"memory, {label}", "resident", found["resident"], "MB", "lower"))
        if "perplexity" in found:
            rows.append(Row(f"perplexity, {label}", "perplexity", found["perplexity"], "", "lower"))
            target = PERPLEXITY_TARGETS.get(name)
            if name != FLOAT and FLOAT in results:
                ratio = found["perplexity"] / results[FLOAT]["perplexity"]
                rows.append(Row(f"perplexity, {label}", "ratio to float32", ratio, "×", "lower", target=target))
    return rows


def _rate(found: dict[str, float], figure: str) -> float:
    return (512 if figure == "prefill" else 1) / found[figure]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu",), required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--llama-cpp", default="", metavar="PYTHON")
    parser.add_argument("--child", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    parser.add_argument("--perplexity", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measured = Measured(CONTENDERS[options.child], options.model)
        found = measured.figures() | ({"perplexity": measured.perplexity()} if options.perplexity else {})
        print(json.dumps(found))
        return 0
    rows = rows_of(run(options.only, options.rounds, options.model, options.llama_cpp))
    rows.append(Row("machine", "load over 5 minutes", os.getloadavg()[1], "processes", "lower"))
    print(table(rows))
    if set(options.only) != set(CONTENDERS):
        return 0  # a part is not the table
    command = f"python -m evaluation.benchmarks.quantization --device cpu --rounds {options.rounds}"
    if options.llama_cpp:
        command += " --llama-cpp …"
    name = f"{len(os.sched_getaffinity(0))} CPU cores"
    print(write("quantization", "cpu", name, rows, ROOT / "docs" / "benchmarks", ("torch",), command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
