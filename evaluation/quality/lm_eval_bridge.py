"""lm-eval's tasks through the suite's endpoint, by its own rules and in its own environment; what it found is imported.

lm-eval keeps each answer in a cache beside the run, so a run that was cut asks only the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from evaluation.quality import sets
from evaluation.quality.endpoint import EndpointError
from evaluation.quality.lm_eval_environment import EnvironmentFault, LmEvalEnvironment, default_folder, ensure
from evaluation.quality.lm_eval_import import imported, read_results
from evaluation.quality.lm_eval_proxy import Proxy
from evaluation.quality.measure import Context, Item, Measure, Measured, Part, Progress, Store
from evaluation.quality.results import Sample
from evaluation.quality.sets import SetError
from evaluation.quality.suite import LmEval

TASKS = Path(__file__).parent / "tasks"
OURS = ("bbh", "wikitext", "gsm8k", "ifeval")
"""Tasks of evaluation/quality/tasks, there called tursiops_<name>; their rows come from `data`."""

PROMPTS = 8
"""In one request, of log-likelihoods: lm-eval 0.4.13 fails on rolling ones that are concurrent and cached."""

GRACE_S = 5.0


class LmEvalMeasure(Measure[LmEval]):
    """`results` has one task for each of lm-eval's, named <task>:<lm-eval's name>."""

    primary = ""

    def __init__(self, task: LmEval, context: Context) -> None:
        super().__init__(task, context)
        self._data = sets.DATA / "lm_eval"
        self._parts: list[Part] = []

    def read(self) -> None:
        if self.task.data != sets.BUNDLED:
            self._data = (self.context.folder / self.task.data).resolve()
            if not self._data.is_dir():
                fix = f"Paths start from {self.context.folder}"
                raise SetError(self.task.data, 0, "", "there is no such folder", fix)
        if self.task.include_path and not (self.context.folder / self.task.include_path).is_dir():
            raise SetError(self.task.include_path, 0, "", "there is no such folder", "It holds lm-eval's task files")
        self.dataset = {"name": str(self._data)}
        self.policy = {"chat_template": self.task.chat, "max_length": self.task.max_length, "bos": "none before ids"}

    async def items(self) -> list[Item]:
        """lm-eval has its own."""
        return []

    async def ask(self, item: Item) -> Sample:
        raise NotImplementedError("lm-eval asks")  # `run` is its own, and calls neither

    def measured(self, samples: list[Sample]) -> Measured:
        raise NotImplementedError("lm-eval measures")  # as above

    def parts(self) -> list[Part]:
        return self._parts

    async def run(self, progress: Progress) -> None:
        folder = self._folder()
        done = self._done(folder)
        if not done:
            environment = await self._environment(progress)
            await self._ask_all(environment, folder, progress)
        self._import(folder)
        self.total = sum(part.result.items for part in self._parts)
        progress(1.0, f"{self.task.name}: imported")

    def _folder(self) -> Path:
        """Of these questions to this model: others have another, and with it another cache."""
        mark = self._fingerprint(Item("", {"data": str(self._data), "rows": self.task.rows}))
        return self.context.out / "lm_eval" / f"{self.task.name}-{mark[:12]}"

    def _done(self, folder: Path) -> bool:
        return (folder / "output" / "command.json").is_file()

    async def _environment(self, progress: Progress) -> LmEvalEnvironment:
        try:
            return await asyncio.to_thread(ensure, default_folder(), lambda text: progress(0.0, text))
        except EnvironmentFault as error:
            hint = "Give pip a way to PyPI once: python -m evaluation.quality.lm_eval_environment"
            raise EndpointError("no_lm_eval", str(error), hint) from error

    async def _ask_all(self, environment: LmEvalEnvironment, folder: Path, progress: Progress) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        asked = self.context.endpoint

        def told(count: int) -> None:
            progress(1 - 1 / (1 + count / 200), f"{self.task.name}: lm-eval has {count} answers")

        async with Proxy(asked, told) as proxy:
            job = {"argv": self.argv(proxy.url, asked.model, folder), "folder": str(folder / "output")}
            await self._process(environment, folder, [job], proxy)

    def argv(self, url: str, model: str, folder: Path) -> list[str]:
        """The command line of lm-eval. url: of the proxy."""
        task = self.task
        arguments: dict[str, Any] = {
            "model": model,
            "max_length": task.max_length,
            "num_concurrent": self.context.suite.concurrency if task.chat else 1,
            "timeout": int(self.context.endpoint.endpoint.timeout_s),
        }
        if task.chat:  # written by the endpoint's own template: lm-eval 0.4.13 can't with a remote tokenizer
            kind, arguments["base_url"] = "local-chat-completions", f"{url}/v1/chat/completions"
        else:
            kind, arguments["base_url"] = "local-completions", f"{url}/v1/completions"
            arguments["tokenizer_backend"] = "remote"
        include = self.context.folder / task.include_path if task.include_path else TASKS
        rows = dict.fromkeys(OURS, task.rows or 10**9)
        return [
            "run", "--model", kind,
            "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
            "--batch_size", "1" if task.chat else str(PROMPTS),
            "--tasks", ",".join(task.tasks), "--include_path", str(include),
            *(["--apply_chat_template"] if task.chat else []),
            *(["--num_fewshot", str(task.fewshot)] if task.fewshot is not None else []),
            *(["--limit", str(task.rows)] if task.rows is not None else []),
            "--metadata", json.dumps({"data": str(self._data), "rows": rows}),
            "--use_cache", str(folder / "cache"),
            "--output_path", str(folder / "output"), "--log_samples",
            "--seed", str(self.context.seed),
        ]  # fmt: skip

    async def _process(self, environment: LmEvalEnvironment, folder: Path, jobs: list[Any], proxy: Proxy) -> None:
        """Raises EndpointError with lm-eval's last words. Cancelled, it ends lm-eval's process group first."""
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf-home")}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        log = folder / "lm_eval.log"
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                str(environment.python), str(Path(__file__).with_name("lm_eval_driver.py")),
                stdin=asyncio.subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True,
                env={**kept, **offline, "NLTK_DATA": str(environment.tables), "OPENAI_API_KEY": "of-the-proxy"},
            )  # fmt: skip
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(jobs).encode())
                process.stdin.close()
                while process.returncode is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), 0.5)
                    if proxy.failure is not None and proxy.failure.fatal:
                        break
            finally:
                await _end(process)
        if proxy.failure is not None and process.returncode:
            raise proxy.failure
        if process.returncode:
            said = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:])
            raise EndpointError("lm_eval_failed", f"lm-eval ended with {process.returncode}: {said}", f"See {log}")

    def _import(self, folder: Path) -> None:
        results = read_results(folder / "output")
        for name, counts in results["n-samples"].items():
            primary, found, self.samples = imported(folder / "output", name, results)
            self.total = int(counts["effective"])
            if self.task.chance is not None:
                found.chance = self.task.chance
            whole = f"{self.task.name}:{name}"
            self.store = Store(self.context.out / "samples" / f"{self.task.name}-{name}.jsonl")
            self.store.rewrite(self.samples)
            self._parts.append(Part(self.result(whole, primary, found), self.samples, found.findings))


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to what is left of the group, SIGKILL after GRACE_S."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
            return
