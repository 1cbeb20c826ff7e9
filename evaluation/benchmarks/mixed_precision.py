"""Mixed precision of a real model, as it is and with one fragile layer planted: is it named, and is it made good?

    python -m evaluation.benchmarks.mixed_precision [plain fragile] [--layer 14] [--bits 4.5 5] [--samples 32]

SmolLM2-135M on WikiText-2: 20 windows of 512 tokens, positions 1 … 511, no BOS; float32 has 35.209. Planted: every
64th output of one layer's up projection becomes a hundredth, the inputs of its down projection that it goes to a
hundredfold. The function stays what it was, but of each group of 64 weights of that down one is now so large that all
others round to nothing. Measured are the model in 4 bits (groups of 64, GPTQ), and mixed from 4, 8 and 16 bits within
--bits for a weight on average. Sensitivity is measured as a quantize job does it: on 16 rows of 64 calibration tokens.
Calibration text lies in the same file more than 1,000 tokens behind the last window. Rows of the models that ran
replace theirs in docs/quality/mixed.cpu.json.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engines.native.loader.model_files import ModelFiles, open_model
from evaluation.benchmarks.hf_folder import export
from evaluation.benchmarks.quantization_quality import (
    FLOAT,
    OPTIONS,
    ROOT,
    TEXT,
    WEIGHTS,
    Sink,
    bits_of,
    products,
    tokens_of,
)
from plugins.quantization.backends.native_mixed import SAMPLES, TOKENS
from plugins.quantization.mixed import Mixed, best
from plugins.quantization.recipe import Recipe, quantize
from plugins.quantization.sensitivity import Sensitivity, sensitivity
from plugins.quantization.simulate import text_losses

RESULTS = ROOT / "docs/quality/mixed.cpu.json"
EVERY, FACTOR = 64, 100
"""Inputs of the planted layer, one in so many, and by how much it is too large."""
SHOWN = 6
MODELS = ("plain", "fragile")
ROUNDED = Recipe(OPTIONS["int4"], "gptq", clip=True)


@dataclass(frozen=True, slots=True)
class Row:
    """model: "plain", or "fragile" with a planted layer. bits: of a weight of the layers on average, scales counted in.
    plan: who made it; kinds: products by how they are kept; planted: how that one is."""

    model: str
    case: str
    perplexity: float
    ratio: float
    bits: float
    seconds: float
    plan: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    planted: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """windows: that are scored; ids: that calibrate. Both int64 [rows, tokens]. rounded: in 4 bits."""

    files: ModelFiles
    model: str
    windows: torch.Tensor
    ids: torch.Tensor
    rounded: Recipe = ROUNDED

    def measured(self, case: str, recipe: Recipe, planted: str, mixed: Mixed | None = None) -> Row:
        sink, started = Sink(), time.monotonic()
        quantize(self.files, recipe, self.ids, sink, _quiet)
        seconds = time.monotonic() - started
        perplexity = math.exp(float(text_losses(self.files, sink.layers, self.windows).mean()))
        plan = mixed.plans[0] if mixed else None
        row = Row(
            model=self.model,
            case=case,
            perplexity=round(perplexity, 3),
            ratio=round(perplexity / FLOAT, 4),
            bits=round(bits_of(self.files, sink.layers), 3),
            seconds=round(seconds, 1),
            plan=plan.name if plan else "",
            kinds=dict(Counter(plan.options.values())) if plan else {},
            planted=plan.options[planted] if plan else "",
        )
        print(f"{row.model:8} {row.case:22} {row.perplexity:9.3f} {row.bits:6.3f} bits {row.kinds}", flush=True)
        return row

    def sensitivity(self) -> Sensitivity:
        return sensitivity(self.files, self.rounded, OPTIONS, self.ids[:SAMPLES, :TOKENS], _quiet)

    def mixed(self, bits: float, found: Sensitivity) -> Mixed:
        weights = products(self.files)
        budget = 2 * (self.files.config.parameters() - weights) + int(weights * bits / 8)
        return best(self.files, self.rounded, OPTIONS, budget, found, self.ids[:SAMPLES, :TOKENS], _quiet)


def _quiet(share: float, doing: str) -> None:
    print(f"\r{share:4.0%} {doing:60}", end="\r", file=sys.stderr, flush=True)


def plant(folder: Path, layer: int) -> None:
    """In a folder that transformers reads: names are those of its Llama."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = f"model.layers.{layer}.mlp"
    tensors[f"{name}.up_proj.weight"][::EVERY] /= FACTOR
    tensors[f"{name}.down_proj.weight"][:, ::EVERY] *= FACTOR
    save_file(tensors, path, {"format": "pt"})


def compared(bench: Bench, bits: list[float], planted: str) -> tuple[list[Row], list[tuple[str, float]]]:
    """Rows, and the products that lose most in 4 bits, with their KL in nats per token."""
    rows = [bench.measured("float32", Recipe(), planted), bench.measured("int4 g64", bench.rounded, planted)]
    found = bench.sensitivity()
    ranking = found.ranking("int4")[:SHOWN]
    print(f"{bench.model}: " + ", ".join(f"{name} {kl:.4f}" for name, kl in ranking), flush=True)
    for each in bits:
        mixed = bench.mixed(each, found)
        rows.append(bench.measured(f"mixed, {each:g} bits", mixed.recipe, planted, mixed))
    return rows, ranking


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all, if none is named")
    parser.add_argument("--layer", type=int, default=14, help="whose down projection is made fragile")
    parser.add_argument("--bits", type=float, nargs="+", default=[4.5, 5.0], help="for a weight, scales counted in")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(unknown)}")
    planted, before = f"layers.{options.layer}.down", _read(options.json)
    rows: list[dict[str, Any]] = before["rows"]
    rankings: dict[str, list[dict[str, Any]]] = before["most_sensitive_in_int4"]
    with tempfile.TemporaryDirectory() as place:
        folder = export(WEIGHTS, Path(place))
        for model in MODELS:
            if model == "fragile":
                plant(folder, options.layer)
            if options.models and model not in options.models:
                continue
            files = open_model("safetensors", {path.name: str(path) for path in folder.iterdir()})
            windows, ids, what = tokens_of(files, TEXT, options.samples, options.tokens)
            made, ranking = compared(Bench(files, model, windows, ids), options.bits, planted)
            rows = [row for row in rows if row["model"] != model] + [asdict(row) for row in made]
            rankings[model] = [{"product": name, "kl": kl} for name, kl in ranking]
    body = {
        "name": "mixed_precision",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": "SmolLM2-135M-Instruct, Q4_1 GGUF dequantized",
        "protocol": "WikiText-2 raw test, 20 windows of 512 tokens, positions 1..511, no BOS, float32",
        "planted": f"{planted}: every {EVERY}th input {FACTOR} times as large, and up's output as much smaller",
        "calibration": what,
        "command": "python -m evaluation.benchmarks.mixed_precision",
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "most_sensitive_in_int4": rankings,
        "rows": rows,
    }
    options.json.write_text(json.dumps(body, indent=1) + "\n")
    named = rankings.get("fragile", [{"product": planted}])[0]["product"]
    print(f"planted {planted}, named {named}")
    return 0 if named == planted else 1


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {"rows": [], "most_sensitive_in_int4": {}, **found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
