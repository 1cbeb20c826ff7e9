"""python -m tests.engines.scripted_instance --run-dir DIR: the real API process with the scripted core behind it."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from engines.api import RunDir
from engines.native.serve.lifecycle import Instance

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(asyncio.run(Instance(RunDir(Path(sys.argv[2])), "tests.engines.scripted_core").serve()))
