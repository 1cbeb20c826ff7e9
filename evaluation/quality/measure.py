"""What every kind of task has in common: items asked a few at a time, each kept as it comes, figures out of what there
is. So a run that was cancelled or killed has what it measured, and `--resume` asks only the rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from evaluation.quality.endpoint import Connection, EndpointError
from evaluation.quality.results import Figure, Sample, TaskResult
from evaluation.quality.sets import SetError
from evaluation.quality.suite import Suite, Task
from evaluation.schema import Finding

Progress = Callable[[float, str], None]
"""Share done of the task, 0 … 1, and a few words."""

KEPT_CHARACTERS = 20_000
"""Of a prompt or an answer, in a sample."""

Kind = TypeVar("Kind", bound=Task)


@dataclass(frozen=True, slots=True)
class Item:
    """payload: all that the answer and its score hang on, as plain JSON."""

    id: str
    payload: dict[str, Any]
    group: str = ""


@dataclass(slots=True)
class Measured:
    """chance: what guessing reaches, where that is known."""

    figures: dict[str, Figure]
    chance: float | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """What a task has so far, with the samples that it rests on."""

    result: TaskResult
    samples: list[Sample]
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Context:
    """What tasks share. folder: that the suite's paths start from; out: of the run."""

    suite: Suite
    folder: Path
    out: Path
    connections: dict[str, Connection]

    @property
    def endpoint(self) -> Connection:
        return self.connections["endpoint"]

    @property
    def seed(self) -> int:
        return self.suite.seed

    def other(self, role: str) -> Connection:
        """The `reference` or the `judge`. Raises EndpointError where the suite has none."""
        if role not in self.connections:
            told = f"the suite has no {role}"
            raise EndpointError("no_endpoint", told, f'Add "{role}": {{"url": …}}, or --{role}-url', fatal=True)
        return self.connections[role]


class Store:
    """Samples of one task in a file, a line each, in the order in which they ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = {each.id: each for each in self._read()}

    def _read(self) -> list[Sample]:
        """A last line that was cut off by a kill is taken out of the file, so that the next one stands alone."""
        if not self.path.is_file():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            self.path.write_bytes(whole)
        return [msgspec.json.decode(line, type=Sample) for line in whole.splitlines()]

    def kept(self, id: str, fingerprint: str) -> Sample | None:
        """An earlier answer that still holds."""
        found = self._kept.get(id)
        return found if found is not None and found.fingerprint == fingerprint and not found.error else None

    def add(self, sample: Sample) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as sink:
            sink.write(msgspec.json.encode(sample) + b"\n")

    def rewrite(self, samples: Iterable[Sample]) -> None:
        """In the order of the items, without what an earlier run left of others."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in samples))
        part.replace(self.path)


class Measure(ABC, Generic[Kind]):
    """One task of a suite. `samples` grows while it runs."""

    primary: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("endpoint",)
    """Of the endpoints that the answers hang on."""

    def __init__(self, task: Kind, context: Context) -> None:
        self.task = task
        self.context = context
        self.dataset: dict[str, Any] = {}
        self.policy: dict[str, Any] = {}
        self.samples: list[Sample] = []
        self.total = 0
        self.store = Store(context.out / "samples" / f"{task.name}.jsonl")

    @abstractmethod
    def read(self) -> None:
        """The task's files, before the first question of any task. Raises SetError."""

    @abstractmethod
    async def items(self) -> list[Item]:
        """Raises EndpointError where the task can't begin."""

    @abstractmethod
    async def ask(self, item: Item) -> Sample:
        """Raises EndpointError."""

    @abstractmethod
    def measured(self, samples: list[Sample]) -> Measured:
        """Out of samples that have an answer."""

    def close(self) -> None:
        """Free what the task holds."""

    @property
    def errors(self) -> int:
        return sum(bool(each.error) for each in self.samples)

    def parts(self) -> list[Part]:
        """One per name in the result; nothing of a task that has not begun."""
        if not self.total:
            return []
        answered = [each for each in self.samples if not each.error]
        found = self.measured(answered)
        return [Part(self.result(self.task.name, self.primary, found), self.samples, found.findings)]

    def result(self, name: str, primary: str, found: Measured) -> TaskResult:
        answered = len(self.samples) - self.errors
        return TaskResult(
            name=name,
            kind=str(self.task.__struct_config__.tag),
            primary=primary,
            figures=found.figures,
            items=self.total,
            measured=answered,
            errors=self.errors,
            state="complete" if answered == self.total else "incomplete",
            chance=found.chance,
            dataset=self.dataset,
            policy=self.policy,
            samples=str(self.store.path.relative_to(self.context.out)),
        )

    async def run(self, progress: Progress) -> None:
        """Every item once. Raises EndpointError where going on is of no use; what came before is kept."""
        items = await self.items()
        self.total = len(items)
        twice = next((id for id, count in Counter(item.id for item in items).items() if count > 1), None)
        if twice is not None:
            raise SetError(self.task.name, 0, "id", f"two rows have the id {twice!r}", "Give each row its own")
        marks = {item.id: self._fingerprint(item) for item in items}
        old = {item.id: found for item in items if (found := self.store.kept(item.id, marks[item.id]))}
        self.store.rewrite(old.values())
        self.samples = list(old.values())
        rest = iter([item for item in items if item.id not in old])
        most = max(3.0, self.context.suite.most_errors / 100 * len(items))

        async def work() -> None:
            for item in rest:  # one iterator for all workers: each item goes to one of them
                sample = await self._one(item)
                sample.id, sample.group, sample.fingerprint = item.id, item.group, marks[item.id]
                self.store.add(sample)
                self.samples.append(sample)
                progress(len(self.samples) / len(items), f"{self.task.name}: {len(self.samples)} of {len(items)}")
                if self.errors > most:
                    told = f"{self.errors} of {len(self.samples)} items have no answer, the last: {sample.error}"
                    raise EndpointError("too_many_errors", told, "Mend the cause; then --resume", fatal=True)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.context.suite.concurrency, len(items) - len(old))):
                    group.create_task(work())
        except BaseExceptionGroup as failed:
            first = next((each for each in failed.exceptions if isinstance(each, EndpointError)), None)
            if first is None:
                raise
            raise first from None
        finally:
            order = {item.id: place for place, item in enumerate(items)}
            self.samples.sort(key=lambda each: order[each.id])
            self.store.rewrite(self.samples)

    async def _one(self, item: Item) -> Sample:
        try:
            sample = await self.ask(item)
        except EndpointError as error:
            if error.fatal:
                raise
            return Sample(id=item.id, error=str(error)[:1000])
        sample.prompt, sample.answer = sample.prompt[:KEPT_CHARACTERS], sample.answer[:KEPT_CHARACTERS]
        return sample

    def _fingerprint(self, item: Item) -> str:
        """Of what an answer hangs on: the item, the task but for how many rows it takes, the models; no address."""
        task = {key: value for key, value in msgspec.to_builtins(self.task).items() if key not in UNHELD}
        asked = [(role, found) for role in self.roles if (found := self.context.connections.get(role))]
        models = {role: [each.model, each.endpoint.api, each.endpoint.extra_body] for role, each in asked}
        whole = {"task": task, "item": item.payload, "models": models, "seed": self.context.seed}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


UNHELD = ("name", "rows", "windows", "data", "chance", "least_kappa", "least_labels", "calibration")
"""Fields of a task that change no single answer."""
