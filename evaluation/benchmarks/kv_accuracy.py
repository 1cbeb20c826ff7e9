"""What a KV cache in 8 bits costs in perplexity: SmolLM2-135M on WikiText-2, as transformers computed it in float32.

    python -m evaluation.benchmarks.kv_accuracy MODEL.gguf [--windows 20] [--chunk 64] [--out FOLDER]

Windows of 512 tokens, positions 1 … 511, through the paged cache in chunks: every key and value that a token attends
to, its own among them, is read back from the cache. Weights and activations stay float32, so that the difference is the
cache's alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from evaluation.benchmarks import report
from evaluation.benchmarks.report import Row

DATA = report.ROOT / "tests" / "data"
MOST = {"auto": 1.0005, "int8": 1.005, "fp8": None}
"""Perplexity over that of transformers; FP8's is reported."""


def reference(windows: int) -> dict[str, Any]:
    """Of the first windows: their sums of −log p, and the perplexity that they make."""
    found: dict[str, Any] = json.loads((DATA / "smollm2_135m_wikitext2_ppl.json").read_text())
    chosen = found["windows"][:windows]
    total, scored = (sum(window[name] for window in chosen) for name in ("sum_nll", "scored"))
    return {**found, "windows": chosen, "scored": scored, "perplexity": math.exp(total / scored)}


def sums(model: Path, kind: str, known: dict[str, Any], chunk: int, **fields: Any) -> list[float]:
    """−log p of each window's tokens, in nats. kind: option kv_cache_dtype."""
    size, windows = known["window"], len(known["windows"])
    config = EngineConfig(
        speculation="off",
        **{
            "format": "gguf", "paths": {model.name: str(model)}, "dtype": "float32", "max_model_len": size + 8,
            "max_num_seqs": 4, "max_batched_tokens": chunk, "prefix_cache": False, "kv_cache_dtype": kind,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
        }
        | fields
    )  # fmt: skip
    tokenizer, _ = load_tokenizer(open_model("gguf", dict(config.paths)))
    text = (DATA / "wikitext2_head.txt").read_bytes().decode("utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    asked = [ids[at * size : (at + 1) * size] for at in range(windows)]
    engine = Offline(config)
    found = engine.generate(asked, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0))
    engine.close()
    if any(len(one.prompt_logprobs or []) != size - 1 for one in found):
        raise RuntimeError("a window was not scored whole")
    return [-sum(one.prompt_logprobs or []) for one in found]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=64, help="tokens of a pass")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    options = parser.parse_args(arguments)
    known, rows = reference(options.windows), []
    for kind, most in MOST.items():
        total = sum(sums(options.model, kind, known, options.chunk))
        perplexity = math.exp(total / known["scored"])
        case = f"SmolLM2, {options.windows} windows of {known['window']}, KV {'float32' if kind == 'auto' else kind}"
        rows += [
            Row(case, "perplexity", perplexity, "", "lower", "transformers, float32", known["perplexity"]),
            Row(case, "over transformers'", perplexity / known["perplexity"], "×", "lower", target=most),
        ]
        print(report.table(rows[-2:]), flush=True)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if kind == "cuda" else "CPU"
    print(report.write("kv_accuracy", kind, name, rows, options.out, ("torch",)))
    return 0 if all(row.ok is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
