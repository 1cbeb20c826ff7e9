"""A plugin that uses every extension point. Put its folder on sys.path and it is found as if installed."""

import sys
from pathlib import Path
from typing import Any

from plugins.api import Plugin

HERE = Path(__file__).parent


class CountJob:
    label = "Count"

    def spec_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"to": {"type": "integer", "minimum": 1, "title": "Count to"}},
            "required": ["to"],
            "additionalProperties": False,
        }

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "count_child.py")]


class ActJob:
    """Behaves as its spec says: the cases that a runner must survive."""

    label = "Act"

    def spec_schema(self) -> dict[str, Any]:
        return {"type": "object", "required": ["act"]}

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "act_child.py")]


class LetterSource:
    label = "Letters"
    ref_help = "letters that become the file"

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "letters_child.py")]


class Copies:
    """Versions that differ from their base in nothing but a file."""

    label = "Copies"

    def schemes(self) -> list[dict[str, Any]]:
        return [
            {
                "name": "copy",
                "label": "A copy",
                "explanation": "Nothing is quantized.",
                "weights": "as they are",
                "activations": "16 bits",
                "kv": "",
                "embedding": "",
                "needs_data": False,
                "hardware": {"cpu": {"state": "supported", "reason": ""}},
                "gates": [{"up_to_parameters": None, "perplexity_ratio": 1.01, "task_recovery": 0.99}],
                "size_factor": 1.0,
                "best_for": "tests",
            }
        ]

    def spec_schema(self) -> dict[str, Any]:
        return {"type": "object", "required": ["scheme"]}

    def problems(self, recipe: dict[str, Any], model: dict[str, Any], tensor_parallel: int) -> list[dict[str, str]]:
        return []

    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "copy_child.py")]


class DummyEngine:
    name = "dummy"
    label = "Dummy"


plugin = Plugin(
    name="dummy",
    version="1.0",
    api=(1, 1),
    label="Dummy plugin",
    contributes={
        "job_kinds": {"dummy.count": "dummy_plugin:CountJob", "dummy.act": "dummy_plugin:ActJob"},
        "model_sources": {"letters": "dummy_plugin:LetterSource"},
        "engines": {"dummy": "dummy_plugin:DummyEngine"},
        "optimizers": {"copies": "dummy_plugin:Copies"},
    },
    settings_schema={
        "type": "object",
        "properties": {"speed": {"type": "integer", "minimum": 1}},
        "additionalProperties": False,
    },
    default_settings={"speed": 1},
)
future = Plugin(name="dummy-future", version="9.0", api=(98, 99), contributes={})
thief = Plugin(
    name="dummy-thief",
    version="1.0",
    api=(1, 1),
    contributes={
        "job_kinds": {"dummy.count": "dummy_plugin:CountJob"},
        "model_sources": {"stolen": "dummy_plugin:LetterSource"},
    },
)
