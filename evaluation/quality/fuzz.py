"""Asks a live engine what its own /openapi.json describes, and what it does not, with schemathesis: 10,000 requests to
a random model. Nothing may be a 5xx, no process may restart, memory stays flat, and at the end nothing is held.

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install schemathesis==4.32.5
    nice -n 15 python -m evaluation.quality.fuzz --schemathesis /tmp/fuzz/bin/schemathesis --output fuzz.json

schemathesis brings its own hypothesis, so it lives in an environment of its own. A 504 is right where the request set
the time-out; whether an answer is as described (status, content type, JSON) is schemathesis's to judge.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evaluation.quality.fuzz_instance import Instance

CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"
CHECKS += ",response_headers_conformance,unsupported_method,allow_header_conformance,ignored_auth"
GROWTH = 0.10
"""Of a process's own memory, from the end of the first quarter to the end of the run."""
HOOKS = Path(__file__).with_name("fuzz_hooks.py")


@dataclass(slots=True)
class Report:
    """Of one instance. answered: requests that got a 200; faults: what may not be; memory: bytes after each slice, by
    process."""

    model: str
    requests: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    by_endpoint: dict[str, int] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    slowest_s: float = 0.0
    memory: list[dict[str, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def run(arguments: argparse.Namespace, *, embeds: bool, wanted: int) -> Report:
    report = Report("embeddings" if embeds else "generates")
    started = time.monotonic()
    calls: list[dict[str, Any]] = []
    instance = Instance(embeds=embeds)
    with instance, tempfile.TemporaryDirectory(prefix="ts-fuzz-calls-") as folder:
        for number in range(1000):
            path = Path(folder) / f"{number}.jsonl"
            failures = _slice(arguments, instance, path, arguments.seed + number, first=number == 0)
            calls += [json.loads(line) for line in path.read_text().splitlines()]
            report.faults += failures
            report.memory.append(instance.memory() if not instance.restarted else {})
            print(f"{report.model}: {len(calls)} requests, {time.monotonic() - started:.0f} s", flush=True)
            if instance.restarted:
                report.faults.append("a process of the engine restarted")
                break
            if len(calls) >= wanted:
                break
        if not instance.restarted:
            report.faults += [f"held at rest: {one}" for one in instance.at_rest()]
    report.faults += [f"in the log: {one}" for one in instance.tracebacks()]
    report.faults += _server_errors(calls) + _growth(report.memory)
    report.requests, report.seconds = len(calls), round(time.monotonic() - started, 1)
    report.statuses = dict(sorted(Counter(str(call["status"]) for call in calls).items()))
    report.answered = dict(sorted(Counter(call["path"] for call in calls if call["status"] == 200).items()))
    report.by_endpoint = dict(sorted(Counter(call["path"] for call in calls).items()))
    report.slowest_s = round(max((call["seconds"] for call in calls), default=0.0), 2)
    if not report.faults:
        instance.remove()
    return report


def _slice(arguments: argparse.Namespace, instance: Instance, calls: Path, seed: int, *, first: bool) -> list[str]:
    """One run of schemathesis; the first also goes through the bounds of every field. Returns its failures."""
    command = [
        arguments.schemathesis, "run", f"{instance.url}/openapi.json", "--no-color", "--seed", str(seed),
        "--header", f"Authorization: Bearer {instance.token}", "--checks", CHECKS, "--warnings", "off",
        "--phases", arguments.phases if first else "fuzzing", "--max-examples", str(arguments.examples),
        "--continue-on-failure", "--no-shrink", "--request-timeout", "120", "--generation-database", "none",
        "--suppress-health-check", "all", "--exclude-path", "/metrics",
    ]  # fmt: skip
    calls.touch()
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "FUZZ_CALLS": str(calls)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=calls.parent)
    if arguments.log:
        with open(arguments.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command[1:])}\n{done.stdout}{done.stderr}\n".replace(instance.token, "TOKEN"))
    if done.returncode == 0:
        return []
    found = re.findall(r"^- (.+)$", done.stdout, re.MULTILINE)
    kinds = [f"schemathesis: {count} × {text}" for text, count in Counter(found).items()]
    return kinds or [f"schemathesis ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"]


def _server_errors(calls: list[dict[str, Any]]) -> list[str]:
    """5xx that no client asked for."""
    found = []
    for call in calls:
        asked = '"timeout"' in call.get("sent", "")
        if call["status"] >= 500 and not (call["status"] == 504 and asked):
            found.append(f"{call['method']} {call['path']} {call['status']}: {call['sent']} → {call['answer']}")
    return found


def _growth(memory: list[dict[str, int]]) -> list[str]:
    if len(memory) < 4 or not all(memory):
        return []
    settled, last = memory[len(memory) // 4], memory[-1]
    grown = {name: last[name] / settled[name] - 1 for name in settled}
    return [f"{name} grew by {share:.1%} after the first quarter" for name, share in grown.items() if share > GROWTH]


def main() -> int:
    parser = argparse.ArgumentParser(prog="evaluation.quality.fuzz", description=__doc__)
    parser.add_argument("--schemathesis", required=True, help="its command, in its own environment")
    parser.add_argument("--requests", type=int, default=10_000, help="to both models together")
    parser.add_argument("--examples", type=int, default=40, help="per endpoint and slice")
    parser.add_argument("--phases", default="coverage,fuzzing", help="of the first slice; the others only draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="gets the output of schemathesis")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    embeddings = arguments.requests // 5
    reports: list[Report] = []
    for embeds, wanted in ((False, arguments.requests - embeddings), (True, embeddings)):
        reports.append(run(arguments, embeds=embeds, wanted=wanted))
        body = written(arguments.output, reports)
    faults = [fault for report in reports for fault in report.faults]
    print(f"{body['requests']} requests, {len(faults)} faults", *faults[:20], sep="\n")
    return 1 if faults else 0


def written(output: Path, reports: list[Report]) -> dict[str, Any]:
    """The JSON of `reports`, in `output`: after each, so that a run that is cut off leaves what it had."""
    body = {
        "what": "evaluation.quality.fuzz", "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "python": platform.python_version(),
        "requests": sum(report.requests for report in reports), "reports": [asdict(report) for report in reports],
    }  # fmt: skip
    output.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return body


if __name__ == "__main__":
    sys.exit(main())
