"""python -m tests.engines.scripted_instance --run-dir DIR: the real API process with the scripted core behind it, or
with the one that script.json names as "core"."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from engines.api import RunDir
from engines.native.serve.lifecycle import Instance


async def serve(folder: Path) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    script = folder / "script.json"
    core = json.loads(script.read_text()).get("core") if script.exists() else None
    return await Instance(RunDir(folder), stop, core_module=core or "tests.engines.scripted_core").serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(asyncio.run(serve(Path(sys.argv[2]))))
