"""Rows of the offline tasks, as lists of plain objects. Called from the task files, in lm-eval's environment.

Each function has lm-eval's metadata as keywords: `data` is the folder of ../shared/data, `rows` the number wanted of
each task, by its name.
"""

from __future__ import annotations

import json
import re
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

PAGE_CHARACTERS = 6000
"""WikiText pages are cut after the line that passes this: about 1,450 tokens, more than one window of 1,024."""
MOST_CHOICES = 7
_OPTION = re.compile(r"^(\([A-Z]\))", re.MULTILINE)
_TITLE = re.compile(r"^ = [^=].* = $")

Rows = list[dict[str, Any]]


def bbh(data: str, rows: dict[str, int], **_: Any) -> dict[str, Any]:
    return _split(bbh_rows(Path(data) / "bbh", rows["bbh"]))


def wikitext(data: str, rows: dict[str, int], **_: Any) -> dict[str, Any]:
    return _split(wikitext_rows(Path(data) / "wikitext2" / "wiki.test.raw", rows["wikitext"]))


def gsm8k(data: str, rows: dict[str, int], **_: Any) -> dict[str, Any]:
    return _split(_lines(Path(data) / "gsm8k" / "test.jsonl")[: rows["gsm8k"]])


def ifeval(data: str, rows: dict[str, int], **_: Any) -> dict[str, Any]:
    return _split(_lines(Path(data) / "ifeval" / "input_data.jsonl")[: rows["ifeval"]])


def ifeval_results(row: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """lm-eval's own rules. Fields that `datasets` filled up with null are absent again, as the rules want them."""
    from lm_eval.tasks.ifeval import utils

    kwargs = [{key: value for key, value in each.items() if value is not None} for each in row["kwargs"]]
    scored: dict[str, Any] = utils.process_results({**row, "kwargs": kwargs}, results)
    return {name: scored[name] for name in ("prompt_level_strict_acc", "prompt_level_loose_acc")}


def wikitext_results(row: dict[str, Any], results: list[float]) -> dict[str, Any]:
    (likelihood,) = results
    return {"word_perplexity": (likelihood, len(row["page"].split()))}


def bbh_rows(folder: Path, count: int) -> Rows:
    """One of each multiple-choice task in turn. {task, input, choices, gold}: gold counts in choices."""
    tasks = [_choices(path) for path in sorted(folder.glob("*.json"))]
    turns = zip_longest(*(task for task in tasks if task))
    return list(islice((row for turn in turns for row in turn if row is not None), count))


def _choices(path: Path) -> Rows:
    """[] for a task whose answers are no choice of a few."""
    examples = json.loads(path.read_text(encoding="utf-8"))["examples"]
    targets = sorted({example["target"] for example in examples})
    rows = []
    for example in examples:
        choices = _OPTION.findall(example["input"]) or (targets if len(targets) == 2 else [])
        if example["target"] in choices and len(choices) <= MOST_CHOICES:
            gold = choices.index(example["target"])
            rows.append({"task": path.stem, "input": example["input"], "choices": choices, "gold": gold})
    return rows


def wikitext_rows(path: Path, count: int) -> Rows:
    """The first pages, each from its title on, cut at PAGE_CHARACTERS. {page}"""
    pages: list[list[str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if _TITLE.match(line):
            pages.append([])
        if pages and sum(map(len, pages[-1])) <= PAGE_CHARACTERS:
            pages[-1].append(line)
    return [{"page": "\n".join(lines) + "\n"} for lines in pages[:count]]


def _lines(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _split(rows: Rows) -> dict[str, Any]:
    from datasets import Dataset

    return {"test": Dataset.from_list(rows)}
