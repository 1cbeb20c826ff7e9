"""The benchmark of mixed precision on a tiny model: what is planted changes nothing in float32, is named, is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from engines.native.loader.model_files import open_model
from evaluation.benchmarks.mixed_precision import Bench, compared, plant
from evaluation.benchmarks.quantization_quality import OPTIONS
from plugins.quantization.recipe import Recipe
from tests.plugins.quantization.quantized_for_tests import paths_of, write_model

pytestmark = pytest.mark.slow
LAYER = 1


def test_a_planted_layer_is_named_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = write_model(tmp_path / "plain", initializer_range=0.2)
    fragile = shutil.copytree(plain, tmp_path / "fragile")
    plant(fragile, LAYER)
    ids = torch.randint(256, (32, 64), generator=torch.Generator().manual_seed(1))
    rows, named = {}, {}
    for folder in (plain, fragile):
        files = open_model("safetensors", paths_of(folder))
        bench = Bench(files, folder.name, ids[:4], ids[4:], Recipe(OPTIONS["int4"]))
        made, ranking = compared(bench, [7.0], f"layers.{LAYER}.down")
        rows |= {(folder.name, row.case): row for row in made}
        named[folder.name] = ranking
    assert rows["fragile", "float32"].perplexity == pytest.approx(rows["plain", "float32"].perplexity, rel=1e-3)
    (first, kl), (_, second) = named["fragile"][:2]
    assert first == f"layers.{LAYER}.down"
    assert kl > 1.5 * second
    mixed = rows["fragile", "mixed, 7 bits"]
    assert mixed.planted == "16 bits"
    assert mixed.bits <= 7.0
    assert sum(mixed.kinds.values()) == 12
    assert rows["fragile", "int4 g64"].bits < 4.6
    assert "fragile: layers.1.down" in capsys.readouterr().out
