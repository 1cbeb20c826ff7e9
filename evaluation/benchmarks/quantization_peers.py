"""The two back ends of quantize jobs on the same model, rows and settings: what each loses, how long each takes.

    python -m evaluation.benchmarks.quantization_peers [--model PATH.gguf] [--schemes w4a16_gptq fp8_dynamic …]

Jobs run as the platform runs them, with the calibration text that ships with us (rows of 512 tokens, seed 0), in
float32, so that nothing but the algorithms differs. Perplexity: WikiText-2, 20 windows of 512 tokens, positions 1 … 511
(35.209 in float32), with weights dequantized as they are loaded, and as they are served. GPTQ without the search for
scales, which llm-compressor doesn't have.
llm-compressor's environment is made on the first run (PyPI or a mirror must be in reach).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from evaluation.benchmarks.quantization import MODEL, Contender, Measured
from evaluation.benchmarks.report import ROOT

RECIPES: dict[str, dict[str, Any]] = {
    "w4a16_gptq": {"scheme": "w4a16_gptq", "group_size": 64, "scale_search": False},
    "w4a16_awq": {"scheme": "w4a16_awq", "group_size": 64},
    "int8_w8a8": {"scheme": "int8_w8a8"},
    "fp8_dynamic": {"scheme": "fp8_dynamic"},
}
BACKENDS = ("native", "llm_compressor")
OUTPUT = ROOT / "docs" / "quality" / "quantization_peers.json"
WITHIN = 0.03
"""Perplexity by which our GPTQ may differ from llm-compressor's."""


def made(recipe: dict[str, Any], samples: int, model: Path, place: Path) -> dict[str, Any]:
    """The job's report; the version lies in place/version. Raises RuntimeError with the job's own words."""
    spec = {
        "recipe": {**recipe, "samples": samples, "dtype": "float32"},
        "paths": {model.name: str(model)},
        "format": "gguf",
        "workdir": str(place / "work"),
        "staging": str(place / "version"),
    }
    command = [sys.executable, "-m", "plugins.quantization.job"]
    done = subprocess.run(command, input=json.dumps(spec), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if last["type"] != "report":
        raise RuntimeError(f"{recipe}: {last}")
    report: dict[str, Any] = last["data"]
    return report


def perplexity(folder: Path, weights: str) -> float:
    """weights: option quantized_weights of the engine."""
    dtype = {"dtype": "float32"} if weights == "dequantized" else {}
    return Measured(Contender("", {"quantized_weights": weights, **dtype}), folder).perplexity()


def measure(name: str, backend: str, samples: int, model: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        report = made({**RECIPES[name], "backend": backend}, samples, model, place)
        return {
            "perplexity": round(perplexity(place / "version", "dequantized"), 4),
            "perplexity_served": round(perplexity(place / "version", "auto"), 4),
            "bytes": report["size"]["after"],
            "seconds": report["seconds"],
            "peak_memory": report["peak_memory"],
            "fallbacks": len(report["fallbacks"]),
            "samples": (report["calibration"] or {}).get("samples", 0),
            "rows_sha256": (report["calibration"] or {}).get("rows_sha256", ""),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--schemes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--samples", type=int, default=128, help="calibration rows, of 512 tokens each")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = json.loads(options.output.read_text()) if options.output.is_file() else {}
    for name in options.schemes:
        for backend in options.backends:
            found.setdefault(name, {})[backend] = measure(name, backend, options.samples, options.model)
            print(name, backend, found[name][backend], flush=True)
            options.output.write_text(json.dumps(found, indent=1) + "\n")
    pair = found.get("w4a16_gptq", {})
    if set(pair) < set(BACKENDS):
        return 0
    worse = pair["native"]["perplexity"] - pair["llm_compressor"]["perplexity"]
    print(f"GPTQ: ours is {worse:+.3f} perplexity from llm-compressor's (at most {WITHIN} worse)")
    return int(worse > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
