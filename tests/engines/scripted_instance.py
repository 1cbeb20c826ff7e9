"""python -m tests.engines.scripted_instance --run-dir DIR: the real API process with the scripted core behind it."""

from __future__ import annotations

import asyncio
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
    return await Instance(RunDir(folder), stop, core_module="tests.engines.scripted_core").serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(asyncio.run(serve(Path(sys.argv[2]))))
