"""What each scheme and algorithm of the built-in quantizer costs a real model: perplexity, size, time, memory.

    python -m evaluation.benchmarks.quantization_quality [CASE …] [--samples 128] [--tokens 512] [--windows 20]
    python -m evaluation.benchmarks.quantization_quality --list

SmolLM2-135M on WikiText-2: 20 windows of 512 tokens, positions 1 … 511 scored, no BOS; float32 has 35.209. Calibration
text is what lies in the same file more than 1,000 tokens behind the last window (other articles), or with `--text FILE`
another. The layers compute in float32 with weights and activations on their quantized points, as a kernel with exact
sums would. Rows of the cases that ran replace theirs in docs/quality/quantization.cpu.json; the table shows all.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight
from plugins.quantization.mixed import choose, other_bytes
from plugins.quantization.recipe import LayerResult, Recipe, quantize
from plugins.quantization.simulate import text_losses
from plugins.quantization.sizes import bytes_of

ROOT = Path(__file__).parents[2]
WEIGHTS = Path.home() / ".cache/tursiops/weights/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = ROOT.parent / "shared/data/wikitext2/wiki.test.raw"
RESULTS = ROOT / "docs/quality/quantization.cpu.json"
WINDOW, FLOAT = 512, 35.209
APART = 1000
"""Tokens between the last window that is scored and the first that calibrates."""
MIXED_BITS = 5.0
"""Of a weight on average, scales counted in: the mixed case's budget."""


def _int4(group: int, symmetric: bool, actorder: str = "") -> LinearScheme:
    return LinearScheme(WeightScheme("int", 4, "group", group, symmetric=symmetric, actorder=actorder))


_FP8 = WeightScheme("float", 8, "channel")
_INT8 = WeightScheme("int", 8, "channel")
_TOKEN8 = ActivationScheme("int", 8, True, "token")
_W8A8 = LinearScheme(_INT8, _TOKEN8)


@dataclass(frozen=True, slots=True)
class Case:
    """target: perplexity at most; as a ratio to float32's where it is below 2."""

    recipe: Recipe
    target: float | None = None


CASES: dict[str, Case] = {
    "float32": Case(Recipe()),
    "fp8 dynamic": Case(Recipe(LinearScheme(_FP8, ActivationScheme("float", 8, True, "token"))), 1.03),
    "fp8 dynamic gptq": Case(Recipe(LinearScheme(_FP8, ActivationScheme("float", 8, True, "token")), "gptq"), 1.03),
    "fp8 static": Case(Recipe(LinearScheme(_FP8, ActivationScheme("float", 8, False, "tensor"))), 1.03),
    "fp8 block": Case(
        Recipe(
            LinearScheme(
                WeightScheme("float", 8, "block", block=(128, 128)), ActivationScheme("float", 8, True, "group", 128)
            )
        ),
        1.03,
    ),
    "int8 w8a8 rtn": Case(Recipe(_W8A8)),
    "int8 w8a8 smoothquant": Case(Recipe(_W8A8, smoothing="smoothquant"), 1.02),
    "int8 w8a8 smoothquant + gptq": Case(Recipe(_W8A8, "gptq", "smoothquant"), 1.02),
    "int8 weight-only": Case(Recipe(LinearScheme(_INT8)), 1.02),
    "embedding int8": Case(Recipe(embedding=True), 1.005),
    "int4 g64 sym rtn": Case(Recipe(_int4(64, True))),
    "int4 g64 asym rtn": Case(Recipe(_int4(64, False))),
    "int4 g64 sym gptq": Case(Recipe(_int4(64, True, "static"), "gptq", clip=True), 43),
    "int4 g64 asym gptq": Case(Recipe(_int4(64, False, "static"), "gptq", clip=True), 43),
    "int4 g64 sym gptq, no clip": Case(Recipe(_int4(64, True, "static"), "gptq")),
    "int4 g64 asym awq": Case(Recipe(_int4(64, False), smoothing="awq", clip=True), 45),
    "int4 g64 asym awq + gptq": Case(Recipe(_int4(64, False, "static"), "gptq", "awq", clip=True), 42),
    "int4 g32 asym rtn": Case(Recipe(_int4(32, False))),
    "mixed int4 g64 / int8 gptq": Case(Recipe(None, "gptq", clip=True)),
}
OPTIONS = {"int4": _int4(64, False, "static"), "int8": LinearScheme(_INT8)}


@dataclass(frozen=True, slots=True)
class Row:
    """bits: of a weight of the layers on average, scales counted in. seconds: of the quantizing; cpu_seconds: of it on
    all cores. peak_bytes: of the process, the model's windows among them. damped, fallbacks: products of GPTQ whose
    damping was raised, or that were rounded to nearest after all."""

    case: str
    perplexity: float
    ratio: float
    bits: float
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    threads: int
    calibration: str
    target: float | None
    ok: bool | None
    damped: int = 0
    fallbacks: int = 0


class Sink:
    """Finished layers, in memory."""

    def __init__(self) -> None:
        self.layers: list[LayerResult] = []
        self.table: QuantizedWeight | None = None

    def take(self, layer: LayerResult) -> None:
        self.layers.append(layer)

    def finished(self, index: int) -> LayerResult:
        return self.layers[index]

    def embedding(self, table: QuantizedWeight) -> None:
        self.table = table


def measure(files: ModelFiles, name: str, windows: torch.Tensor, ids: torch.Tensor, calibration: str) -> Row:
    case, sink = CASES[name], Sink()
    recipe = case.recipe
    needs = recipe.needs_data(files.config.layers) or name.startswith("mixed")
    started, cpu = time.monotonic(), time.process_time()
    if name.startswith("mixed"):
        recipe = _mixed(files, recipe, ids)
    quantize(files, recipe, ids if needs else None, sink, lambda share, doing: None)
    seconds, used = time.monotonic() - started, time.process_time() - cpu
    losses = text_losses(files, sink.layers, windows, sink.table)
    perplexity = math.exp(float(losses.mean()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    target = case.target
    limit = target * FLOAT if target is not None and target < 2 else target
    reports = [report for layer in sink.layers for report in layer.reports]
    return Row(
        case=name,
        perplexity=round(perplexity, 3),
        ratio=round(perplexity / FLOAT, 4),
        bits=round(bits_of(files, sink.layers), 3),
        seconds=round(seconds, 1),
        cpu_seconds=round(used, 1),
        peak_bytes=peak,
        threads=torch.get_num_threads(),
        calibration=calibration if needs else "none",
        target=None if limit is None else round(limit, 3),
        ok=None if limit is None else perplexity <= limit,
        damped=sum(each.damping is not None and each.damping > recipe.damping for each in reports),
        fallbacks=sum(each.method == "rtn_fallback" for each in reports),
    )


def _mixed(files: ModelFiles, recipe: Recipe, ids: torch.Tensor) -> Recipe:
    """Both int4 and int8 to choose from, within MIXED_BITS for a weight."""
    weights = products(files)
    rest = 2 * (files.config.parameters() - weights)
    budget = rest + int(weights * MIXED_BITS / 8)
    mixed = choose(files, recipe, OPTIONS, budget, ids[:16, :64], lambda share, doing: None)
    assert rest == other_bytes(files, mixed.sensitivity)
    for plan in mixed.plans:
        print(f"  plan {plan.name}: {plan.nbytes / 2**20:.1f} MiB, KL {plan.kl:.4f} nats (sum {plan.cost:.4f})")
    worst = ", ".join(f"{product} {kl:.4f}" for product, kl in mixed.sensitivity.ranking("int4")[:6])
    print(f"  most sensitive in int4: {worst}")
    return mixed.recipe


def products(files: ModelFiles) -> int:
    """Weights of the layers' products."""
    return sum(
        info.elements for name, info in files.tensors.items() if name.startswith("layers.") and len(info.shape) == 2
    )


def bits_of(files: ModelFiles, layers: list[LayerResult]) -> float:
    """Of a weight of the layers on average, scales counted in."""
    made = [weight for layer in layers for weight in layer.linears.values()]
    weights = products(files)
    kept = weights - sum(weight.shape[0] * weight.shape[1] for weight in made)
    return (sum(_stored(weight) for weight in made) * 8 + 16 * kept) / weights


def _stored(weight: QuantizedWeight) -> int:
    """Scales as 16-bit floats, which a checkpoint in bfloat16 has."""
    return bytes_of(replace(weight, scales=weight.scales.to(torch.bfloat16)))


def tokens_of(files: ModelFiles, text: Path, samples: int, length: int) -> tuple[torch.Tensor, torch.Tensor, str]:
    """(windows, calibration sequences, what the latter are)."""
    tokenizer, _ = load_tokenizer(files)

    def encoded(path: Path) -> torch.Tensor:
        return torch.tensor(tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids)

    ids = encoded(TEXT)
    scored = ids[: 20 * WINDOW].view(20, WINDOW)
    rest = ids[20 * WINDOW + APART :] if text == TEXT else encoded(text)
    rows = rest[: len(rest) // length * length].view(-1, length)
    samples = min(samples, len(rows))
    what = f"{text.name}{' behind the windows' if text == TEXT else ''}, {samples} x {length}"
    return scored, rows[torch.linspace(0, len(rows) - 1, samples).long()], what


def show(rows: list[Row], say: Callable[[str], None] = print) -> None:
    say(f"{'case':32} {'perplexity':>10} {'ratio':>7} {'bits':>6} {'seconds':>8} {'CPU s':>7} {'peak':>9}  target")
    for row in rows:
        verdict = "" if row.target is None else f"{row.target:7.3f} {'ok' if row.ok else 'MISSED'}"
        odd = f"  damped {row.damped}, fallbacks {row.fallbacks}" if row.damped or row.fallbacks else ""
        say(
            f"{row.case:32} {row.perplexity:10.3f} {row.ratio:7.4f} {row.bits:6.3f} {row.seconds:8.1f} "
            f"{row.cpu_seconds:7.1f} {row.peak_bytes / 2**30:5.2f} GiB  {verdict}{odd}"
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all, if none is named")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--model", type=Path, default=WEIGHTS)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--text", type=Path, default=TEXT, help="calibration text")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(CASES))
        return 0
    if unknown := [name for name in options.cases if name not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)}; --list names them")
    files = open_model("gguf", {options.model.name: str(options.model)})
    windows, ids, what = tokens_of(files, options.text, options.samples, options.tokens)
    for name in options.cases or CASES:
        row = measure(files, name, windows[: options.windows], ids, what)
        show([row])
        if options.windows == 20:  # fewer are a look, no result
            _write(options.json, _rows(options.json, row))
    print()
    show(_rows(options.json))
    return 0


def _rows(path: Path, *measured: Row) -> list[Row]:
    """Those of the file as it is now, which another run may have written to, and what was measured."""
    rows = {row["case"]: Row(**row) for row in _read(path)} | {row.case: row for row in measured}
    return [rows[name] for name in CASES if name in rows]


def _read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.is_file() else []
    return found


def _write(path: Path, rows: list[Row]) -> None:
    body = {
        "name": "quantization_quality",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": "SmolLM2-135M-Instruct, Q4_1 GGUF dequantized",
        "protocol": "WikiText-2 raw test, 20 windows of 512 tokens, positions 1..511, no BOS, float32; scales float32",
        "command": "python -m evaluation.benchmarks.quantization_quality",
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
