"""`evalscope perf`: benchmark_summary.json and its neighbours benchmark_args.json and benchmark_data.db (1.x, 2026).

The database holds each request; its pickled answers are never read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from evaluation.report.importers.build import NO_WINDOW, NS, START_KEPT, Imported, document, stream
from evaluation.schema import Counts, RequestRecord, ResultDoc

NAME = "evalscope perf"
COLUMNS = (
    "start_time, success, completed_time, first_chunk_latency, inter_token_latencies, prompt_tokens, completion_tokens"
)
EMPTY_FIRST = "an empty first event counts as the first token, and the single times are not at hand"


def is_ours(found: Any) -> bool:
    return isinstance(found, dict) and {"Total Requests", "Success Requests", "Req Throughput (req/s)"} <= found.keys()


def read(told: Mapping[str, Any], folder: Path) -> tuple[ResultDoc, dict[int, list[RequestRecord]]]:
    """Raises sqlite3.DatabaseError where benchmark_data.db is none."""
    args_path, database = folder / "benchmark_args.json", folder / "benchmark_data.db"
    args = json.loads(args_path.read_text("utf-8")) if args_path.is_file() else {}
    rate = told.get("Request Rate (req/s)")
    open_loop = bool(args.get("open_loop")) and isinstance(rate, int | float) and rate > 0
    made = Imported(
        rate=float(rate) if open_loop and isinstance(rate, int | float) else None,
        concurrency=None if open_loop else int(told.get("Concurrency") or 1),
        refused={"ttft_intended": START_KEPT, "e2el_intended": START_KEPT, "send_lag": START_KEPT},
    )
    made.refused["tokens_per_chunk"] = "their acceptance length keeps values above 1 only: it is too high"
    if database.is_file():
        _requests(made, database)
    else:
        made.counts = Counts(
            offered=int(told["Total Requests"]),
            ok=int(told["Success Requests"]),
            error=int(told.get("Failed Requests") or 0),
        )
        made.refused |= {"ttft": EMPTY_FIRST, "tpot": f"{EMPTY_FIRST}; answers of one token count as 0"}
        made.refused |= {"e2el": "it includes the event of the usage after the last token", "done_rate": NO_WINDOW}
        made.refused |= {"itl": "their ITL are gaps between events", "icl": "the first gap may be that of the role"}
    environment = {"model": args.get("model"), "url": args.get("url"), "dataset": args.get("dataset")}
    return document(NAME, "", [made], environment=environment)


def _requests(made: Imported, database: Path) -> None:
    uri = f"{database.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute(f"SELECT {COLUMNS} FROM result ORDER BY start_time").fetchall()
    for index, (start, success, completed, first, gaps, prompt, tokens) in enumerate(rows):
        sent = int(start * NS)
        record = RequestRecord(index=index, intended_ns=sent, sent_ns=sent, prompt_tokens=prompt, output_tokens=tokens)
        made.records.append(record)
        if not success or first is None or not tokens:
            record.status, record.error = "error", "told as failed"
            record.end_ns = int(completed * NS) if completed else None
            continue
        record.chunks, why = stream(sent, first, json.loads(gaps or "[]"), tokens)
        record.first_ns, record.end_ns = record.chunks[0][0], record.chunks[-1][0]
        if why is not None:
            made.refused |= {"ttft": why, "tpot": why, "itl": "how many tokens each event held is not kept; see icl"}
