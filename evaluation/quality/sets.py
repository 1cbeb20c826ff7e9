"""Data sets of quality tasks: JSONL and CSV files that people write, and the small ones that come with the package.

Every fault of a row names file, line, field and the fix, before anything is asked of a model.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from evaluation.quality.suite import SUITES, Rule
from evaluation.spec_errors import SpecError, explain

DATA = SUITES / "data"
BUNDLED = "bundled:"
LARGEST = 256 * 2**20  # bytes of a set


class SetError(ValueError):
    """`line` counts from 1, 0 for the whole file."""

    code = "invalid_set"

    def __init__(self, file: str, line: int, field: str, reason: str, fix: str = "") -> None:
        place = f"{file}:{line}" if line else file
        super().__init__(": ".join(part for part in (place, field, reason) if part) + (f". {fix}" if fix else ""))
        self.file = file
        self.line = line
        self.field = field
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Source:
    """A file with what is known of it; `facts` goes into the result."""

    path: Path
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.name


class RuleRow(Struct, kw_only=True, forbid_unknown_fields=True):
    """Of a business set. `expected`: text or a list of texts, a number, a pattern or a JSON Schema, as `rule` wants."""

    expected: Any
    prompt: str = ""
    messages: list[dict[str, Any]] = []  # instead of prompt: a conversation
    rule: Rule | None = None
    id: str | int | None = None
    group: str | int = ""
    ignore_case: bool = False
    tolerance: float = 0.0
    relative_tolerance: float = 0.0


class ChoiceRow(Struct, kw_only=True, forbid_unknown_fields=True):
    """gold: the place in `choices`, from 0."""

    prompt: str
    choices: list[str]
    gold: int
    id: str | int | None = None
    group: str | int = ""


class TextRow(Struct, kw_only=True):
    """Of a JSONL file of texts: other fields are left alone."""

    text: str
    id: str | int | None = None


class PairRow(Struct, kw_only=True, forbid_unknown_fields=True):
    """A prompt for the judge. `answer_a`, `answer_b`: written already (a calibration set has both and `label`)."""

    prompt: str
    answer_a: str | None = None
    answer_b: str | None = None
    reference_answer: str = ""  # what a right answer says
    label: str = ""
    id: str | int | None = None
    group: str | int = ""


Row = TypeVar("Row", bound=Struct)


def named(id: str | int | None, line: int) -> str:
    """A row's id; its line, where it has none."""
    return str(line if id is None or id == "" else id)


def manifest() -> dict[str, dict[str, Any]]:
    """What comes with the package: name → file, sha256, rows, licence, source, changes."""
    found: dict[str, dict[str, Any]] = json.loads((DATA / "manifest.json").read_text(encoding="utf-8"))
    return found


def source(ref: str, folder: Path) -> Source:
    """The file that `ref` names. Raises SetError where there is none, or a bundled one was changed."""
    if not ref.startswith(BUNDLED):
        path = (folder / Path(ref).expanduser()).resolve()
        if not path.is_file():
            raise SetError(ref, 0, "", "there is no such file", f"Paths start from {folder}")
        if path.stat().st_size > LARGEST:
            raise SetError(ref, 0, "", f"it has over {LARGEST >> 20} MiB", "Give a part of it")
        return Source(path, {"name": path.name, "sha256": digest(path)})
    name, known = ref.removeprefix(BUNDLED), manifest()
    if name not in known:
        raise SetError(ref, 0, "", "no such set comes with the package", f"There are: {', '.join(sorted(known))}")
    facts = known[name]
    path = DATA / facts["file"]
    if digest(path) != facts["sha256"]:
        raise SetError(ref, 0, "", f"{path} has another sha256 than manifest.json says", "Install the package again")
    return Source(path, {"name": name, **{key: facts[key] for key in ("sha256", "licence", "source", "changes")}})


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_text(found: Source) -> str:
    try:
        return found.path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = found.path.read_bytes()[: error.start].count(b"\n") + 1
        raise SetError(found.name, line, "", "it is not UTF-8", "Save it as UTF-8 (in Excel: CSV UTF-8)") from error


def read_rows(found: Source, kind: type[Row], limit: int | None = None) -> list[tuple[int, Row]]:
    """(line, row) of the first `limit`. Raises SetError."""
    text = read_text(found)
    raw = _csv(found, text, kind) if found.path.suffix.lower() == ".csv" else _jsonl(found, text)
    rows = [(line, _row(found, line, fields, kind)) for line, fields in raw[:limit]]
    if not rows:
        raise SetError(found.name, 0, "", "it has no rows")
    return rows


def _row(found: Source, line: int, fields: dict[str, Any], kind: type[Row]) -> Row:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        told: SpecError = explain(str(error), fields, kind)
        raise SetError(found.name, line, told.path.removeprefix("$").lstrip("."), told.reason, told.fix) from error


def _jsonl(found: Source, text: str) -> list[tuple[int, dict[str, Any]]]:
    rows = []
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            fields = json.loads(content)
        except ValueError as error:
            raise SetError(found.name, line, "", f"no JSON: {error}", "One JSON object a line") from error
        if not isinstance(fields, dict):
            raise SetError(found.name, line, "", "no JSON object", 'As {"prompt": "…", "expected": "…"}')
        rows.append((line, fields))
    return rows


def _csv(found: Source, text: str, kind: type[Struct]) -> list[tuple[int, dict[str, Any]]]:
    """Cells by the header's names; empty ones are absent. What is not text is read as JSON where it is."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    labels = ("id", "group", "rule")
    texts = {each.name for each in msgspec.structs.fields(kind) if each.type is str or each.name in labels}
    rows: list[tuple[int, dict[str, Any]]] = []
    header: list[str] = []
    began = 1
    try:
        for cells in reader:
            if not header:
                header = [cell.strip() for cell in cells]
            elif cells:
                if len(cells) > len(header):
                    told = f"{len(cells)} cells under {len(header)} columns"
                    raise SetError(found.name, began, "", told, 'Put "…" around text with commas')
                named = [(name, cell) for name, cell in zip(header, cells, strict=False) if cell != ""]
                rows.append((began, {name: cell if name in texts else _cell(name, cell) for name, cell in named}))
            began = reader.line_num + 1
    except csv.Error as error:
        raise SetError(found.name, began, "", f"no CSV: {error}", 'Double each " inside "…"') from error
    return rows


def _cell(name: str, cell: str) -> Any:
    """As JSON where it is; of `expected` only lists and objects: "1e3" or "true" may be the text that is meant."""
    if name == "expected" and not cell.lstrip().startswith(("[", "{")):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell
