"""Real weights by scheme: a model is quantized by the built-in back end, and each version is measured.

    python -m evaluation.benchmarks.real_weights MODEL.gguf --work DIR --out DIR [--schemes fp8_dynamic w4a16_gptq]
    python -m evaluation.benchmarks.real_weights MODEL.gguf --judge DIR [--out DIR]

WikiText-2 perplexity (windows of 512 tokens), agreement with the unquantized model, decode and prefill of one request,
weights' bytes; and greedy answers to HumanEval's 164 problems. Programs run in `evaluation.quality.sandbox` only, which
a rented machine may not allow: the first command writes answers, the second, anywhere, judges them and adds pass@1.
A version that lies in DIR already is measured and not made again.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from engines.native import measure
from engines.native.compare import Compared
from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.serve.template import ChatTemplate
from evaluation.benchmarks import report
from evaluation.benchmarks.report import Row
from evaluation.quality import humaneval, sandbox

DATA = Path("../shared/data")
BASE = "bf16"
ASKED: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "fp8_dynamic": ("fp8", {"scheme": "fp8_dynamic"}, 1.01),
    "int8_w8a8": ("int8", {"scheme": "int8_w8a8", "algorithm": "smoothquant"}, 1.015),
    "w4a16_gptq": ("w4a16", {"scheme": "w4a16_gptq", "group_size": 128}, 1.06),
}
"""Scheme → its recipe, and the ratio of perplexities to reach on Qwen2.5-Coder-1.5B."""


def made(model: Path, recipe: dict[str, Any], folder: Path, dtype: str) -> Compared:
    """The version in `folder`, quantized if it is not there. Raises RuntimeError with what the job said."""
    if not folder.is_dir():
        spec = {
            "v": 1, "recipe": recipe, "paths": {model.name: str(model)}, "format": "gguf",
            "workdir": f"{folder}.work", "staging": str(folder),
        }  # fmt: skip
        begun = time.monotonic()
        command = [sys.executable, "-m", "plugins.quantization.job"]
        done = subprocess.run(command, input=json.dumps(spec) + "\n", capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{recipe}: {done.stdout[-1500:]}\n{done.stderr[-1500:]}")
        print(f"{folder.name}: made in {time.monotonic() - begun:.0f} s", flush=True)
    files = {path.name: str(path) for path in folder.iterdir() if path.is_file()}
    return Compared("safetensors", files, dtype)


def answers(model: Compared, problems: list[humaneval.Problem], device: str) -> list[dict[str, Any]]:
    """Greedy, 64 at once: {"id", "text", "finish", "tokens"} of each problem."""
    tokenizer, facts = load_tokenizer(open_model(model.format, model.paths))
    template = ChatTemplate(facts.chat_template or "", {})
    ends = list(facts.eos_ids)
    prompts = [
        tokenizer.encode(template.render([{"role": "user", "content": each.asked()}]), add_special_tokens=False).ids
        for each in problems
    ]
    config = EngineConfig(
        speculation="off",
        format=model.format,
        paths=model.paths,
        device=device,
        dtype=model.dtype,
        max_model_len=2048,
        max_num_seqs=64,
    )
    engine = Offline(config)
    params = SamplingParams(temperature=0, max_tokens=humaneval.MAX_TOKENS, stop_token_ids=ends)
    results = engine.generate(prompts, params)
    engine.close()
    return [
        {
            "id": problem.id,
            "text": tokenizer.decode([token for token in result.token_ids if token not in ends]),
            "finish": "length" if len(result.token_ids) == humaneval.MAX_TOKENS else "stop",
            "tokens": len(result.token_ids),
        }
        for problem, result in zip(problems, results, strict=True)
    ]


def rows_of(name: str, scheme: str, found: measure.Measured, base: measure.Measured) -> list[Row]:
    target = ASKED[scheme][2] if scheme in ASKED else None
    ratio = found.perplexity / base.perplexity
    case = f"{name} {scheme}"
    rows = [
        Row(case, "perplexity, WikiText-2", found.perplexity, "", "lower", BASE, base.perplexity),
        Row(case, "perplexity ratio", ratio, "×", "lower", BASE, 1.0, target=target),
        Row(case, "weights", found.weights / 2**20, "MiB", "lower", BASE, base.weights / 2**20),
        Row(case, "decode, one request", found.decode, "tok/s", "higher", BASE, base.decode),
        Row(case, "prefill, 512 tokens", found.prefill, "tok/s", "higher", BASE, base.prefill),
    ]
    if found.agreement is not None:
        rows.append(Row(case, "KL from bf16", found.agreement.kl, "nats", "lower"))
        rows.append(Row(case, "same likeliest token", found.agreement.same_top, "", "higher"))
    return rows


def judged(name: str, folder: Path, problems: list[humaneval.Problem]) -> list[Row]:
    """Of every file of answers in the folder. Raises SandboxUnavailable."""
    of = {problem.id: problem for problem in problems}
    rows = []
    for path in sorted(folder.glob("answers.*.jsonl")):
        results = []
        for line in path.read_text().splitlines():
            answer = json.loads(line)
            program = humaneval.program_of(of[answer["id"]], answer["text"], False)
            reason = sandbox.run(program).reason
            results.append(humaneval.Result(answer["id"], reason, program, answer["finish"], answer["tokens"]))
        told = humaneval.summary(results)
        print(path.name, json.dumps(told), flush=True)
        case = f"{name} {path.name.split('.')[1]}"
        rows.append(Row(case, f"HumanEval pass@1, {len(results)} problems", told["pass_at_1"], "", "higher"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--schemes", nargs="*", choices=sorted(ASKED), default=["fp8_dynamic", "w4a16_gptq"])
    parser.add_argument("--samples", type=int, default=128, help="calibration rows of 512 tokens")
    parser.add_argument("--work", type=Path, default=Path("runs/real_weights"))
    parser.add_argument("--text", type=Path, default=DATA / "wikitext2" / "wiki.test.raw")
    parser.add_argument("--problems", type=Path, default=DATA / "human_eval" / "HumanEval.jsonl.gz")
    parser.add_argument("--count", type=int, default=0, help="the first so many problems; 0 = all")
    parser.add_argument("--judge", type=Path, help="folder with answers and rows of an earlier run")
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "benchmarks")
    parser.add_argument("--commit", default="", help="where the tree has no git")
    options = parser.parse_args()
    problems = humaneval.read_problems(options.problems, options.count)
    name = options.model.stem.split("-q4")[0]
    if options.judge:
        document = json.loads(next(options.judge.glob("real_weights.*.json")).read_text())
        document["rows"] += [asdict(row) for row in judged(name, options.judge, problems)]
        to = options.out / next(options.judge.glob("real_weights.*.json")).name
        to.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return
    device, label, title = ("cuda", "h200", torch.cuda.get_device_name()) if torch.cuda.is_available() else ("cpu",) * 3
    dtype = "bfloat16" if device == "cuda" else "float32"
    options.work.mkdir(parents=True, exist_ok=True)
    kept, text = options.work / "reference.npy", options.text.read_text()
    rows: list[Row] = []
    base: measure.Measured | None = None
    for scheme in (BASE, *options.schemes):
        if scheme == BASE:
            model = Compared("gguf", {options.model.name: str(options.model)}, dtype)
        else:
            stem, recipe, _ = ASKED[scheme]
            model = made(options.model, {**recipe, "samples": options.samples}, options.work / stem, dtype)
        where = {"keep": kept} if scheme == BASE else {"reference": kept}
        found = measure.measure(model, device=device, text=text, progress=lambda share, what: None, **where)
        base = base or found
        rows += rows_of(name, scheme, found, base)
        given = answers(model, problems, device)
        (options.out / f"answers.{scheme}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in given))
        command = "python -m evaluation.benchmarks.real_weights " + " ".join(sys.argv[1:])
        report.write("real_weights", label, title, rows, options.out, ("torch", "triton"), command, options.commit)
        print(report.table(rows[-7:]), flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
