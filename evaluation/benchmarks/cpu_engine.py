"""The native engine on a CPU beside transformers `generate`: same weights, same prompts, same machine, same minutes.

    python -m evaluation.benchmarks.cpu_engine [--rounds 3] [--model PATH.gguf]

One process per contender and round (thread pools of two libraries spin against each other), rounds interleaved,
medians over rounds. Token ids in and token ids out on both sides, greedy, no stop token. Our threads wait as a core's
do (`engines.native.threads`), those of transformers as libgomp has them by itself: both spin.
On random ids, ours one token a pass (speculation off):
prefill: 512 tokens to the first token. decode: (T(65) − T(1)) / 64 after 128 tokens. throughput: 8 requests of 128
tokens in and 64 out, ours at once, transformers one after the other; output tokens over the whole time.
On the chat prompts of tests/data, as a deployment runs it (speculation "auto", an empty cache, prompts and answers
new to it): chat decode: (T(48) − T(1)) / 47, one request after the other. chat throughput: 8 requests of 48 tokens out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from evaluation.benchmarks import cpu_engine_contenders as contenders
from evaluation.benchmarks.report import ROOT, Row, table, write

CONTENDERS = ("transformers float32", "native float32", "native int8", "deployed float32", "deployed int8")
MODEL = Path.home() / ".cache" / "tursiops" / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
OUTPUTS = 64
LIBGOMP = {"GOMP_SPINCOUNT": "300000"}
"""How long threads spin where nobody says otherwise: what a user of transformers has."""
CHATS = ROOT / "tests" / "data" / "smollm2_135m_greedy_fp32.jsonl"
"""Prompts under SmolLM2's template with transformers' answers, most of them cut at CHAT_OUTPUTS tokens."""
CHAT_OUTPUTS = 48
AT_ONCE = 8


def measure(contender: str, model: Path) -> dict[str, float]:
    """In this process: seconds per case of one contender."""
    engine, _, dtype = contender.partition(" ")
    generate = contenders.LOADERS[engine](model, dtype)
    generate([contenders.prompt(9, 128)], 4)  # warm up
    figures: dict[str, float] = {}
    if engine != "deployed":
        figures |= _on_random_ids(generate, at_once=engine == "native")
    if engine != "native":
        figures |= _on_chats(generate, at_once=engine == "deployed")
    return figures


def _on_random_ids(generate: contenders.Generate, *, at_once: bool) -> dict[str, float]:
    long, short = [contenders.prompt(seed, 512) for seed in range(3)], [contenders.prompt(9 + i, 128) for i in range(8)]
    figures = {"prefill": median(_seconds(generate, [ids], 1) for ids in long)}
    first = median(_seconds(generate, [ids], 1) for ids in short[:3])
    whole = median(_seconds(generate, [ids], OUTPUTS + 1) for ids in short[:3])
    figures["decode"] = (whole - first) / OUTPUTS
    batch = short[:AT_ONCE] if at_once else short[:2]  # one after the other: two tell as much as eight
    figures["throughput"] = _seconds(generate, batch, OUTPUTS) / (len(batch) * OUTPUTS)
    return figures


def _on_chats(generate: contenders.Generate, *, at_once: bool) -> dict[str, float]:
    """Each prompt is asked once alone and, at once, others: a cache that learns has seen none of them before."""
    chats = [json.loads(line) for line in CHATS.read_text(encoding="utf-8").splitlines()]
    prompts = [chat["prompt_token_ids"] for chat in chats if len(chat["output_token_ids"]) == CHAT_OUTPUTS]
    alone, together = prompts[:AT_ONCE], prompts[AT_ONCE : 2 * AT_ONCE]
    firsts = sum(_seconds(generate, [ids], 1) for ids in alone)
    wholes = sum(_seconds(generate, [ids], CHAT_OUTPUTS) for ids in alone)
    figures = {"chat decode": (wholes - firsts) / (len(alone) * (CHAT_OUTPUTS - 1))}
    batches = [together] if at_once else [[ids] for ids in together]
    figures["chat throughput"] = sum(_seconds(generate, batch, CHAT_OUTPUTS) for batch in batches) / (
        len(together) * CHAT_OUTPUTS
    )
    return figures


def _seconds(generate: contenders.Generate, prompts: list[list[int]], outputs: int) -> float:
    begun = time.perf_counter()
    generate(prompts, outputs)
    return time.perf_counter() - begun


def run(rounds: int, model: Path) -> dict[str, dict[str, float]]:
    """Contender → case → median seconds over rounds."""
    results: dict[str, list[dict[str, float]]] = {contender: [] for contender in CONTENDERS}
    for number in range(rounds):
        for contender in CONTENDERS:
            spins = LIBGOMP if contender.startswith("transformers") else {}
            command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--child", contender, "--model", str(model)]
            done = subprocess.run(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env={**os.environ, **spins},
            )
            results[contender].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}: {contender}: {results[contender][-1]}", file=sys.stderr, flush=True)
    return {
        contender: {case: median(one[case] for one in figures) for case in figures[0]}
        for contender, figures in results.items()
    }


def rows_of(results: dict[str, dict[str, float]]) -> list[Row]:
    """Rates in tokens per second, and their ratios to transformers, which carry the targets."""
    peer = {case: 1 / seconds for case, seconds in results["transformers float32"].items()}
    peer["prefill"] *= 512
    rows = []
    for contender, targets in (
        ("native float32", {"prefill": 1.0, "decode": 1.5, "throughput": None}),
        ("native int8", {"prefill": None, "decode": 2.3, "throughput": 8.0}),
        ("deployed float32", {"chat decode": 1.5, "chat throughput": None}),
        ("deployed int8", {"chat decode": 2.3, "chat throughput": 8.0}),
    ):
        for case, target in targets.items():
            rate = (512 if case == "prefill" else 1) / results[contender][case]
            label, against = f"{case}, {contender}", "transformers float32"
            rows.append(Row(label, "rate", rate, "tok/s", "higher", peer=against, peer_value=peer[case]))
            rows.append(Row(label, "ratio to transformers", rate / peer[case], "×", "higher", target=target))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--child", choices=CONTENDERS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.model)))
        return 0
    rows = rows_of(run(options.rounds, options.model))
    load = os.getloadavg()[1]
    rows.append(Row("machine", "load over 5 minutes", load, "processes", "lower"))
    print(table(rows))
    name = f"{len(os.sched_getaffinity(0))} CPU cores"
    path = write("cpu_engine", "cpu", name, rows, ROOT / "docs" / "benchmarks", ("torch", "transformers"))
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
