"""Which tool wrote a file is told by what stands in it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from evaluation.report.errors import ReportError
from evaluation.report.importers import aiperf, evalscope, guidellm, vllm
from evaluation.schema import RequestRecord, ResultDoc

NAMES = ("profile_export.jsonl", "profile_export_aiperf.json", "benchmark_summary.json", "benchmarks.json")
KNOWN = "guidellm's report, vllm bench serve's, evalscope perf's benchmark_summary.json, aiperf's profile_export files"


def file_in(folder: Path) -> Path | None:
    """The file that a tool's output folder is read by."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def import_file(path: Path) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    """The result of another tool's file with its requests by level. Raises ReportError."""
    found = _read(path)
    try:
        return _convert(found, path)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, sqlite3.DatabaseError) as error:
        reason = f"it looks like a known tool's file, but not of a version that is known: {error!r}"
        raise ReportError(path, reason) from error


def _convert(found: list[Any], path: Path) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    first = found[0]
    if guidellm.is_ours(first):
        return guidellm.read(first)
    if aiperf.is_sums(first):
        return aiperf.read_sums(first)
    if aiperf.is_requests(first):
        return _with_sums(aiperf.read_requests(found), path)
    if vllm.is_ours(first):
        return vllm.read(found)
    if evalscope.is_ours(first):
        return evalscope.read(first, path.parent)
    raise ReportError(path, f"nobody knows this form. Known: {KNOWN}")


def _with_sums(
    imported: tuple[ResultDoc, dict[int, list[RequestRecord]]], path: Path
) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    """aiperf tells the load in the file beside the requests'."""
    beside = path.with_name("profile_export_aiperf.json")
    if beside.is_file():
        level = imported[0].levels[0]
        level.rate, level.concurrency = aiperf.load_of(_read(beside)[0])
    return imported


def _read(path: Path) -> list[Any]:
    """One JSON document, or one per line. Raises ReportError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(path, f"it can't be read as text: {error}") from error
    with contextlib.suppress(ValueError):  # else a document per line
        return [json.loads(text)]
    try:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ReportError(path, f"this is neither JSON nor a document per line: {error}") from error
    if not found:
        raise ReportError(path, "the file is empty")
    return found
