"""Quantization-aware training of the demo model: how much of what rounding lost it wins back, and in how long.

    python -m evaluation.benchmarks.qat [--algorithm rtn] [--steps 60] [--option qat_train=lora …] [--place FOLDER]

SmolLM2-135M, INT4 in groups of 64, symmetric. The job runs as the platform runs it (python -m plugins.quantization.job,
back end qat). Its rows are of WikiText-2's test file, more than 1,000 tokens behind the 20 windows of 512 tokens that
perplexity is measured on here (positions 1 … 511; 35.209 in float32); the job itself measures on the last eighth of its
rows. --place keeps the work of a run that was ended: it goes on at its last checkpoint. Rows replace theirs, by
algorithm and what is trained, in docs/quality/qat.cpu.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from evaluation.benchmarks.quantization_peers import perplexity
from evaluation.benchmarks.quantization_quality import APART, FLOAT, TEXT, WEIGHTS, WINDOW
from evaluation.benchmarks.report import ROOT

OUTPUT = ROOT / "docs" / "quality" / "qat.cpu.json"
RECIPE = {"scheme": "w4a16_gptq", "group_size": 64, "samples": 192, "tokens": 128}


def text_behind_the_windows(place: Path) -> Path:
    tokenizer, _ = load_tokenizer(open_model("gguf", {WEIGHTS.name: str(WEIGHTS)}))
    text = TEXT.read_text(encoding="utf-8")
    first = tokenizer.encode(text, add_special_tokens=False).offsets[20 * WINDOW + APART][0]
    path = place / "text.txt"
    path.write_text(text[first:], encoding="utf-8")
    return path


def job(recipe: dict[str, Any], place: Path, name: str) -> tuple[dict[str, Any], str]:
    """The report and its verdict; the version lies in place/name. Raises RuntimeError with the job's own words."""
    spec = {
        "recipe": recipe,
        "paths": {WEIGHTS.name: str(WEIGHTS)},
        "format": "gguf",
        "calibration": str(text_behind_the_windows(place)),
        "workdir": str(place / f"{name}.work"),
        "staging": str(place / name),
    }
    command = [sys.executable, "-m", "plugins.quantization.job"]
    last: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(spec))
        child.stdin.close()
        for line in child.stdout:
            last = json.loads(line)
            if last["type"] in ("progress", "log"):
                print(f"{time.strftime('%H:%M:%S')} {last['text']}", flush=True)
    if last.get("type") != "report":
        raise RuntimeError(f"{recipe}: {last}")
    report: dict[str, Any] = last["data"]
    return report, last["verdict"]


def measured(recipe: dict[str, Any], place: Path) -> dict[str, Any]:
    """A row of the result."""
    threads = torch.get_num_threads()  # of the job, which has the same environment; the engine below takes all cores
    report, verdict = job(recipe, place, "trained")
    native = {name: value for name, value in recipe.items() if not name.startswith("qat_")} | {"backend": "native"}
    job(native, place, "rounded")
    rounded, trained = (perplexity(place / name, "dequantized") for name in ("rounded", "trained"))
    training = report["training"]
    return {
        "start": report["algorithm"],
        "train": training["train"],
        "verdict": verdict,
        "job_gap": training["gap"],
        "wikitext2": {
            "model": FLOAT,
            "rounded": round(rounded, 3),
            "trained": round(trained, 3),
            "recovery": round((rounded - trained) / (rounded - FLOAT), 4),
        },
        "steps": training["steps"],
        "rows_per_step": training["rows"],
        "tokens_per_row": recipe["tokens"],
        "learning_rate": training["learning_rate"],
        "loss": [round(training["first_loss"], 4), round(training["last_loss"], 4)],
        "changed_codes": round(training["changed_codes"], 4),
        "trained_parameters": training["trained_parameters"],
        "training_seconds": training["seconds"],
        "seconds": report["seconds"],
        "peak_memory": report["peak_memory"],
        "dtype": report["dtype"],
        "threads": threads,
        "size": report["size"],
    }


def write(row: dict[str, Any]) -> None:
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.is_file() else []
    key = row["start"], row["train"]
    body = {
        "name": "qat",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": "SmolLM2-135M-Instruct, Q4_1 GGUF dequantized; INT4, groups of 64, symmetric",
        "protocol": "wikitext2: WikiText-2 raw test, 20 windows of 512 tokens, positions 1..511, no BOS, float32; "
        "job_gap: the last eighth of the job's own rows, from the same file behind the windows",
        "command": "python -m evaluation.benchmarks.qat",
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "rows": [*(each for each in rows if (each["start"], each["train"]) != key), row],
    }
    OUTPUT.write_text(json.dumps(body, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="rtn", choices=["rtn", "gptq"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="another of the recipe")
    parser.add_argument("--place", type=Path)
    options = parser.parse_args(arguments)
    recipe = {**RECIPE, "algorithm": options.algorithm, "backend": "qat", "qat_steps": options.steps}
    for name, _, value in (each.partition("=") for each in options.option):
        recipe[name] = value if value.isalpha() else json.loads(value)
    with nullcontext(str(options.place)) if options.place else tempfile.TemporaryDirectory() as place:
        Path(place).mkdir(parents=True, exist_ok=True)
        row = measured(recipe, Path(place))
    write(row)
    print(json.dumps(row, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
