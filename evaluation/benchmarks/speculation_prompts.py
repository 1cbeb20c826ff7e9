"""Prompts by task, on which speculation is measured: Spec-Bench (summarization, RAG, QA, maths, translation, and the
first turns of MT-Bench) and HumanEval, under the model's chat template.

    python -m evaluation.benchmarks.speculation_prompts MODEL.gguf --out FILE.json [--per-task 80]

writes {task: [[token ids of a prompt], …]}, for a machine that has neither the data nor the tokenizer's libraries.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.serve.template import ChatTemplate
from evaluation.benchmarks.report import ROOT

DATA = ROOT.parent / "shared" / "data"
TASKS = {
    "summarization": "summarization",
    "code": "",
    "rag": "rag",
    "qa": "qa",
    "maths": "math_reasoning",
    "translation": "translation",
    "mt_bench": "writing roleplay reasoning math coding extraction stem humanities",
}
"""Task → categories of Spec-Bench; code is HumanEval."""
ASKED = "Complete this Python function. Answer with the whole function in one code block, imports included.\n\n"


def texts(per_task: int, data: Path = DATA) -> dict[str, list[str]]:
    """What is asked, by task."""
    lines = (data / "spec_bench" / "question.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines if line]
    found: dict[str, list[str]] = {}
    for task, categories in TASKS.items():
        chosen = [one["turns"][0] for one in questions if one["category"] in categories.split()]
        if not categories:
            with gzip.open(data / "human_eval" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
                chosen = [f"{ASKED}```python\n{json.loads(line)['prompt']}```" for line in file]
        step = max(1, len(chosen) // per_task)
        found[task] = chosen[::step][:per_task]
    return found


def prompts(model: Path, per_task: int, data: Path = DATA) -> dict[str, list[list[int]]]:
    """Token ids, by task."""
    tokenizer, facts = load_tokenizer(open_model("gguf", {model.name: str(model)}))
    template = ChatTemplate(facts.chat_template, {})
    return {
        task: [
            tokenizer.encode(template.render([{"role": "user", "content": text}]), add_special_tokens=False).ids
            for text in each
        ]
        for task, each in texts(per_task, data).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-task", type=int, default=80)
    options = parser.parse_args()
    found = prompts(options.model, options.per_task)
    options.out.write_text(json.dumps(found))
    for task, each in found.items():
        print(f"{task}: {len(each)} prompts of {sum(map(len, each)) // len(each)} tokens on average")


if __name__ == "__main__":
    main()
