"""python -m engines.native.serve --run-dir DIR: serve the spec in that folder until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from engines.api import RunDir
from engines.native.pooling.task import core_module
from engines.native.serve.core_process import CoreProcess


def main() -> int:
    parser = argparse.ArgumentParser(prog="engines.native.serve", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True, help="folder with spec.json")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s api %(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(serve(RunDir(arguments.run_dir.resolve())))
    except (FileNotFoundError, ValueError) as error:
        print(f"spec.json in {arguments.run_dir} cannot be read: {error}", file=sys.stderr)
        return 2


async def serve(run_dir: RunDir) -> int:
    """The core first: it loads for seconds, and what the API process imports and loads takes none of them then."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    core = CoreProcess(run_dir.path, core_module(run_dir.path))
    try:
        await core.start()
        from engines.native.serve.lifecycle import Instance

        return await Instance(run_dir, stop, core, core_module(run_dir.path)).serve()
    finally:
        core.kill()
        await core.close()


if __name__ == "__main__":
    sys.exit(main())
