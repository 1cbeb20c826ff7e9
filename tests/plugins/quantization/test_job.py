"""A quantize job from its spec to a folder: what lies there at its end, and what after an end that was none."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engines.native.loader.model_files import open_model
from engines.protocol import ChildError
from plugins.quantization import export, job, work
from tests.plugins.quantization.quantized_for_tests import LAYERS, paths_of, run, spec_of, write_model

pytestmark = pytest.mark.slow
LINEARS = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "base")


def digests(report):
    return {file["name"]: file["sha256"] for file in report["files"]}


@pytest.mark.parametrize(
    ("recipe", "scheme"),
    [
        ({"scheme": "fp8_dynamic"}, "fp8 per channel"),
        ({"scheme": "fp8_static"}, "fp8 per channel"),
        ({"scheme": "fp8_block"}, "fp8 block 128 × 128"),
        ({"scheme": "int8_w8a8"}, "int8 per channel"),
        ({"scheme": "w4a16_gptq", "group_size": 32}, "int4 group 32"),
        ({"scheme": "w4a16_awq"}, "int4 group 64 asymmetric"),
        ({"scheme": "int8_weight_only"}, "int8 per channel"),
    ],
)
def test_every_scheme_becomes_a_version_that_opens(model, tmp_path, recipe, scheme):
    report, said = run(spec_of(model, tmp_path, **recipe))
    folder = tmp_path / "version"
    assert {file["name"] for file in report["files"]} == {path.name for path in folder.iterdir()}
    assert "tokenizer.json" in digests(report)
    files = open_model("safetensors", paths_of(folder))
    assert files.config == open_model("safetensors", paths_of(model)).config
    assert report["layers_by_scheme"] == {scheme: 4 * LAYERS}
    assert report["fallbacks"] == []
    assert report["size"]["after"] < report["size"]["before"]
    shares = [line["value"] for line in said if line["type"] == "progress"]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert [line["value"] for line in said if line.get("name") == "layers_done"] == [1, 2, 3]
    assert not (tmp_path / "work" / "layers").exists(), "finished layers are not kept twice"


def test_the_report_says_what_was_calibrated_on_and_what_each_layer_lost(model, tmp_path):
    report, _ = run(spec_of(model, tmp_path, scheme="w4a16_gptq"))
    assert report["group_size"] == 64
    facts = report["calibration"]
    assert (facts["samples"], facts["tokens"], facts["total_tokens"]) == (32, 64, 2048)
    assert len(facts["sha256"]) == 64
    first = report["layers"][0]
    assert (first["name"], first["method"]) == ("layers.0.qkv", "gptq")
    assert 0 < first["loss"] <= first["rtn_loss"]
    assert report["peak_memory"] > 0
    assert report["kv"] == {"format": "none", "scales": {}}


def test_kept_layers_stay_as_they_are(model, tmp_path):
    keep = ["lm_head", "model.layers.1.mlp.down_proj", "model.layers.2"]
    report, _ = run(spec_of(model, tmp_path, scheme="int8_weight_only", keep=keep))
    made, base = load_file(tmp_path / "version/model.safetensors"), load_file(model / "model.safetensors")
    for name in ("model.layers.1.mlp.down_proj.weight", "model.layers.2.self_attn.q_proj.weight"):
        assert torch.equal(made[name], base[name])
    assert report["layers_by_scheme"] == {"int8 per channel": 7, "16 bits": 5}
    ignored = json.loads((tmp_path / "version/config.json").read_text())["quantization_config"]["ignore"]
    assert len(ignored) == 1 + 1 + LINEARS


def test_scales_of_the_cache_are_measured_and_none_is_one(model, tmp_path):
    report, _ = run(spec_of(model, tmp_path, scheme="kv_fp8"))
    made = load_file(tmp_path / "version/model.safetensors")
    scales = [made[f"model.layers.{n}.self_attn.{kind}"] for n in range(LAYERS) for kind in ("k_scale", "v_scale")]
    assert all(0 < float(scale) != 1.0 for scale in scales)
    assert len({float(scale) for scale in scales}) == len(scales)
    assert set(report["kv"]["scales"]) == {f"layers.{n}" for n in range(LAYERS)}
    config = json.loads((tmp_path / "version/config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"]["type"] == "float"
    base = load_file(model / "model.safetensors")
    assert all(torch.equal(made[name], tensor) for name, tensor in base.items() if name in made)


@pytest.mark.parametrize("keep", [["lm_head"], ["lm_head", "model.layers.1"]])
def test_an_embedding_of_the_layers_own_scheme_is_named(model, tmp_path, keep):
    run(spec_of(model, tmp_path, scheme="int8_weight_only", embedding="int8", keep=keep))
    config = json.loads((tmp_path / "version/config.json").read_text())["quantization_config"]
    assert [group["targets"] for group in config["config_groups"].values()] == [["Linear", "model.embed_tokens"]]
    assert "embed.weight" in open_model("safetensors", paths_of(tmp_path / "version")).quantized


def test_finished_layers_stay_until_the_version_reads_back(model, tmp_path, monkeypatch):
    def unreadable(*_):
        raise ChildError("not_exportable", "model: it reads back as another")

    spec = spec_of(model, tmp_path, scheme="int8_weight_only")
    monkeypatch.setattr(job, "_read_back", unreadable)
    with pytest.raises(ChildError, match="reads back"):
        run(spec)
    monkeypatch.undo()
    assert run(spec)[0]["resumed_at"] == LAYERS
    assert not (tmp_path / "work/layers").exists()


def test_int8_cache_is_said_to_whoever_serves_the_version(model, tmp_path):
    report, _ = run(spec_of(model, tmp_path, scheme="kv_int8"))
    assert report["serve_options"] == {"kv_cache_dtype": "int8"}
    assert report["calibration"] is None


# -- ends that are none ---------------------------------------------------------------------------------------------


def child(spec):
    process = subprocess.Popen(
        [sys.executable, "-m", "plugins.quantization.job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3], start_new_session=True,
    )  # fmt: skip
    process.stdin.write(json.dumps(spec))
    process.stdin.close()
    return process


def test_a_killed_job_goes_on_at_the_last_finished_layer_and_makes_the_same_version(model, tmp_path):
    spec = spec_of(model, tmp_path / "a", scheme="w4a16_gptq")
    killed = child(spec)
    for line in killed.stdout:
        if json.loads(line).get("name") == "layers_done":
            os.kill(killed.pid, signal.SIGKILL)
            break
    killed.wait()
    assert not (tmp_path / "a/version").exists()
    again = child(spec)
    report = json.loads(again.stdout.readlines()[-1])
    assert report["type"] == "report", report
    assert report["data"]["resumed_at"] >= 1
    whole, _ = run(spec_of(model, tmp_path / "b", scheme="w4a16_gptq"))
    assert digests(report["data"]) == digests(whole)


def test_another_recipe_does_not_take_over_layers(model, tmp_path, monkeypatch):
    def stop(*_):
        raise SystemExit(143)

    monkeypatch.setattr(export, "quantization_config", stop)
    with pytest.raises(SystemExit):
        run(spec_of(model, tmp_path, scheme="int8_weight_only"))
    assert len(list((tmp_path / "work/layers").glob("layer-*"))) == LAYERS
    assert not list(tmp_path.glob("version*")), "a cancel half-way leaves nothing half written"
    monkeypatch.undo()
    report, _ = run(spec_of(model, tmp_path, scheme="fp8_dynamic"))
    assert report["resumed_at"] == 0
    assert report["layers_by_scheme"] == {"fp8 per channel": 4 * LAYERS}


def test_a_layer_that_lies_cut_off_is_made_again(model, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "quantization_config", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(spec_of(model, tmp_path, scheme="int8_weight_only"))
    monkeypatch.undo()
    path = tmp_path / "work/layers/layer-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    report, _ = run(spec_of(model, tmp_path, scheme="int8_weight_only"))
    assert report["resumed_at"] == 2


def test_a_disk_that_fills_up_keeps_what_is_finished(model, tmp_path, monkeypatch):
    spec, saved = spec_of(model, tmp_path, scheme="int8_weight_only"), []

    def save(tensors, path, metadata):
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        saved.append(path)
        save_file(tensors, path, metadata)

    monkeypatch.setattr(work, "save_file", save)
    with pytest.raises(ChildError) as caught:
        run(spec)
    assert caught.value.code == "disk_full"
    assert str(tmp_path / "work/layers/layer-00002.safetensors") in caught.value.message
    assert re.search(r"; [\d.]+ KiB are needed, ", caught.value.message)
    assert not list(tmp_path.glob("version*"))
    monkeypatch.undo()
    assert run(spec)[0]["resumed_at"] == 2


def test_a_full_disk_is_no_crash_wherever_it_was_met(model, tmp_path, monkeypatch, capsys):
    """Of what the kernel says, safetensors makes an error of its own; a file object tells no name."""
    spec = spec_of(model, tmp_path, scheme="fp8_dynamic")

    def ended(failing):
        monkeypatch.setattr(job, "run", failing)
        monkeypatch.setattr(job, "read_spec", lambda: dict(spec))
        assert job.main() == 1
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    def serialized(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    told = ended(serialized)
    assert (told["code"], spec["workdir"] in told["message"]) == ("disk_full", True)
    told = ended(lambda *_: Path("/dev/full").write_bytes(b"0" * 8))
    assert told["code"] == "disk_full"


def test_files_of_a_version_that_find_the_disk_full_name_their_place(model, tmp_path, monkeypatch):
    def full(folder, entries, progress):
        Path("/dev/full").write_bytes(b"0" * 8)

    monkeypatch.setattr(export.Folder, "write_shards", full)
    with pytest.raises(ChildError, match=r"version\.making could not be written; [\d.]+ KiB are needed") as caught:
        run(spec_of(model, tmp_path, scheme="fp8_dynamic"))
    assert caught.value.code == "disk_full"
    assert not list(tmp_path.glob("version*"))


# -- what is refused before anything is computed --------------------------------------------------------------------


def refused(spec):
    with pytest.raises(ChildError) as caught:
        run(spec)
    assert not Path(spec["staging"]).exists()
    return caught.value


def test_weights_that_are_no_numbers_are_named(model, tmp_path):
    broken = shutil.copytree(model, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    error = refused(spec_of(broken, tmp_path, scheme="fp8_dynamic"))
    assert "model.layers.1.mlp.up_proj.weight" in error.message
    assert "NaN" in error.message


def test_a_layer_to_keep_that_is_not_there(model, tmp_path):
    error = refused(spec_of(model, tmp_path, scheme="fp8_dynamic", keep=["model.layers.1.mlp.dwon_proj"]))
    assert (error.code, error.hint) == (
        "bad_recipe",
        "Close are model.layers.1.mlp.down_proj, model.layers.2.mlp.down_proj, model.layers.0.mlp.down_proj.",
    )


def test_a_group_that_divides_no_layer(model, tmp_path):
    error = refused(spec_of(model, tmp_path, scheme="w4a16_gptq", group_size=48))
    assert error.message == "group_size: 48 does not divide model.layers.0.self_attn.q_proj: 64 inputs"
    assert "64, 32" in error.hint


def test_rows_that_are_longer_than_the_context(model, tmp_path):
    error = refused(spec_of(model, tmp_path, scheme="w4a16_gptq", tokens=256))
    assert error.message == "tokens: rows of 256: the model's context is 128"


def test_a_version_that_is_quantized_already(model, tmp_path):
    run(spec_of(model, tmp_path, scheme="fp8_dynamic"))
    error = refused(spec_of(tmp_path / "version", tmp_path / "again", scheme="fp8_dynamic"))
    assert error.code == "already_quantized"
    config = json.loads((tmp_path / "version/config.json").read_text())
    config["compression_config"] = config.pop("quantization_config")  # its name in older files, which the loader takes
    (tmp_path / "version/config.json").write_text(json.dumps(config))
    error = refused(spec_of(tmp_path / "version", tmp_path / "again", scheme="fp8_dynamic"))
    assert error.code == "already_quantized"


def test_an_empty_compression_config_is_not_handed_on(model, tmp_path):
    base = shutil.copytree(model, tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "compression_config": {}}))
    run(spec_of(base, tmp_path, scheme="fp8_dynamic"))
    assert "compression_config" not in json.loads((tmp_path / "version/config.json").read_text())


def test_too_little_room_is_told_with_numbers(model, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(job.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    error = refused(spec_of(model, tmp_path, scheme="fp8_dynamic"))
    assert error.code == "disk_full"
    assert "1000 B are free" in error.message
    monkeypatch.undo()
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(job.psutil, "virtual_memory", lambda: memory(2**20))
    error = refused(spec_of(model, tmp_path, scheme="fp8_dynamic"))
    assert error.code == "out_of_memory"


def test_calibration_of_another_kind(model, tmp_path):
    spec = spec_of(model, tmp_path, scheme="w4a16_gptq")
    Path(spec["calibration"]).write_text('{"question": "?"}\n' * 50)
    assert refused(spec).code == "bad_calibration"
