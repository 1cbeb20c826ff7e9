"""What a model is for, from the names in its files. Standard library only: asked before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.native.pooling.config import ENCODERS, Task

POOLING_CORE = "engines.native.pooling.core"
GENERATING_CORE = "engines.native.core"
MODULES = "modules.json"
"""How sentence-transformers lists the steps of a model; generating models have none."""


def task_of(format: str, paths: Mapping[str, str | Path]) -> Task:
    """GENERATE also for files that nobody can read: who opens them next says what is wrong."""
    if format != "safetensors" or "config.json" not in paths:
        return Task.GENERATE
    try:
        config = json.loads(Path(paths["config.json"]).read_bytes())
    except (OSError, ValueError):
        return Task.GENERATE
    return _of_config(config, MODULES in paths) if isinstance(config, dict) else Task.GENERATE


def _of_config(config: dict[str, Any], has_modules: bool) -> Task:
    classes = config.get("architectures")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    if any(name.endswith("ForSequenceClassification") for name in names):
        return Task.SCORE
    headless = bool(names) and all(name.endswith("Model") for name in names)
    if config.get("model_type") in ENCODERS or has_modules or headless:
        return Task.EMBED
    return Task.GENERATE


def core_module(run_dir: Path) -> str:
    """The core that can serve the spec in a run folder. A spec that can't be read goes to the one that says why."""
    try:
        body = json.loads((run_dir / "spec.json").read_bytes())
        task = task_of(body["spec"]["format"], body["local"]["paths"])
    except (OSError, ValueError, KeyError, TypeError):
        return GENERATING_CORE
    return GENERATING_CORE if task is Task.GENERATE else POOLING_CORE
