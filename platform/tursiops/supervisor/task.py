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


async def run_task(
    name: str, argv: list[str], logs: Path, todo: str, show: Callable[[float, str], None]
) -> dict[str, Any]:
    """The report's data. Raises SetupError with the child's own error, or with the last words of one that crashed."""
    log = logs / f"setup-{name.replace(' ', '-')}.log"
    logs.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=words,
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),
        )
        try:
            last = await _listen(process, show)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if last.get("type") == "report":
        data: dict[str, Any] = last["data"]
        return data
    if last.get("type") == "error":
        raise SetupError(name, last["message"], last.get("hint") or todo, log)
    tail = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    raise SetupError(name, f"ended with status {process.returncode}: {' '.join(tail)[:400]}", todo, log)


async def _listen(process: asyncio.subprocess.Process, show: Callable[[float, str], None]) -> dict[str, Any]:
    """The last report or error line, or {}."""
    assert process.stdout is not None
    last: dict[str, Any] = {}
    async for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            continue  # a library's print; not part of the protocol
        if message.get("type") == "progress":
            show(message["value"], message["text"])
        elif message.get("type") in ("report", "error"):
            last = message
    return last
