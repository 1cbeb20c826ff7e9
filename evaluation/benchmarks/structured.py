"""Structured output with a real model: are all answers valid, and what does it cost?

    python -m evaluation.benchmarks.structured MODEL.gguf --tools ../shared/data/bfcl_v4 --schemas 200
    python -m evaluation.benchmarks.structured MODEL.gguf --shape llama8b      # on a GPU: what a model of 8B would pay

With --shape, the cost is that of a model of this shape with random weights and the file's vocabulary. Schemas are those
of functions in the Berkeley Function-Calling Leaderboard's format. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from engines.native.config import EngineConfig
from engines.native.grammar.sources import from_schema
from engines.native.grammar.spec import BadGrammar, Grammar
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import Finish, SamplingParams
from engines.native.runner import ModelRunner
from evaluation.benchmarks import shapes
from evaluation.benchmarks.random_model import random_runner

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""BFCL writes Python's names."""
MAX_TEXT, MAX_ITEMS, MAX_NUMBER = 48, 4, 10**6
"""Bounds where a schema has none: a model of 135M parameters would write one string until its tokens are spent."""
ENDLESS = {
    "type": "array",
    "minItems": 500,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "score": {"type": "number"}, "tags": {"type": "array",
                       "items": {"enum": ["red", "green", "blue"]}}},
        "required": ["name", "score", "tags"],
        "additionalProperties": False,
    },
}  # fmt: skip


def bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """A BFCL schema as JSON Schema, with bounds on strings, arrays and numbers that have none, and no extra keys."""
    kind = _TYPES.get(schema.get("type", "string"), schema.get("type", "string"))
    if schema.get("enum"):
        return {"enum": schema["enum"]}
    if kind == "object":
        properties = {name: bounded(value) for name, value in schema.get("properties", {}).items()}
        required = [name for name in schema.get("required", []) if name in properties]
        return {"type": kind, "properties": properties, "required": required, "additionalProperties": False}
    if kind == "array":
        return {"type": kind, "items": bounded(schema.get("items", {})), "maxItems": schema.get("maxItems", MAX_ITEMS)}
    if kind in ("integer", "number"):
        return {"type": kind, "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
    if kind in ("boolean", "null"):
        return {"type": kind}
    return {"type": "string", "maxLength": MAX_TEXT}


def questions(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(question, schema of the function's parameters)."""
    for path in sorted(folder.glob("BFCL_v4_*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            for function in row.get("function", [])[:1]:
                yield row["question"][0][-1]["content"], bounded(function["parameters"])


def valid_share(engine: Offline, tokenizer: Any, ends: list[int], folder: Path, count: int) -> dict[str, Any]:
    """Answers to `count` questions with different schemas, at temperature 1: how many are valid, end, are cut off."""
    prompts: list[list[int]] = []
    asked: list[SamplingParams] = []
    schemas: list[dict[str, Any]] = []
    seen: set[str] = set()
    for question, schema in questions(folder):
        try:
            source = from_schema(schema)
        except BadGrammar:
            continue
        if source in seen or len(prompts) == count:
            continue
        seen.add(source)
        text = f"<|im_start|>user\n{question[:400]}\nAnswer in JSON.<|im_end|>\n<|im_start|>assistant\n"
        prompts.append(tokenizer.encode(text, add_special_tokens=False).ids)
        schemas.append(schema)
        params = SamplingParams(seed=len(prompts), max_tokens=400, stop_token_ids=ends, grammar=Grammar(source))
        asked.append(params)
    results = engine.generate(prompts, asked)
    valid = cut = errors = 0
    for schema, result in zip(schemas, results, strict=True):
        cut += result.finish is Finish.LENGTH
        errors += result.finish is Finish.ERROR
        if result.finish is Finish.STOP:
            text = tokenizer.decode([token for token in result.token_ids if token not in ends])
            jsonschema.validate(json.loads(text), schema)  # raises: one that is not valid ends the run
            valid += 1
    tokens = sum(len(result.token_ids) for result in results)
    return {"schemas": len(schemas), "valid": valid, "cut_by_max_tokens": cut, "errors": errors, "tokens": tokens}


def cost(engine: Offline, tokenizer: Any, batch: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Of `batch` rows with and without a grammar, in turns, the best of each: tokens/s, and CPU milliseconds per token.
    loss: the share of throughput that the grammar takes; on a CPU told by CPU time, which other work on the machine
    disturbs less."""
    prompt = tokenizer.encode("A list of people as JSON:\n", add_special_tokens=False).ids
    grammars: dict[str, Grammar | None] = {"free": None, "json_schema": Grammar(from_schema(ENDLESS))}
    engine.generate([prompt], SamplingParams(max_tokens=2, grammar=grammars["json_schema"]))  # compiled once before
    rates: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for index in range(rounds):
        for name, grammar in grammars.items():
            seeds = range(index * batch, (index + 1) * batch)
            params = [SamplingParams(seed=seed, max_tokens=tokens, grammar=grammar) for seed in seeds]
            begun, begun_cpu = time.perf_counter(), time.process_time()
            made = sum(len(result.token_ids) for result in engine.generate([prompt] * batch, params))
            spent = (time.process_time() - begun_cpu) / made * 1e3
            rates[name] = max(rates.get(name, 0.0), made / (time.perf_counter() - begun))
            cpu[name] = min(cpu.get(name, spent), spent)
    left = rates["json_schema"] / rates["free"]
    if engine.runner.device.type == "cpu":
        left = cpu["free"] / cpu["json_schema"]
    return {
        "batch": batch,
        "tok_s": {name: round(rate, 1) for name, rate in rates.items()},
        "cpu_ms_per_token": {name: round(spent, 3) for name, spent in cpu.items()},
        "loss": round(1 - left, 4),
    }


def _shaped(shape: str, config: EngineConfig, paths: dict[str, str]) -> ModelRunner:
    """Random weights of `shape`, with as many tokens as the file has."""
    return random_runner(replace(shapes.shape(shape), vocab=open_model("gguf", paths).config.vocab), config, seed=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--shape", choices=("llama8b", "qwen06b"), help="random weights of this shape for the cost")
    parser.add_argument("--tools", type=Path, help="folder of BFCL files; without it only the cost is measured")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    paths = {"model.gguf": str(asked.model)}
    tokenizer, facts = load_tokenizer(open_model("gguf", paths))
    config = EngineConfig(speculation="off", format="gguf", paths=paths, max_model_len=1024, max_num_seqs=asked.batch)
    engine = Offline(config) if asked.shape is None else Offline(config, _shaped(asked.shape, config, paths))
    report = {"cost": cost(engine, tokenizer, asked.batch, asked.tokens, asked.rounds)}
    if asked.tools is not None:
        report["valid"] = valid_share(engine, tokenizer, list(facts.eos_ids), asked.tools, asked.schemas)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
