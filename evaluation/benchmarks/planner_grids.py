"""Makes the grids that the planner ships, out of docs/benchmarks.

python -m evaluation.benchmarks.planner_grids
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path

import msgspec

from evaluation.benchmarks import report, shapes
from evaluation.planner import benchmark_rows, grids, hardware, schemes, util_grid
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof

SOURCES = {"h200": ("engine_gpu.h200.json", ("llama8b", "qwen06b"))}


def grid_of(gpu: str, path: Path, model: str) -> util_grid.Grid:
    """Of one model's rows in a benchmark's file."""
    rows = benchmark_rows.read(path, model)
    config = json.loads(resources.files(shapes).joinpath(f"{model}.json").read_text(encoding="utf-8"))
    roof = Roof(from_config(config, model), hardware.gpu(gpu), schemes.scheme("bfloat16"), "bfloat16")
    created = json.loads(path.read_text(encoding="utf-8"))["date"]
    return util_grid.fit(
        roof, list(rows.measurements.values()), device_name=rows.device, versions=rows.versions, created_at=created
    )


def main() -> int:
    folder = Path(str(resources.files(grids)))
    for gpu, (name, models) in SOURCES.items():
        for model in models:
            grid = grid_of(gpu, report.ROOT / "docs" / "benchmarks" / name, model)
            path = folder / f"{gpu}.{model}.json"
            path.write_bytes(msgspec.json.format(msgspec.json.encode(grid), indent=1) + b"\n")
            print(f"{path}: {len(grid.points)} points, leave-one-out error {grid.error:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
