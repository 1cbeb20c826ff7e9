"""The files that a run's folder holds, and how they are read again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from evaluation.report.errors import ReportError as ReportError
from evaluation.report.html.page import report
from evaluation.report.junit import junit
from evaluation.report.summary_csv import summary_csv
from evaluation.schema import RequestRecord, ResultDoc, encode, read_result

RESULT, REQUESTS = "result.json", "requests.jsonl"
BLOCK = 2**16  # bytes that are read back at a time


def write(folder: Path, result: ResultDoc, language: str = "en") -> None:
    """result.json, summary.csv, gates.junit.xml and report.html, each whole or as it was before: a run that is killed
    while writing keeps its last state."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / RESULT, msgspec.json.format(encode(result), indent=1) + b"\n")
    _replace(folder / "summary.csv", summary_csv(result).encode())
    _replace(folder / "gates.junit.xml", junit(result))
    _replace(folder / "report.html", report(result, language).encode())


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)


def append_requests(folder: Path, records: Iterable[RequestRecord]) -> None:
    """One line per request, in the order that they ended; the piece of one that a killed run left goes first."""
    with (folder / REQUESTS).open("a+b") as file:
        _cut_to_whole_lines(file)
        file.writelines(encode(record) + b"\n" for record in records)


def _cut_to_whole_lines(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - BLOCK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    file.truncate(end)


def read(folder: Path) -> ResultDoc:
    """The result of a folder, or of a file result.json. Raises ReportError."""
    path = folder / RESULT if folder.is_dir() else folder
    try:
        return read_result(path.read_bytes())
    except FileNotFoundError:
        raise ReportError(folder, f"there is no {RESULT} in it; give the folder that a run wrote") from None
    except msgspec.DecodeError as error:
        raise ReportError(path, f"this is no result of this version: {error}") from error


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """Of requests.jsonl; none where there is no such file. A last line that a killed run cut off is left out.
    Raises ReportError for any other line that can't be read."""
    path = folder / REQUESTS
    if not path.is_file():
        return
    decoder = msgspec.json.Decoder(RequestRecord)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):
                    return
                raise ReportError(path, f"line {number}: {error}") from error
