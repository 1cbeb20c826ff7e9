"""llm-compressor as the back end: what it is told, and what its ends mean. The nightly test asks the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

from engines.native.loader.model_files import open_model
from engines.protocol import ChildError
from plugins.quantization import spec
from plugins.quantization.backends import llm_compressor
from plugins.quantization.schemes import SCHEMES
from tests.plugins.quantization.quantized_for_tests import LAYERS, paths_of, run, spec_of, write_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "base")


class Told:
    """As much of an order as `stages` looks at."""

    def __init__(self, **recipe):
        self.options, self.group, self.kept = spec.parse(recipe), 64, frozenset({"model.layers.1.mlp.down_proj"})


OURS = [name for name, scheme in SCHEMES.items() if "llm_compressor" in scheme.backends]


@pytest.mark.parametrize("name", OURS)
def test_each_scheme_is_told_in_words_of_the_library(name):
    stages = llm_compressor.stages(Told(scheme=name, backend="llm_compressor"))
    last = stages[-1]
    assert last["ignore"] == ["lm_head", "model.layers.1.mlp.down_proj"]
    for group in last.get("config_groups", {}).values():
        QuantizationScheme(**group)
    if "kv_cache_scheme" in last:
        assert QuantizationArgs(**last["kv_cache_scheme"]).num_bits == 8
    assert "config_groups" in last or "kv_cache_scheme" in last


def test_algorithms_are_modifiers():
    def kinds(**recipe):
        return [stage["kind"] for stage in llm_compressor.stages(Told(backend="llm_compressor", **recipe))]

    assert kinds(scheme="w4a16_gptq") == ["GPTQModifier"]
    assert kinds(scheme="w4a16_gptq", algorithm="autoround") == ["AutoRoundModifier"]
    assert kinds(scheme="w4a16_awq") == ["AWQModifier", "QuantizationModifier"]
    assert kinds(scheme="int8_w8a8", algorithm="smoothquant_gptq") == ["SmoothQuantModifier", "GPTQModifier"]
    assert kinds(scheme="fp8_dynamic", kv="fp8") == ["QuantizationModifier"]
    (gptq,) = llm_compressor.stages(Told(scheme="w4a16_gptq", backend="llm_compressor", damping=0.1))
    assert (gptq["dampening_frac"], gptq["actorder"]) == (0.1, "static")


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A function that puts a script in the worker's place, run by this Python."""

    def put(code):
        script = tmp_path / "worker.py"
        script.write_text(f"import json, sys\nspec = json.load(sys.stdin)\n{code}\n")
        monkeypatch.setattr(llm_compressor, "_WORKER", script)
        monkeypatch.setattr(llm_compressor, "ensure", lambda *_: Path(sys.executable))

    return put


def asked(model, place, **recipe):
    return spec_of(model, place, scheme="w4a16_gptq", backend="llm_compressor", **recipe)


COPIES = """
import pathlib, shutil
shutil.copytree(spec["model"], spec["output"])
"""


def test_its_folder_becomes_the_version(model, tmp_path, worker):
    worker(COPIES + 'print(json.dumps({"module": "model.layers.0.mlp.up_proj"}))\n'
           'print(json.dumps({"fallback": "model.layers.2.mlp.up_proj", "reason": "singular"}))\n'
           'print(json.dumps({"done": True}))')  # fmt: skip
    report, said = run(asked(model, tmp_path))
    assert report["fallbacks"] == [{"layer": "model.layers.2.mlp.up_proj", "reason": "singular"}]
    assert {row["method"] for row in report["layers"]} == {"gptq", "rtn_fallback"}
    assert len(report["layers"]) == 7 * LAYERS
    assert {file["name"] for file in report["files"]} == {path.name for path in (tmp_path / "version").iterdir()}
    assert open_model("safetensors", paths_of(tmp_path / "version")).config.layers == LAYERS
    assert any(line["type"] == "log" and "singular" in line["text"] for line in said)
    assert any(note.startswith("scale_search has no effect") for note in report["notes"])


def test_what_it_has_no_counterpart_of_is_said_only_where_it_was_asked():
    assert llm_compressor.unheeded(spec.parse({"scheme": "w4a16_awq"})) != []
    for recipe in ({"scheme": "w4a16_gptq", "scale_search": False}, {"scheme": "int8_w8a8"}, {"scheme": "fp8_dynamic"}):
        assert llm_compressor.unheeded(spec.parse(recipe)) == []


def test_it_gets_the_rows_and_the_model_as_transformers_reads_it(model, tmp_path, worker):
    worker(
        COPIES
        + f"""
import numpy
seen = {{"rows": numpy.load(spec["rows"]).shape, "stages": spec["stages"], "dtype": spec["dtype"]}}
seen["left"] = [str(path) for path in pathlib.Path({str(tmp_path / "work")!r}).rglob("*")]
pathlib.Path({str(tmp_path / "seen.json")!r}).write_text(json.dumps(seen))
print(json.dumps({{"done": True}}))"""
    )
    run(asked(model, tmp_path))
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["rows"] == [32, 64]
    assert seen["dtype"] == "float32"
    assert seen["left"] == [], "a job that is killed would seem to have come further"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("version")) == ["version"]


def test_an_attempt_that_was_cut_off_is_said_to_begin_anew(model, tmp_path, worker):
    worker(COPIES + 'print(json.dumps({"done": True}))')
    _, said = run(asked(model, tmp_path / "a"))
    assert not any("earlier attempt" in line.get("text", "") for line in said)
    for part in ("making", "unquantized"):
        (tmp_path / f"b/version.{part}").mkdir(parents=True)
        (tmp_path / f"b/version.{part}/left").touch()
    report, said = run(asked(model, tmp_path / "b"))
    assert any("keeps nothing of it, and begins anew" in line.get("text", "") for line in said)
    assert report["resumed_at"] == 0
    assert "left" not in {file["name"] for file in report["files"]}


def test_a_disk_that_fills_up_says_that_it_begins_anew(model, tmp_path, worker):
    worker('raise OSError(28, "No space left on device")')
    with pytest.raises(ChildError, match=r"version\.making could not be written") as caught:
        run(asked(model, tmp_path))
    assert caught.value.code == "disk_full"
    assert caught.value.hint == "Free some space and start the job again: it begins anew."


@pytest.mark.parametrize(
    ("code", "wanted", "words"),
    [
        ('raise ValueError("tracing failed in layer 3")', "backend_failed", "tracing failed in layer 3"),
        ("import os; os.kill(os.getpid(), 9)", "out_of_memory", "too little memory"),
        ("pass", "backend_failed", ""),
    ],
)
def test_ends_that_are_none_leave_nothing(model, tmp_path, worker, code, wanted, words):
    worker(f"{COPIES}\n{code}")
    with pytest.raises(ChildError) as caught:
        run(asked(model, tmp_path))
    assert caught.value.code == wanted
    assert words in caught.value.message
    assert not list(tmp_path.glob("version*"))


def test_a_fallback_can_end_the_job(model, tmp_path, worker):
    worker(COPIES + 'print(json.dumps({"fallback": "model.layers.0.mlp.up_proj", "reason": "singular"}), flush=True)\n'
           "import time; time.sleep(60)")  # fmt: skip
    with pytest.raises(ChildError, match=r"model\.layers\.0\.mlp\.up_proj: singular"):
        run(asked(model, tmp_path, on_fallback="fail"))
    assert not list(tmp_path.glob("version*"))


@pytest.mark.nightly
@pytest.mark.skipif(not llm_compressor.ENVIRONMENT.ready, reason="llm-compressor's environment was not made here")
@pytest.mark.parametrize("name", [*OURS, "autoround"])
def test_the_real_one_makes_versions_that_ours_opens(model, tmp_path, name):
    recipe = {"scheme": "w4a16_gptq", "algorithm": name} if name == "autoround" else {"scheme": name}
    if name == "w4a16_awq":
        recipe["group_size"] = 32
    report, _ = run(spec_of(model, tmp_path, backend="llm_compressor", **recipe))
    files = open_model("safetensors", paths_of(tmp_path / "version"))
    assert len(files.quantized) == (0 if name == "kv_fp8" else 7 * LAYERS)
    assert report["kv"]["scales"] if name == "kv_fp8" else not report["kv"]["scales"]
