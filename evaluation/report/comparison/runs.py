"""The runs that are compared: a result folder, a folder of repeats, or another tool's file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evaluation.report.comparison.document import RunName
from evaluation.report.errors import ReportError
from evaluation.report.files import RESULT, read, read_requests
from evaluation.report.importers.files import file_in, import_file
from evaluation.report.reading import model_of
from evaluation.schema import LevelResult, RequestRecord, ResultDoc


@dataclass
class Run:
    """One result with its requests, which are read when first asked for."""

    result: ResultDoc
    folder: Path | None = None
    imported: dict[int, list[RequestRecord]] = field(default_factory=dict)  # of another tool's file

    @cached_property
    def _by_level(self) -> dict[int, list[RequestRecord]]:
        if self.folder is None:
            return self.imported
        levels: dict[int, list[RequestRecord]] = defaultdict(list)
        for record in read_requests(self.folder):
            levels[record.level].append(record)
        return levels

    def requests(self, level: LevelResult) -> list[RequestRecord]:
        """Of the level's window, by intended start; empty where the run kept none."""
        found = [record for record in self._by_level.get(level.index, []) if not record.warm_up]
        if level.window is not None:
            window = level.window
            found = [record for record in found if window.start_ns <= record.intended_ns < window.end_ns]
        return sorted(found, key=lambda record: record.intended_ns)


@dataclass
class Side:
    """What stands on one side: one run, or repeats of it."""

    name: str
    runs: list[Run]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def told(self) -> RunName:
        result = self.first.result
        return RunName(
            name=self.name,
            id=result.id,
            kind=result.kind,
            source=str(result.environment.get("imported_from", "tursiops")),
            runs=len(self.runs),
            model=model_of(result),
            url=result.spec.endpoint.url if result.spec is not None else "",
            seed=result.seed,
            started_at=result.started_at,
            definitions=result.definitions,
            verdict=result.verdict,
        )


def open_side(path: Path) -> Side:
    """A folder with result.json, a folder of such folders (repeats, by name), or another tool's file or folder.
    Raises ReportError."""
    theirs = path if path.is_file() and path.name != RESULT else None
    if path.is_dir() and not (path / RESULT).is_file():
        theirs = file_in(path)
    if theirs is not None:
        result, requests = import_file(theirs)
        return Side(path.name, [Run(result, None, requests)])
    if path.is_file() or (path / RESULT).is_file():
        folder = path if path.is_dir() else path.parent
        return Side(folder.resolve().name, [Run(read(folder), folder)])
    repeats = sorted(inner.parent for inner in path.glob(f"*/{RESULT}")) if path.is_dir() else []
    if not repeats:
        raise ReportError(
            path, f"neither a folder with {RESULT}, nor a folder of such, nor a file that can be imported"
        )
    return Side(path.resolve().name, [Run(read(folder), folder) for folder in repeats])
