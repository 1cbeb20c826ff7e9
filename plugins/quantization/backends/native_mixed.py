"""The scheme `mixed`: the plan of `plugins.quantization.mixed`, measured once and kept for an attempt after a crash."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from engines.native.quant.scheme import LinearScheme, WeightScheme
from engines.protocol import ChildError
from plugins.quantization import mixed
from plugins.quantization.backends import Order, Say
from plugins.quantization.recipe import Recipe

SAMPLES, TOKENS = 16, 64
"""Of the calibration rows, what sensitivity is measured on: enough for a ranking, and each product has its own run."""
SHOWN = 40


def planned(order: Order, recipe: Recipe, plan: str, say: Say) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with a scheme for each product, and what the report says of it. plan: names the work."""
    path = order.workdir / "mixed.json"
    options = options_of(order.group, recipe)
    if path.is_file():
        kept = json.loads(path.read_text())
        if kept["plan"] == plan:
            return _with(recipe, options, kept["about"]["plans"][0]["options"]), kept["about"]
    if order.calibration is None:
        raise ChildError("bad_calibration", "calibration: mixed precision is measured on calibration rows")
    ids = torch.from_numpy(order.calibration.rows[:SAMPLES, :TOKENS].copy()).long()
    budget = order.options.budget_bytes or halfway(order)
    found = mixed.choose(order.files, recipe, options, budget, ids, say)
    about: dict[str, Any] = {
        "budget_bytes": budget,
        "tokens": found.sensitivity.tokens,
        "plans": [asdict(each) for each in found.plans],
        "ranking": [{"name": name, "kl": kl} for name, kl in found.sensitivity.ranking("int4")[:SHOWN]],
    }
    _write(path, {"plan": plan, "about": about})
    best = found.plans[0]
    order.channel.log(
        f"mixed precision by {best.name}: {best.nbytes:,} bytes of products, KL {best.kl:.4g} nats per token"
    )
    for row in about["ranking"][:5]:
        order.channel.log(f"sensitive: {row['name']}, KL {row['kl']:.4g} alone in 4 bits")
    return found.recipe, about


def options_of(group: int, recipe: Recipe) -> dict[str, LinearScheme]:
    """By their names in a plan."""
    four = recipe.linear or LinearScheme(WeightScheme("int", 4, "group", group))
    return {"int4": four, "int8": LinearScheme(WeightScheme("int", 8, "channel"))}


def halfway(order: Order) -> int:
    """Bytes of all weights with 6 bits for each of a product's."""
    total = 0
    for name, shape in order.target.shapes().items():
        size = torch.Size(shape).numel()
        product = name.startswith("layers.") and len(shape) == 2
        total += size * 6 // 8 + 2 * size // order.group if product else 2 * size
    return total


def _with(recipe: Recipe, options: dict[str, LinearScheme], plan: dict[str, str]) -> Recipe:
    schemes = {name: options.get(option) for name, option in plan.items()}
    return replace(recipe, linear=None, schemes=schemes)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value))
    part.replace(path)
