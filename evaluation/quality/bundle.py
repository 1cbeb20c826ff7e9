"""Makes the data sets that come with the package (suites/data) out of public ones: first rows, in a task's own form.

    python -m evaluation.quality.bundle ../shared/data

manifest.json names of each the file, sha256, rows, licence and source, and what was changed. Offline for whoever uses
it: nothing here is read when a suite runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evaluation.quality.sets import DATA, digest
from evaluation.quality.tasks.rows import bbh_rows

GSM8K_ROWS, IFEVAL_ROWS, BBH_ROWS, BBH_EACH = 100, 50, 110, 5
WIKITEXT_BYTES = 44_311
"""A little more than 20 windows of 512 tokens of SmolLM2, the windows that published figures here rest on."""

WIKITEXT = "Salesforce/wikitext (Merity et al. 2016), raw test split; text of Wikipedia"
MT_BENCH = "lm-sys/FastChat @ 0e6d3e4b"


def write(shared: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """The folder anew, but for what is written by hand (`business_example.jsonl`); its manifest."""
    raw = folder / "lm_eval"
    shutil.rmtree(raw, ignore_errors=True)
    made = {
        "gsm8k": _lines(folder / "gsm8k.jsonl", gsm8k(shared)),
        "bbh": _lines(folder / "bbh.jsonl", bbh(shared)),
        "mt_bench": _lines(folder / "mt_bench.jsonl", mt_bench(shared)),
        "lm_eval/gsm8k": _head(shared / "gsm8k/test.jsonl", raw / "gsm8k/test.jsonl", GSM8K_ROWS),
        "lm_eval/ifeval": _head(shared / "ifeval/input_data.jsonl", raw / "ifeval/input_data.jsonl", IFEVAL_ROWS),
        "wikitext2": _wikitext(shared, raw / "wikitext2/wiki.test.raw"),
        "business_example": (folder / "business_example.jsonl", 16),
    }
    for path in sorted((shared / "bbh").glob("*.json")):
        made[f"lm_eval/bbh/{path.stem}"] = _bbh_raw(path, raw / "bbh" / path.name)
    facts = {name: _facts(name, folder, path, rows) for name, (path, rows) in made.items()}
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    return facts


def gsm8k(shared: Path) -> Iterable[dict[str, Any]]:
    for number, row in enumerate(_rows(shared / "gsm8k/test.jsonl")[:GSM8K_ROWS]):
        expected = float(row["answer"].split("#### ")[-1].replace(",", ""))
        prompt = f"{row['question']}\nThink step by step, and end with the answer as a number."
        yield {"id": f"gsm8k-{number}", "prompt": prompt, "rule": "numeric", "expected": expected}


def bbh(shared: Path) -> Iterable[dict[str, Any]]:
    for number, row in enumerate(bbh_rows(shared / "bbh", BBH_ROWS)):
        named = {"id": f"{row['task']}-{number}", "group": row["task"]}
        yield {**named, "prompt": f"Q: {row['input']}\nA:", "choices": row["choices"], "gold": row["gold"]}


def mt_bench(shared: Path) -> Iterable[dict[str, Any]]:
    """First turns; GPT-4's reference where the category has one."""
    known = {
        row["question_id"]: row["choices"][0]["turns"][0]
        for row in _rows(shared / "mt_bench/reference_answer_gpt-4.jsonl")
    }
    for row in _rows(shared / "mt_bench/question.jsonl"):
        asked = {"id": f"mt-{row['question_id']}", "prompt": row["turns"][0]}
        yield asked | ({"reference_answer": known[row["question_id"]]} if row["question_id"] in known else {})


def _facts(name: str, folder: Path, path: Path, rows: int) -> dict[str, Any]:
    licence, source, changes = _ORIGIN[name.removeprefix("lm_eval/").partition("/")[0]]
    facts = {"file": str(path.relative_to(folder)), "sha256": digest(path), "rows": rows}
    return facts | {"licence": licence, "source": source, "changes": changes}


_ORIGIN = {
    "gsm8k": ("MIT", "openai/grade-school-math @ 3101c7d5", "the first 100 rows of the test set"),
    "bbh": ("MIT", "suzgunmirac/BIG-Bench-Hard @ 9ee07bd4", "the first examples of the tasks with a few choices"),
    "mt_bench": ("Apache-2.0", MT_BENCH, "the first turn of each question, with GPT-4's reference where there is one"),
    "ifeval": ("Apache-2.0", "josejg/instruction_following_eval @ 0c495b2f (google-research)", "the first 50 rows"),
    "wikitext2": ("CC BY-SA 3.0 and GFDL", WIKITEXT, f"the first {WIKITEXT_BYTES} bytes"),
    "business_example": ("Apache-2.0", "this project", "none"),
}


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _lines(path: Path, rows: Iterable[dict[str, Any]]) -> tuple[Path, int]:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, len(lines)


def _head(source: Path, path: Path, rows: int) -> tuple[Path, int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = source.read_text(encoding="utf-8").splitlines()[:rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, len(lines)


def _wikitext(shared: Path, path: Path) -> tuple[Path, int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (shared / "wikitext2/wiki.test.raw").read_bytes()[:WIKITEXT_BYTES]
    path.write_bytes(data)
    return path, data.count(b"\n")


def _bbh_raw(source: Path, path: Path) -> tuple[Path, int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    examples = json.loads(source.read_text(encoding="utf-8"))["examples"][:BBH_EACH]
    path.write_text(json.dumps({"examples": examples}, ensure_ascii=False) + "\n", encoding="utf-8")
    return path, len(examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("shared", type=Path)
    options = parser.parse_args()
    for name, facts in write(options.shared, DATA).items():
        print(f"{name}: {facts['rows']} rows, {facts['licence']}")


if __name__ == "__main__":
    main()
