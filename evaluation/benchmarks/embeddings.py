"""Embeddings on a CPU beside sentence-transformers: same weights, same texts, same machine, same minutes.

    python -m evaluation.benchmarks.embeddings [--rounds 3] [--texts 512] [--peer-python PATH] [--model FOLDER]

all-MiniLM-L6-v2 in float32, texts of mixed lengths from the data sets in ../shared/data, cut at 256 tokens by both
sides. One process per contender and round (thread pools of two libraries spin against each other), rounds interleaved,
medians over rounds.
core: texts in, vectors out in one process, tokenizing included, against `SentenceTransformer.encode` (batches of 32,
sorted by length: its default). http: the instance as a node starts it, 4 clients with 64 texts a request, base64;
against the same `encode`, which has no server. On a machine that others use, too, the clock says who was disturbed;
processor time (user and system, of all threads; of the http case's server) then tells more.
--peer-python: an interpreter with sentence-transformers. Without one its way is taken with transformers alone: sorted
by length, batches of 32 padded to the longest, mean over the mask, normalised.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from evaluation.benchmarks import embedding_contenders as contenders
from evaluation.benchmarks.report import ROOT, Row, table, write

CONTENDERS = ("peer", "core", "http")
MODEL = Path.home() / ".cache" / "tursiops" / "weights" / "all-MiniLM-L6-v2"
DATA = ROOT.parent / "shared" / "data"


def run(rounds: int, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Contender → figures of each round: seconds, texts, tokens, and how far vectors are from the peer's."""
    results: dict[str, list[dict[str, float]]] = {contender: [] for contender in CONTENDERS}
    for number in range(rounds):
        for contender in CONTENDERS:
            python = options.peer_python or sys.executable if contender == "peer" else sys.executable
            words = ["--child", contender, "--texts", str(options.texts), "--model", str(options.model)]
            command = [python, "-W", "ignore", "-m", __spec__.name, *words, "--data", str(options.data)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            results[contender].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}: {contender}: {results[contender][-1]}", file=sys.stderr, flush=True)
    return results


def rows_of(results: dict[str, list[dict[str, float]]], peer: str) -> list[Row]:
    """Rates, and their ratios to the peer's, which carry the target. The checksums show that both did the same work."""

    def rate(contender: str, unit: str, per: str = "seconds") -> float:
        return median(one[unit] / one[per] for one in results[contender])

    rows = []
    for contender in ("core", "http"):
        for unit in ("texts", "tokens"):
            value, against = rate(contender, unit), rate("peer", unit)
            rows.append(Row(contender, f"{unit} a second", value, f"{unit}/s", "higher", peer, against))
        for per, name in (("seconds", "by the clock"), ("processor", "by processor time")):
            ratio = rate(contender, "texts", per) / rate("peer", "texts", per)
            rows.append(Row(contender, f"ratio to the peer {name}", ratio, "×", "higher", target=1.0))
    for contender in CONTENDERS:
        share = median(one["processor"] / one["seconds"] for one in results[contender])
        rows.append(Row(contender, "processors that it got", share, "", "higher"))
    difference = abs(results["core"][0]["checksum"] - results["peer"][0]["checksum"])
    same = "difference of checksums (mean absolute sum of a vector)"
    rows.append(Row("core", same, difference, "", "lower", target=1e-4))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--model", type=Path, default=MODEL, help="folder with the model as the hub holds it")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--peer-python", default="", help="an interpreter with sentence-transformers")
    parser.add_argument("--child", choices=CONTENDERS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(contenders.measure(options.child, options.model, options.data, options.texts)))
        return 0
    load = os.getloadavg()[0]
    rows = rows_of(run(options.rounds, options), contenders.peer_name(options.peer_python))
    rows.append(Row("machine", "load in the minute before", load, "processes", "lower"))
    print(table(rows))
    device = f"{len(os.sched_getaffinity(0))} CPU cores"
    command = f"python -m evaluation.benchmarks.embeddings --rounds {options.rounds} --texts {options.texts}"
    command += " --peer-python …" if options.peer_python else ""
    folder, packages = ROOT / "docs" / "benchmarks", ("torch", "transformers")
    print(write("embeddings", "cpu", device, rows, folder, packages, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
