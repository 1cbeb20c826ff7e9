"""Instances for the tests of several modules, which leave them as they found them. Each starts where it is asked for
first and ends with the session."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.engines.instances import Running
from tests.engines.talking_model import TEMPLATE, write_talking_model
from tests.tiny_models import write_safetensors


@cache
def tiny_model() -> Path:
    """Folder of a model with random weights, in whose chats tools can be called."""
    folder = write_safetensors(_folder())
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    return folder


@cache
def tiny() -> Running:
    """The whole engine, with `tiny_model`."""
    return _started(tiny_model(), max_num_seqs=4, kv_cache_bytes=2**20)


@cache
def talker() -> Running:
    """The real server, and a core that repeats its prompt: its answer is the text of the messages, with tags of
    reasoning and of tool calls where they hold some."""
    return _started(write_talking_model(_folder()), module="tests.engines.scripted_instance")


def _started(model: Path, **options: Any) -> Running:
    running = Running(model, **options)
    atexit.register(running.stop)
    return running


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ts-shared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
