"""Mixed precision: which product gets how many bits, so that the model fits and loses least.

Products that one pass computes take one scheme. What each loses in each option is measured (`sensitivity`); the losses
add up nearly, so the best plan is a knapsack, solved exactly on whole units of bytes. The rule of thumb "first and last
layer in 16 bits" stands beside it as a candidate, and both are measured as wholes: the better one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from engines.native.loader.model_files import ModelFiles
from engines.native.quant.scheme import LinearScheme
from plugins.quantization.errors import QuantizationFailed
from plugins.quantization.sensitivity import Sensitivity, joint_kl, sensitivity
from plugins.quantization.terms import GROUPS, Recipe

WHOLE = "16 bits"
UNITS = 20_000
"""The most steps that a budget is cut into; sizes are rounded up to whole steps, so a plan never exceeds it."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One option of one product. cost: what it loses, ≥ 0, in any unit that adds up."""

    option: str
    nbytes: int
    cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    """options: product → option's name. nbytes: of the products together. cost: the sum of their losses, nats per
    token; kl: measured with all of them at once, None where it wasn't."""

    name: str
    options: Mapping[str, str]
    nbytes: int
    cost: float
    kl: float | None = None


@dataclass(frozen=True, slots=True)
class Mixed:
    """recipe: with the best plan's schemes. plans: all candidates, the best first."""

    recipe: Recipe
    plans: tuple[Plan, ...]
    sensitivity: Sensitivity


def knapsack(choices: Mapping[str, Sequence[Choice]], budget: int) -> dict[str, str]:
    """Product → option, of the least sum of costs within `budget` bytes. Raises QuantizationFailed where even the
    smallest options don't fit."""
    floor = sum(min(each.nbytes for each in options) for options in choices.values())
    if floor > budget:
        raise QuantizationFailed(
            f"budget_bytes: the products need {floor:,} bytes even in their smallest options, {budget:,} are left for "
            "them; raise the budget or offer fewer bits"
        )
    # Beyond its smallest option a product takes extra bytes: what is common to all is no choice.
    extras = [[each.nbytes - min(one.nbytes for one in options) for each in options] for options in choices.values()]
    room = min(budget - floor, sum(max(extra) for extra in extras))
    step = max(1, math.gcd(*(each for extra in extras for each in extra)))
    if room // step > UNITS:
        step = -(-room // UNITS)
    units = room // step
    best = np.zeros(units + 1)
    taken = np.zeros((len(choices), units + 1), np.int32)
    for row, (options, extra) in enumerate(zip(choices.values(), extras, strict=True)):
        after = np.full(units + 1, np.inf)
        for number, (choice, more) in enumerate(zip(options, extra, strict=True)):
            need = -(-more // step)
            if need > units:
                continue
            cost = best[: units + 1 - need] + choice.cost
            better = cost < after[need:]
            after[need:][better] = cost[better]
            taken[row, need:][better] = number
        best = after
    at = int(best.argmin())
    found = {}
    for row, (name, options) in reversed(list(enumerate(choices.items()))):
        number = int(taken[row, at])
        found[name] = options[number].option
        at -= -(-extras[row][number] // step)
    return dict(reversed(found.items()))


def ends_in_16_bits(choices: Mapping[str, Sequence[Choice]], layers: int, budget: int) -> dict[str, str] | None:
    """The rule of thumb: the first and the last layer in 16 bits, all others in the best option that all can have.
    None where nothing of the kind fits."""
    ends = (f"layers.0.{group}" for group in GROUPS), (f"layers.{layers - 1}.{group}" for group in GROUPS)
    kept = {name for end in ends for name in end}
    names = {each.option for options in choices.values() for each in options} - {WHOLE}
    best: tuple[float, dict[str, str]] | None = None
    for option in sorted(names):
        plan = {name: WHOLE if name in kept else option for name in choices}
        try:
            nbytes, cost = _totals(choices, plan)
        except KeyError:  # a product that hasn't this option
            continue
        if nbytes <= budget and (best is None or cost < best[0]):
            best = cost, plan
    return best[1] if best else None


def choose(
    files: ModelFiles,
    recipe: Recipe,
    options: Mapping[str, LinearScheme],
    budget: int,
    ids: torch.Tensor,
    progress: Progress,
) -> Mixed:
    """recipe: how weights are rounded, and what is kept. options: by a name of their own; 16 bits are always one.
    budget: bytes of the whole checkpoint. ids: as for `sensitivity`. Raises QuantizationFailed."""
    found = sensitivity(files, recipe, options, ids, lambda share, doing: progress(0.7 * share, doing))
    return best(files, recipe, options, budget, found, ids, lambda share, doing: progress(0.7 + 0.3 * share, doing))


def best(
    files: ModelFiles,
    recipe: Recipe,
    options: Mapping[str, LinearScheme],
    budget: int,
    found: Sensitivity,
    ids: torch.Tensor,
    progress: Progress,
) -> Mixed:
    """As `choose`, by losses that were measured before."""
    choices = choices_of(found)
    for name, each in choices.items():
        if recipe.keeps(*_place(name)):
            choices[name] = [choice for choice in each if choice.option == WHOLE]
    left = budget - other_bytes(files, found)
    candidates = {"knapsack": knapsack(choices, left)}
    rule = ends_in_16_bits(choices, files.config.layers, left)
    if rule is not None:
        candidates["first and last layer in 16 bits"] = rule
    schemes = {name: {each: options.get(option) for each, option in plan.items()} for name, plan in candidates.items()}
    measured = joint_kl(files, recipe, schemes, ids, progress)
    plans = [Plan(name, plan, *_totals(choices, plan), measured[name]) for name, plan in candidates.items()]
    plans.sort(key=lambda plan: measured[plan.name])
    return Mixed(replace(recipe, linear=None, schemes=schemes[plans[0].name]), tuple(plans), found)


def choices_of(found: Sensitivity) -> dict[str, list[Choice]]:
    """Of each product: 16 bits, which lose nothing, and what was measured."""
    return {
        name: [
            Choice(WHOLE, found.whole[name], 0.0),
            *(Choice(option, loss.nbytes, loss.kl) for option, loss in losses.items()),
        ]
        for name, losses in found.losses.items()
    }


def other_bytes(files: ModelFiles, found: Sensitivity) -> int:
    """What isn't chosen about, in 16 bits: embedding, head, norms, biases."""
    return 2 * files.config.parameters() - sum(found.whole.values())


def _totals(choices: Mapping[str, Sequence[Choice]], plan: Mapping[str, str]) -> tuple[int, float]:
    taken = [{each.option: each for each in choices[name]}[option] for name, option in plan.items()]
    return sum(each.nbytes for each in taken), sum(each.cost for each in taken)


def _place(name: str) -> tuple[int, str]:
    _, index, group = name.split(".")
    return int(index), group
