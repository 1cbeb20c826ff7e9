"""Which guesses would have held? Proposers side by side on texts whose answers are known: no model runs.

    python -m evaluation.benchmarks.speculation_offline --outputs outputs.jsonl --json result.json
    python -m evaluation.benchmarks.speculation_offline --data ../shared/data --gguf SmolLM2-135M-Instruct.Q4_1.gguf

With greedy acceptance the answer alone decides what is accepted: of the tree proposed at each step, the path along
the answer, and one token more. --outputs: lines of {"task", "id", "prompt_ids", "output_ids"} that a model has said;
--data: prompts with the answers that people (HumanEval, GSM8K, self-instruct) or GPT-4 (MT-Bench) gave, in the tokens
of --gguf.

Passes: `alone` each request has a salt of its own; `shared` one salt for all, in turn; `again` the same requests a
second time with that store; `other half` a store that holds every second request answers the others (turns of one
conversation, which have one id, stay together). With --gguf lookahead gets the texts of the tokens, for its views.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.speculation.proposer import History, Proposer, ProposerSettings, make_proposer
from engines.native.speculation.tree import Int32, Tree

PASSES = ("alone", "shared", "again", "other half")


@dataclass(frozen=True, slots=True)
class Sample:
    """Of `task`: token ids of a prompt and of its answer. id: of the conversation."""

    task: str
    id: str
    prompt: list[int]
    answer: list[int]


@dataclass(slots=True)
class Tally:
    """Of one task and proposer. seconds: of the CPU, in propose and observe, and in what they put off. sure: (said,
    held) of all nodes whose parent held, by tenth of confidence."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    sure: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0, 0.0] for _ in range(10)])

    def row(self) -> dict[str, Any]:
        return {
            "tokens_per_step": round(self.tokens / max(1, self.steps), 3),
            "hit_rate": round(self.accepted / max(1, self.drafted), 3),
            "drafts_per_step": round(self.drafted / max(1, self.steps), 2),
            "us_per_step": round(1e6 * self.seconds / max(1, self.steps), 1),
            "steps": self.steps,
            "confidence": [
                [round(said / count, 3), round(held / count, 3), int(count)] for said, held, count in self.sure if count
            ],
        }


def outputs(path: Path) -> Iterator[Sample]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield Sample(row["task"], f"{row['task']} {row['id']}", row["prompt_ids"], row["output_ids"])


def data_sets(data: Path, tokenizer: Any, most: int) -> Iterator[Sample]:
    """At most `most` of each set."""

    def ids(text: str) -> list[int]:
        encoded: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return encoded

    def chat(question: str) -> str:
        return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"

    for row in _lines(data / "human_eval" / "HumanEval.jsonl.gz", most):
        yield Sample("code", row["task_id"], ids(row["prompt"]), ids(row["canonical_solution"]))
    for number, row in enumerate(_lines(data / "gsm8k" / "test.jsonl", most)):
        yield Sample("math", f"gsm8k {number}", ids(chat(row["question"])), ids(row["answer"]))
    for row in _lines(data / "self_instruct" / "seed_tasks.jsonl", most):
        case = row["instances"][0]
        yield Sample(
            "instructions", row["id"], ids(chat(f"{row['instruction']}\n{case['input']}")), ids(case["output"])
        )
    asked = {row["question_id"]: row["turns"] for row in _lines(data / "mt_bench" / "question.jsonl", 10_000)}
    for row in _lines(data / "mt_bench" / "reference_answer_gpt-4.jsonl", most):
        said = ""
        for question, answer in zip(asked[row["question_id"]], row["choices"][0]["turns"], strict=True):
            said += chat(question)
            yield Sample("multi-turn", f"mt_bench {row['question_id']}", ids(said), ids(answer))
            said += f"{answer}<|im_end|>\n"


def _lines(path: Path, most: int) -> list[Any]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.splitlines()[:most]]


def accepted(tree: Tree, answer: Sequence[int], tally: Tally) -> int:
    """How many nodes along the answer hold."""
    node, held = 0, 0
    tokens, parents, sure = tree.tokens.tolist(), tree.parents.tolist(), tree.confidence.tolist()
    while held < len(answer):
        follows = 0
        for child, parent in enumerate(parents):
            if parent == node:
                bin = tally.sure[min(9, int(sure[child] * 10))]
                bin[0] += sure[child]
                bin[1] += tokens[child] == answer[held]
                bin[2] += 1
                if tokens[child] == answer[held]:
                    follows = child + 1
        if not follows:
            break
        node, held = follows, held + 1
    return held


class Replay:
    """Rows of a history, in which a proposer sees answers grow: `rows` requests at once, the next when one ends."""

    def __init__(self, name: str, samples: Sequence[Sample], rows: int, options: dict[str, Any], trees: bool) -> None:
        longest = max(len(sample.prompt) + len(sample.answer) for sample in samples)
        self._history = History(np.zeros((rows, longest), np.int32), np.zeros(rows, np.int32))
        settings = ProposerSettings(self._history, vocab=1 << 20, trees=trees, options=options)
        self.proposer: Proposer = make_proposer(name, settings)
        self._said: list[list[int]] = [[] for _ in range(rows)]
        self._tallies = [Tally() for _ in range(rows)]

    def run(self, work: Sequence[tuple[Sample, str, Tally]], limit: int) -> None:
        """work: requests in turn, each with its salt and where it is counted."""
        waiting = list(reversed(work))
        active: list[int] = []
        free = list(range(len(self._said)))
        while waiting or active:
            while waiting and free:
                row = free.pop()
                active.append(row)
                self._begin(row, *waiting.pop())
            self._step(np.array(active, np.int32), limit)
            for row in [row for row in active if self._history.known[row] == len(self._said[row])]:
                self.proposer.end(row)
                active.remove(row)
                free.append(row)

    def _begin(self, row: int, sample: Sample, salt: str, tally: Tally) -> None:
        """The first token comes with the prompt's pass; each step from there on says one more than it accepts."""
        said, known = sample.prompt + sample.answer, len(sample.prompt) + 1
        self._history.token_ids[row, :known] = said[:known]
        self._history.known[row] = known
        self._said[row], self._tallies[row] = said, tally
        self.proposer.begin(row, salt, len(sample.prompt))

    def _step(self, rows: Int32, limit: int) -> None:
        most = np.full(len(rows), limit, np.int32)
        start = time.process_time()
        trees = self.proposer.propose(rows, most)
        getattr(self.proposer, "meanwhile", lambda: None)()  # what it puts off until the pass is on its way
        seconds = time.process_time() - start
        since = self._history.known[rows]
        for row, tree in zip(rows.tolist(), trees, strict=True):
            said, known, tally = self._said[row], int(self._history.known[row]), self._tallies[row]
            held = accepted(tree, said[known:], tally)
            grown = min(held + 1, len(said) - known)
            self._history.token_ids[row, known : known + grown] = said[known : known + grown]
            self._history.known[row] += grown
            tally.tokens, tally.steps = tally.tokens + grown, tally.steps + 1
            tally.drafted, tally.accepted = tally.drafted + len(tree), tally.accepted + held
        start = time.process_time()
        self.proposer.observe(rows, since)
        seconds += time.process_time() - start
        for row in rows.tolist():
            self._tallies[row].seconds += seconds / len(rows)


def measure(
    name: str, samples: Sequence[Sample], limit: int, rows: int, options: dict[str, Any], trees: bool
) -> dict[str, dict[str, Any]]:
    """By pass and task, "all" among them."""
    result = {}
    replay = Replay(name, samples, rows, options, trees)
    first = set(list(dict.fromkeys(sample.id for sample in samples))[::2])
    for kind in PASSES:
        tallies: dict[str, Tally] = {}
        asked = list(samples)
        if kind == "other half":
            replay = Replay(name, samples, rows, options, trees)
            replay.run([(sample, "", Tally()) for sample in samples if sample.id in first], limit)
            asked = [sample for sample in samples if sample.id not in first]
        salts = [f"alone {index}" if kind == "alone" else "" for index in range(len(asked))]
        counted = [tallies.setdefault(sample.task, Tally()) for sample in asked]
        replay.run(list(zip(asked, salts, counted, strict=True)), limit)
        result[kind] = {task: tally.row() for task, tally in tallies.items()} | {"all": _sum(tallies)}
    return result


def _sum(tallies: dict[str, Tally]) -> dict[str, Any]:
    total = Tally()
    for tally in tallies.values():
        for name in ("tokens", "steps", "drafted", "accepted", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        for mine, theirs in zip(total.sure, tally.sure, strict=True):
            mine[:] = [one + other for one, other in zip(mine, theirs, strict=True)]
    return total.row()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--gguf", type=Path, help="whose tokens these are")
    parser.add_argument("--most", type=int, default=60, help="samples of each set of --data")
    parser.add_argument("--proposers", default="ngram,lookahead")
    parser.add_argument("--limits", default="5,8,16", help="most nodes of a tree; n-gram's chain stays at 5")
    parser.add_argument("--rows", type=int, default=1, help="requests at once")
    parser.add_argument("--chains", action="store_true", help="as in strict mode: no trees")
    parser.add_argument("--options", type=json.loads, default={}, help="of the proposers, as JSON")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    samples = list(outputs(given.outputs)) if given.outputs else []
    if given.gguf:
        tokenizer, facts = load_tokenizer(open_model("gguf", {given.gguf.name: str(given.gguf)}))
        given.options["pieces"] = [tokenizer.decode([token]) for token in range(facts.vocab_size)]
    if given.data and given.gguf:
        samples += data_sets(given.data, tokenizer, given.most)
    samples = [sample for sample in samples if len(sample.answer) > 1]
    if not samples:
        parser.error("give --outputs, or --data and --gguf")
    report: dict[str, Any] = {"samples": len(samples), "rows": given.rows, "trees": not given.chains, "proposers": {}}
    for name in given.proposers.split(","):
        limits = [5] if name == "ngram" else [int(limit) for limit in given.limits.split(",")]
        for limit in limits:
            figures = measure(name, samples, limit, given.rows, given.options, not given.chains)
            report["proposers"][f"{name} {limit}"] = figures
            for kind, rows in figures.items():
                line = "  ".join(f"{task} {row['tokens_per_step']:.2f}" for task, row in rows.items())
                print(f"{name:10} {limit:3} {kind:11} {line}  {rows['all']['us_per_step']:.0f} us", flush=True)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
