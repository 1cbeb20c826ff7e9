"""BFCL rows answered greedily by transformers, the peer of `evaluation.quality.bfcl`.

    python -m evaluation.benchmarks.hf_folder MODEL.gguf FOLDER
    python -m evaluation.benchmarks.bfcl_transformers FOLDER --data ../shared/data/bfcl_v4 --output peer.jsonl

The prompt is what transformers makes of the model's chat template; the answer's text goes through the parser that our
server would choose, so that what differs is the engine. --ours FILE: the same rows by our engine; both are printed, and
how many rows have the same calls.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.native.serve.parsers.pieces import message
from engines.native.serve.parsers.registry import TOOL_PARSERS, tool_parser
from evaluation.quality.bfcl import CATEGORIES, MAX_TOKENS, Result, Row, judge, read_results, read_rows, report
from evaluation.quality.bfcl_score import tool


class Peer:
    """A model folder as the hub holds it, in `dtype` on `device`. Raises ValueError where its template has no tools."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._tokenizer.padding_side = "left"
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model = model.to(device).eval()
        self._device = device
        name = tool_parser("auto", str(self._tokenizer.chat_template), self._id)
        if name is None:
            raise ValueError(f"{folder}: no parser is known for the tool calls of this model's chat template")
        self._parser = TOOL_PARSERS[name]
        ends = self._model.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])

    def _id(self, text: str) -> int | None:
        found: int | None = self._tokenizer.convert_tokens_to_ids(text)
        return found

    @torch.inference_mode()
    def answer(self, rows: list[Row]) -> list[Result]:
        """All of them in one batch, padded on the left."""
        prompts = [
            self._tokenizer.apply_chat_template(
                row.messages, tools=[tool(each) for each in row.functions], add_generation_prompt=True, tokenize=False
            )
            for row in rows
        ]
        inputs = self._tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(self._device)
        made = self._model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        width = inputs["input_ids"].shape[1]
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        drawn = [self._drawn(ids) for ids in made[:, width:].tolist()]
        return [self._judged(*each) for each in zip(rows, lengths, drawn, strict=True)]

    def _drawn(self, ids: list[int]) -> list[int]:
        """Up to the token that ends the answer, with it: what follows is padding."""
        end = next((place + 1 for place, token in enumerate(ids) if token in self._ends), len(ids))
        return ids[:end]

    def _judged(self, row: Row, prompt_tokens: int, ids: list[int]) -> Result:
        parser = self._parser([each["name"] for each in row.functions])
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        said = message([*parser.push(text), *parser.finish()])
        calls = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in said.calls
        ]
        finish = "length" if ids[-1] not in self._ends else "tool_calls" if calls else "stop"
        choice = {"message": {"content": said.content, "tool_calls": calls}, "finish_reason": finish}
        return judge(row, choice, {"prompt_tokens": prompt_tokens, "completion_tokens": len(ids)})


def same_calls(one: list[Result], other: list[Result]) -> int:
    """Rows of both in which name and arguments of all calls are equal."""
    theirs = {each.id: _calls(each) for each in other}
    return sum(theirs.get(each.id) == _calls(each) for each in one)


def _calls(result: Result) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], call["function"]["arguments"].split()) for call in result.calls]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that transformers reads")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/bfcl_v4"))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, required=True, help="a line of JSON per row; its rows are not repeated")
    parser.add_argument("--ours", type=Path, help="what evaluation.quality.bfcl wrote of the same rows")
    options = parser.parse_args()
    rows = read_rows(options.data, list(CATEGORIES), options.rows)
    results = read_results(options.output)
    known = {each.id for each in results}
    rest = [row for row in rows if row.id not in known]
    began = time.monotonic()
    if rest:
        peer = Peer(options.model, options.dtype, options.device)
        with options.output.open("a", encoding="utf-8") as sink:
            for first in range(0, len(rest), options.batch):
                for result in peer.answer(rest[first : first + options.batch]):
                    results.append(result)
                    print(json.dumps(asdict(result)), file=sink, flush=True)
                print(f"{len(results)}/{len(rows)}", flush=True)
    print(report(results, time.monotonic() - began))
    if options.ours:
        ours = read_results(options.ours)
        print(report(ours, 0.0))
        print(f"the same calls in {same_calls(ours, results)} of {len(ours)} rows")


if __name__ == "__main__":
    main()
