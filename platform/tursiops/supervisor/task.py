"""A short-lived child that speaks the JSON-lines protocol: migrations, the demo. What it says becomes the progress."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tursiops.progress import SetupError
from tursiops.supervisor.child import die_with_parent


class Task:
    """`async with Task(…) as task`: one child with several steps, each of which ends in a report."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self._argv, self.log = argv, log

    async def __aenter__(self) -> Task:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as words:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=words,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """What it had to do is reported, or given up; its interpreter's own end would take a second more."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def report(self, step: str, todo: str, show: Callable[[float, str], None]) -> dict[str, Any]:
        """Data of the next report. Raises SetupError with the child's own error, or the last words of a crash."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a library's print; not part of the protocol
            if message.get("type") == "progress":
                show(message["value"], message["text"])
            elif message.get("type") == "report":
                data: dict[str, Any] = message["data"]
                return data
            elif message.get("type") == "error":
                raise SetupError(step, message["message"], message.get("hint") or todo, self.log)
        status = await self._process.wait()
        tail = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise SetupError(step, f"ended with status {status}: {' '.join(tail)[:400]}", todo, self.log)
