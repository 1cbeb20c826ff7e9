"""The child that compares: what it reports, and how it refuses."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from engines.native import compare_job
from engines.native.compare import Compared
from engines.native.compare_job import compare_of, plain
from engines.native.loader.model_files import open_model
from engines.native.sizes import sizes_of
from engines.protocol import Channel, ChildError
from tests.engines.quant.checkpoints import SCHEMES, written
from tests.tiny_models import write_safetensors


def side(folder: Path, dtype: str = "float32") -> dict[str, Any]:
    return {"format": "safetensors", "paths": {path.name: str(path) for path in folder.iterdir()}, "dtype": dtype}


def test_a_report_with_progress_on_the_way(tmp_path: Path) -> None:
    models = [write_safetensors(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
    out = io.StringIO()
    spec = {"reference": side(models[0]), "other": side(models[1]), "device": "cpu", "text": "ab " * 20}
    found = compare_of(spec, Channel(out))
    assert found["tokens"] == 40
    assert found["kl"] > 0
    assert [layer["layer"] for layer in found["layers"]] == [0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    shares = [json.loads(line)["value"] for line in out.getvalue().splitlines()]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    same = compare_of({**spec, "other": spec["reference"]}, Channel(out))
    assert (same["kl"], same["same_top"], same["layers"][0]["relative_error"]) == (0, 1, 0)


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(compare_job.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**20}))
    model = side(write_safetensors(tmp_path / "a"))
    with pytest.raises(ChildError, match=r"the reference needs .* in float32 and 1\.0 MiB are free") as refused:
        compare_of({"reference": model, "other": model, "device": "cpu"}, Channel(io.StringIO()))
    assert refused.value.code == "too_large"


def test_the_room_of_quantized_weights_is_that_of_their_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = written(tmp_path, SCHEMES["w4"])
    asked, weights = [], []

    def sizes(*args: Any) -> Any:
        asked.append(args[3:])
        found = sizes_of(*args)
        weights.append(found.plan.weights)
        return found

    monkeypatch.setattr(compare_job, "sizes_of", sizes)
    compare_job.require_room("the version", Compared(**side(folder)), "cpu")
    model = side(folder)
    files = open_model(model["format"], model["paths"])
    assert asked == [(files.quantized_size("cpu"), None)]
    parameters = files.quantized_size("cpu")[0]
    compare_job.require_room("the version", Compared(**model), "cpu", {"quantized_weights": "dequantized"})
    assert weights[1] - weights[0] == (4 - 2) * parameters > 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"other": {"format": "gguf"}}, "bad_spec"),
        ({"text": "a"}, "cannot_compare"),  # one token predicts nothing
        ({"device": "cuda"}, "cannot_compare"),
        ({"other": {"format": "safetensors", "paths": {}, "dtype": "float32"}}, "missing_file"),
    ],
)
def test_what_cannot_be_compared_is_an_error_with_a_code(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    model = side(write_safetensors(tmp_path / "a"))
    with pytest.raises(ChildError) as refused:
        compare_of({"reference": model, "other": model, "device": "cpu", **change}, Channel(io.StringIO()))
    assert refused.value.code == code


def test_numbers_that_are_none_are_null() -> None:
    assert plain({"a": (1.0, math.nan), "b": [math.inf, 2, "x"]}) == {"a": [1.0, None], "b": [None, 2, "x"]}
