"""The engine's core, writing down when it has done what, for `loading`: `marks.json` in the run folder.

python -m evaluation.benchmarks.loading_core --run-dir DIR --sockets DIR --parent PID
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_begun = time.perf_counter()

from engines.native import core  # noqa: E402  the time that imports take is to be seen


def memory() -> dict[str, int]:
    """Bytes that the process has resident: now and of its own, now with mapped files, and the most so far."""
    fields = dict(
        line.split(":")
        for line in Path("/proc/self/status").read_text().splitlines()
        if "VmHWM" in line or "Rss" in line or "VmRSS" in line
    )
    return {name: int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS", "VmHWM")}


class Marks:
    """Name → time.perf_counter(), s, and what was resident."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.made: dict[str, dict[str, Any]] = {}

    def mark(self, name: str, at: float = 0.0) -> None:
        self.made[name] = {"at": at or time.perf_counter(), **memory()}
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self.made))
        os.replace(partial, self._path)

    def after(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*values: Any, **named: Any) -> Any:
            result = call(*values, **named)
            self.mark(name)
            return result

        return marked


def main() -> int:
    arguments = core.parse()
    marks = Marks(arguments.run_dir / "marks.json")
    marks.mark("interpreter", _begun)
    marks.mark("imports of the core")
    from engines.native import runner

    marks.mark("imports of the model")
    phases = {
        "open_model": "headers of the files",
        "sizes_of": "device, memory plan",
        "load_weights": "weights",
        "build_runner": "KV cache, warm-up",
    }
    for name, phase in phases.items():
        setattr(runner, name, marks.after(phase, getattr(runner, name)))
    return core.serve(arguments, core.build)


if __name__ == "__main__":
    sys.exit(main())
