"""What the control plane sees of quantization: schemes, a recipe's form and checks, the command. Nothing heavy."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from engines.protocol import ChildError
from plugins.quantization import spec
from plugins.quantization.schemes import SCHEMES


class Quantization:
    """plugins.api.Optimizer, TellsNeeds and BringsTexts."""

    label = "Quantize"

    def schemes(self) -> list[dict[str, Any]]:
        """Beside what the contract names: algorithms, backends, and options_schema of the options that it takes."""
        return [{**scheme.about(), "options_schema": spec.options_schema(scheme)} for scheme in SCHEMES.values()]

    def spec_schema(self) -> dict[str, Any]:
        return spec.spec_schema()

    def problems(self, recipe: dict[str, Any], model: dict[str, Any], tensor_parallel: int = 1) -> list[dict[str, str]]:
        return [asdict(problem) for problem in spec.problems(recipe, model, tensor_parallel)]

    def needs_data(self, recipe: dict[str, Any]) -> bool:
        try:
            return spec.parse(recipe).needs_data
        except ChildError:
            scheme = SCHEMES.get(str(recipe.get("scheme")))
            return scheme is not None and scheme.needs_data

    def texts_bytes(self) -> int:
        return spec.BUILT_IN.stat().st_size

    def command(self) -> list[str]:
        return [sys.executable, "-m", "plugins.quantization.job"]
