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
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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

ROWS_AT_ONCE = 32
"""That our engine computes: requests of four prompts each."""


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

    def command(self, side: str, tasks: Sequence[str], arguments: dict[str, Any], batch: int) -> list[str]:
        """argv of lm-eval. side: "ours" or "hf"."""
        backend = "local-completions" if side == "ours" else "hf"
        metadata = json.dumps({"data": str(self.data), "rows": self.rows})
        chat = ["--apply_chat_template"] if KNOWN[tasks[0]].generates else []
        return [
            str(self.python), "-m", "lm_eval", "run", "--model", backend,
            "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
            "--tasks", ",".join(f"tursiops_{name}" for name in tasks), "--include_path", str(TASKS), *chat,
            "--metadata", metadata, "--batch_size", str(batch), "--use_cache", str(self.work / side / "cache"),
            "--output_path", str(self.folder(side, tasks)), "--log_samples",
            *(["--device", "cpu"] if side == "hf" else []),
        ]  # fmt: skip

    def folder(self, side: str, tasks: Sequence[str]) -> Path:
        return self.work / side / "-".join(tasks)

    def run(self, command: list[str], output: Path, key: str = "") -> None:
        """Raises CalledProcessError where lm-eval fails."""
        shutil.rmtree(output, ignore_errors=True)  # an earlier run's; its answers are in the cache
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.work / "hf-home")}
        threads = {"OMP_WAIT_POLICY": "PASSIVE"} | ({"OMP_NUM_THREADS": str(self.threads)} if self.threads else {})
        environment = {**os.environ, **offline, **threads, "OPENAI_API_KEY": key}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdin=subprocess.DEVNULL)


def run_ours(setup: Setup, tasks: Sequence[str], instance: Instance) -> list[str]:
    """Returns lm-eval's argv."""
    arguments = {
        "base_url": f"{instance.url}/v1/completions",
        "model": instance.name,
        "tokenizer": setup.model,
        "tokenizer_backend": "huggingface",
        "max_length": LENGTH + 2,
        "num_concurrent": ROWS_AT_ONCE // 4,
        "timeout": 3600,
    }
    command = setup.command("ours", tasks, arguments, batch=4)
    setup.run(command, setup.folder("ours", tasks), instance.token)
    return command


def run_peer(setup: Setup, tasks: Sequence[str]) -> list[str]:
    """Returns lm-eval's argv."""
    arguments = {"pretrained": setup.model, "dtype": "float32", "max_length": LENGTH}
    command = setup.command("hf", tasks, arguments, PEER_BATCH[KNOWN[tasks[0]].generates])
    setup.run(command, setup.folder("hf", tasks))
    return command


def compared(setup: Setup, tasks: Sequence[str]) -> list[Comparison]:
    """What the two have written of `tasks`, which one call of lm-eval had together."""
    found = []
    for name in tasks:
        ours, peer = (read_samples(setup.folder(side, tasks), f"tursiops_{name}") for side in ("ours", "hf"))
        found.append(compare(name, KNOWN[name].metric, ours, peer))
    return found


def report(name: str, setup: Setup, comparisons: Sequence[Comparison], commands: list[list[str]]) -> dict[str, Any]:
    """What is committed."""
    return {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip(),
        "device": "cpu",
        "dtype": "float32",
        "versions": json.loads(subprocess.check_output([str(setup.python), "-c", _VERSIONS], text=True)),
        "rows": [asdict(each) | {"within": each.within} for each in comparisons],
        "commands": commands,
    }


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
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "quality")
    options = parser.parse_args()
    end_on_signals()
    rows = {name: options.rows.get(name, KNOWN[name].rows) for name in options.tasks}
    # absolute, but not resolved: a virtual environment's python is a link, and resolving it leaves the environment
    python, work = options.lm_eval.absolute(), options.work.absolute()
    setup = Setup(options.model.absolute(), python, options.data.absolute(), work, rows, options.threads)
    for side in ("ours", "hf"):
        (setup.work / side).mkdir(parents=True, exist_ok=True)
    groups = [[name for name in options.tasks if KNOWN[name].generates is kind] for kind in (False, True)]
    comparisons, commands = [], []
    engine: dict[str, Any] = {
        "dtype": "float32",
        "device": "cpu",
        "max_model_len": LENGTH + 2,
        "max_num_seqs": ROWS_AT_ONCE,
    }
    with (
        Instance(setup.model, options.name, **engine) as instance,
        ThreadPoolExecutor(2) as pool,
    ):
        for tasks in filter(None, groups):
            sides = [pool.submit(run_ours, setup, tasks, instance), pool.submit(run_peer, setup, tasks)]
            commands += [side.result() for side in sides]
            comparisons += compared(setup, tasks)
            print(table(comparisons), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"lm_eval.{options.name}.json"
    path.write_text(json.dumps(report(options.name, setup, comparisons, commands), indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
