"""Recorded traffic: when requests came and how long they were, in the three formats that are published.

Azure (AzurePublicDataset, CSV), BurstGPT (HPMLL/BurstGPT, CSV), Mooncake (kvcache-ai/Mooncake, JSON lines with the
hashes of each prompt's 512-token blocks).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from evaluation.schema import Trace
from evaluation.workload.errors import DatasetError

MOONCAKE_BLOCK = 512  # tokens behind each of its hash_ids


class Row(Struct, frozen=True):
    offset_s: float  # after the first row that is taken, at the trace's `time_scale`
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()
    session: str = ""


def read(spec: Trace) -> list[Row]:
    """By time; from `start_s` for `duration_s` of the recording. Rows without tokens (failed requests) are left out.

    Raises DatasetError naming the line and the field.
    """
    path = Path(spec.path).expanduser()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = sorted(READERS[spec.format](str(path), file), key=lambda row: row.offset_s)
    except OSError as error:
        raise DatasetError(str(path), f"can't be read: {error.strerror}", "Name a file of this machine") from error
    if not rows:
        raise DatasetError(str(path), "holds no request", f"It should be a trace in the format '{spec.format}'")
    zero = rows[0].offset_s + spec.start_s
    end = zero + spec.duration_s if spec.duration_s is not None else float("inf")
    most = spec.max_prompt_tokens or 1 << 62
    taken = [
        Row(
            (row.offset_s - zero) / spec.time_scale,
            min(row.prompt_tokens, most),
            row.output_tokens,
            row.hash_ids[: -(-min(row.prompt_tokens, most) // MOONCAKE_BLOCK)],
            row.session,
        )
        for row in rows
        if zero <= row.offset_s < end and row.prompt_tokens > 0 and row.output_tokens > 0
    ]
    if not taken:
        raise DatasetError(str(path), f"holds no request from {spec.start_s:g} s on for {spec.duration_s} s",
                           f"It lasts {rows[-1].offset_s - rows[0].offset_s:g} s", field="start_s")  # fmt: skip
    return taken


def _azure(path: str, file: Iterator[str]) -> Iterator[Row]:
    for line, row in _csv(path, file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        try:
            at = datetime.fromisoformat(row["TIMESTAMP"].strip()).timestamp()
        except ValueError as error:
            raise DatasetError(path, f"no time: {row['TIMESTAMP']!r}", line=line, field="TIMESTAMP") from error
        yield Row(at, _count(path, line, row, "ContextTokens"), _count(path, line, row, "GeneratedTokens"))


def _burstgpt(path: str, file: Iterator[str]) -> Iterator[Row]:
    for line, row in _csv(path, file, ("Timestamp", "Request tokens", "Response tokens")):
        try:
            at = float(row["Timestamp"])
        except ValueError as error:
            raise DatasetError(path, f"no seconds: {row['Timestamp']!r}", line=line, field="Timestamp") from error
        lengths = (_count(path, line, row, "Request tokens"), _count(path, line, row, "Response tokens"))
        yield Row(at, *lengths, session=row.get("Session ID") or "")


class _Mooncake(Struct):
    timestamp: float  # ms
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def _mooncake(path: str, file: Iterator[str]) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(_Mooncake)
    for line, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            row = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise DatasetError(path, str(error), "Each line is {timestamp, input_length, output_length, hash_ids}",
                               line=line) from error  # fmt: skip
        yield Row(row.timestamp / 1000, row.input_length, row.output_length, row.hash_ids)


READERS = {"azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake}


def _csv(path: str, file: Iterator[str], columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(file)
    for column in columns:
        if column not in (reader.fieldnames or ()):
            raise DatasetError(path, "has no such column", f"Found: {', '.join(reader.fieldnames or ()) or 'nothing'}",
                               line=1, field=column)  # fmt: skip
    for row in reader:
        if any(row[column] is None for column in columns):
            raise DatasetError(path, f"has {sum(v is not None for v in row.values())} values", line=reader.line_num)
        yield reader.line_num, row


def _count(path: str, line: int, row: dict[str, str], field: str) -> int:
    try:
        return int(row[field])
    except ValueError as error:
        raise DatasetError(path, f"no number of tokens: {row[field]!r}", line=line, field=field) from error
