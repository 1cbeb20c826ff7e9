"""Results of a benchmark: one JSON file per benchmark and device, and the table printed at its end."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Row:
    """One figure. floor: what the hardware allows; target: what we aim at; ok: target met (None without a target)."""

    case: str
    metric: str
    value: float
    unit: str
    better: Literal["lower", "higher"]
    peer: str = ""
    peer_value: float | None = None
    floor: float | None = None
    target: float | None = None
    ok: bool | None = None

    def __post_init__(self) -> None:
        if self.ok is None and self.target is not None:
            self.ok = self.value <= self.target if self.better == "lower" else self.value >= self.target


def write(
    name: str,
    device: str,
    device_name: str,
    rows: list[Row],
    folder: Path,
    packages: tuple[str, ...],
    command: str = "",
    commit: str = "",
) -> Path:
    """Write `<folder>/<name>.<device>.json` and return its path.

    command: where it is not the module called `name`. commit: where the tree has no git.
    """
    body = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or _commit(),
        "device": device_name,
        "versions": {"python": sys.version.split()[0], **{package: _version(package) for package in packages}},
        "command": command or "python -m evaluation.benchmarks." + name,
        "rows": [asdict(row) for row in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{device}.json"
    path.write_text(json.dumps(body, indent=1) + "\n")
    return path


def table(rows: list[Row]) -> str:
    lines = [("case", "metric", "value", "peer", "floor", "target", "")]
    for row in rows:
        verdict = "" if row.ok is None else "ok" if row.ok else "MISSED"
        lines.append((row.case, row.metric, f"{_number(row.value)} {row.unit}", _number(row.peer_value),
                      _number(row.floor), _number(row.target), verdict))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
