"""Grids that come with the package, one file per device and model, and how they are found."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from evaluation.planner.util_grid import Grid, read


@cache
def shipped() -> tuple[Grid, ...]:
    """Measured by docs/benchmarks; `python -m evaluation.benchmarks.planner_grids` makes them."""
    folder = Path(str(resources.files(__name__)))
    return tuple(read(path) for path in sorted(folder.glob("*.json")))
