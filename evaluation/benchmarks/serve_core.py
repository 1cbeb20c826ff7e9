"""The engine's core with random weights, for `serve_gpu`: the weights file of its spec has nothing but a header.

python -m evaluation.benchmarks.serve_core --run-dir DIR --sockets DIR --parent PID
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from engines.native import core, runner
from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.runner import ModelRunner
from evaluation.benchmarks.random_model import random_runner


def _random(config: EngineConfig, progress: Callable[[float], None] = lambda share: None) -> ModelRunner:
    made = random_runner(open_model(config.format, dict(config.paths)).config, config, seed=1)
    if made.device.type == "cuda":
        made.warm_up()
    progress(1.0)
    return made


if __name__ == "__main__":
    runner.build_runner = _random
    sys.exit(core.serve(core.parse(), core.build))
