"""lm-eval through our endpoint and through its `hf` back end, on the same float32 weights and the same rows.

    python -m evaluation.benchmarks.hf_folder MODEL.gguf FOLDER
    python -m evaluation.quality.lm_eval_runs FOLDER --name smollm2 --lm-eval VENV/bin/python --work WORK

FOLDER: a model as the hub holds it. VENV: an environment with lm-eval, with NLTK_DATA set to what
`evaluation.quality.punkt` wrote (docs/quality.md says how to make both). The tasks are in evaluation/quality/tasks.
lm-eval keeps each answer in WORK, so an interrupted run goes on where it was, and one of more rows asks only those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluation.quality.instance import Instance, end_on_signals
from evaluation.quality.lm_eval_compare import Comparison, compare, read_samples, table

ROOT = Path(__file__).parents[2]
TASKS = Path(__file__).parent / "tasks"
LENGTH = 1024
"""Tokens: lm-eval's window. Its API back end keeps one for the answer and one for the context, and so gets two more."""

ROWS_AT_ONCE, PROMPTS = 32, 8
"""That our engine computes, and the prompts of one request to it."""
SIDES = ("ours", "hf")


@dataclass(frozen=True, slots=True)
class Task:
    """rows: by default. generates: an answer under the model's chat template, rather than log-likelihoods."""

    metric: str
    rows: int
    generates: bool = False


KNOWN = {
    "bbh": Task("acc", 110),
    "wikitext": Task("word_perplexity", 16),
    "gsm8k": Task("exact_match", 100, generates=True),
    "ifeval": Task("prompt_level_strict_acc", 50, generates=True),
}
PEER_BATCH = {False: 1, True: 25}
"""Rows that `hf` computes at once, by `generates`: no padding is in the reference of log-likelihoods."""


@dataclass(frozen=True, slots=True)
class Setup:
    """rows: of each task. threads: that compute, of each side; 0 leaves it to them."""

    model: Path
    python: Path
    data: Path
    work: Path
    rows: dict[str, int]
    threads: int
    device: str = "cpu"

    def job(self, side: str, tasks: Sequence[str], instance: Instance) -> dict[str, Any]:
        """What `lm_eval_driver` is given. side: "ours" or "hf"."""
        generates = KNOWN[tasks[0]].generates
        backend, arguments, batch = self._ours(generates, instance) if side == "ours" else self._peer(generates)
        argv = [
            "run", "--model", backend, "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
            "--batch_size", str(batch), *(["--device", self.device] if side == "hf" else []),
            "--tasks", ",".join(f"tursiops_{name}" for name in tasks), "--include_path", str(TASKS),
            *(["--apply_chat_template"] if generates else []),
            "--metadata", json.dumps({"data": str(self.data), "rows": self.rows}),
            "--use_cache", str(self.work / side / "cache"),
            "--output_path", str(self.folder(side, tasks)), "--log_samples",
        ]  # fmt: skip
        return {"argv": argv, "folder": str(self.folder(side, tasks)), "rows": self.rows_of(tasks)}

    def _ours(self, generates: bool, instance: Instance) -> tuple[str, dict[str, Any], int]:
        """One request after the other for log-likelihoods: lm-eval 0.4.13 fails on rolling ones that are concurrent and
        cached (it makes a list of the key None)."""
        arguments = {
            "base_url": f"{instance.url}/v1/completions",
            "model": instance.name,
            "tokenizer": self.model,
            "tokenizer_backend": "huggingface",
            "max_length": LENGTH + 2,
            "num_concurrent": ROWS_AT_ONCE // PROMPTS if generates else 1,
            "timeout": 3600,
        }
        return "local-completions", arguments, PROMPTS

    def _peer(self, generates: bool) -> tuple[str, dict[str, Any], int]:
        return "hf", {"pretrained": self.model, "dtype": "float32", "max_length": LENGTH}, PEER_BATCH[generates]

    def folder(self, side: str, tasks: Sequence[str]) -> Path:
        return self.work / side / "-".join(tasks)

    def rows_of(self, tasks: Sequence[str]) -> dict[str, int]:
        return {name: self.rows[name] for name in tasks}

    def done(self, side: str, tasks: Sequence[str]) -> dict[str, Any] | None:
        """The job that was done before, of as many rows; None where it is still to be done."""
        path = self.folder(side, tasks) / "command.json"
        job: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        return job if job.get("rows") == self.rows_of(tasks) else None

    def run(self, jobs: Sequence[dict[str, Any]], key: str) -> None:
        """Raises CalledProcessError where lm-eval fails."""
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.work / "hf-home")}
        threads = {"OMP_WAIT_POLICY": "PASSIVE"} | ({"OMP_NUM_THREADS": str(self.threads)} if self.threads else {})
        environment = {**os.environ, **offline, **threads, "OPENAI_API_KEY": key}
        command = [str(self.python), str(Path(__file__).with_name("lm_eval_driver.py"))]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, input=json.dumps(jobs).encode())


def compared(setup: Setup, tasks: Sequence[str]) -> list[Comparison]:
    """What the two have written of `tasks`, which one call of lm-eval had together."""
    found = []
    for name in tasks:
        ours, peer = (read_samples(setup.folder(side, tasks), f"tursiops_{name}") for side in SIDES)
        found.append(compare(name, KNOWN[name].metric, ours, peer, KNOWN[name].generates))
    return found


def report(name: str, setup: Setup, comparisons: Sequence[Comparison], commands: list[list[str]]) -> dict[str, Any]:
    """What is committed."""
    return {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "device": setup.device,
        "dtype": "float32",
        "versions": json.loads(subprocess.check_output([str(setup.python), "-c", _VERSIONS], text=True)),
        "rows": [asdict(each) | {"within": each.within} for each in comparisons],
        "commands": commands,
    }


def _commit() -> str:
    """Empty where the tree is a copy without its history."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


_VERSIONS = """
import json
from importlib.metadata import version
print(json.dumps({name: version(name) for name in ("lm_eval", "torch", "transformers", "datasets")}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", required=True, help="of the report: docs/quality/lm_eval.<name>.json")
    parser.add_argument("--lm-eval", type=Path, required=True, help="the Python of lm-eval's environment")
    parser.add_argument("--work", type=Path, required=True, help="folder for what lm-eval writes")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--tasks", nargs="+", choices=list(KNOWN), default=list(KNOWN))
    parser.add_argument("--rows", type=json.loads, default={}, help='rows of a task, as {"bbh": 20}')
    parser.add_argument("--threads", type=int, default=0, help="that compute, of each side")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both sides")
    parser.add_argument("--kv-cache-bytes", type=int, default=0, help="of our engine; 0: what is free")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "quality")
    options = parser.parse_args()
    end_on_signals()
    rows = {name: options.rows.get(name, KNOWN[name].rows) for name in options.tasks}
    # absolute, but not resolved: a virtual environment's python is a link, and resolving it leaves the environment
    python, work = options.lm_eval.absolute(), options.work.absolute()
    setup = Setup(
        options.model.absolute(), python, options.data.absolute(), work, rows, options.threads, options.device
    )
    kinds = [[name for name in options.tasks if KNOWN[name].generates is kind] for kind in (False, True)]
    groups = [tasks for tasks in kinds if tasks]
    runs = [(side, tasks) for tasks in groups for side in SIDES]
    pending = [run for run in runs if setup.done(*run) is None]
    if pending:
        for side in SIDES:
            (setup.work / side).mkdir(parents=True, exist_ok=True)
        engine: dict[str, Any] = {"dtype": "float32", "device": setup.device, "options": {"threads": setup.threads}}
        engine["kv_cache_bytes"] = options.kv_cache_bytes
        engine |= {"max_model_len": LENGTH + 2, "max_num_seqs": ROWS_AT_ONCE}
        with Instance(setup.model, options.name, **engine) as instance:
            setup.run([setup.job(*run, instance) for run in pending], instance.token)
    comparisons = [each for tasks in groups for each in compared(setup, tasks)]
    print(table(comparisons))
    commands = [["lm_eval", *(setup.done(*run) or {})["argv"]] for run in runs]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"lm_eval.{options.name}.json"
    path.write_text(json.dumps(report(options.name, setup, comparisons, commands), indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
