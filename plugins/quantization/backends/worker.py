"""A script in an environment of its own, as a child: one JSON object in, lines of JSON out, free text on stderr."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from engines.protocol import ChildError
from plugins.quantization.work import disk_full

Heard = Callable[[dict[str, Any]], None]
"""Called with each line. What it raises ends the child."""


@dataclass(frozen=True, slots=True)
class Work:
    """For messages. name: of the library; place: where it writes, `needed` bytes in all; hint: where that disk is
    full."""

    name: str
    place: Path
    needed: int
    hint: str


def follow(python: Path, script: Path, spec: dict[str, Any], heard: Heard, work: Work) -> None:
    """Returns when the child has said {"done": true} and ended well; {"error": code, "message", "hint"} is raised as
    that. Raises ChildError, with the last of what the child said where it fails."""
    # torchao's own kernels are for other GPUs and CPUs than one machine has: it warns of each, and training needs none.
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1"}
    environment = {**os.environ, **quiet}
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(
        [str(python), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
        env=environment,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        done = False
        try:
            child.stdin.write(json.dumps(spec))
            child.stdin.close()
            for line in child.stdout:
                told = json.loads(line)
                if "error" in told:
                    raise ChildError(told["error"], told["message"], told["hint"])
                heard(told)
                done = done or bool(told.get("done"))
            code = child.wait()
        finally:
            child.kill()
        if code or not done:
            raise _failed(code, said, work)


def _failed(code: int, said: IO[str], work: Work) -> ChildError:
    said.seek(0)
    last = [line for line in said.read().splitlines() if line.strip()][-8:]
    if code in (-9, 137):
        return ChildError("out_of_memory", f"{work.name} was killed: there was too little memory", "Use native.")
    if any("No space left on device" in line for line in last):
        return disk_full(work.place, work.needed, work.hint)
    return ChildError(
        "backend_failed", f"{work.name} failed: " + "\n".join(last)[-1500:], "Choose the back end native."
    )
