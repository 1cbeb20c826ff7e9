"""Imports from a hub: a local server that speaks its API, with everything that goes wrong on the way."""

from __future__ import annotations

import time

import pytest
from tursiops.core import store
from tursiops.core.audit import Actor
from tursiops.core.errors import TursiopsError
from tursiops.jobs import logs
from tursiops.jobs import services as jobs
from tursiops.jobs.models import JobState
from tursiops.registry import services
from tursiops.registry.models import Version, VersionState

from tests import factories, tiny_models
from tests.platform.registry import hub_server
from tests.platform.registry.conftest import rerun

pytestmark = pytest.mark.django_db
WEIGHTS = "model.safetensors"


def ok(job) -> Version:
    assert job.state == JobState.SUCCEEDED, (job.reason, logs.read(job, 0).text)
    return Version.objects.get(pk=job.subject_id)


def test_repository_becomes_a_version_pinned_to_its_commit(imported, hub):
    version = ok(imported("hub", "acme/tiny"))
    assert (version.source_kind, version.source_ref, version.source_revision) == ("hub", "acme/tiny", hub_server.COMMIT)
    assert (version.license, version.format) == ("apache-2.0", "safetensors")
    names = {file.name for file in version.files.all()}
    assert names == {"config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert all(store.verify(file.blob_id) for file in version.files.all())
    assert {name for name, _ in hub.downloads()} == names, "neither pickles nor code are even fetched"


def test_cut_connection_is_resumed_within_the_job(imported, hub):
    hub.files = {name: hub.files[name] for name in ("config.json", WEIGHTS, "tokenizer.json")}
    hub.cut_after = [10**9, 20_000, 30_000]  # config.json whole, then the weights in three pieces
    version = ok(imported("hub", "acme/tiny"))
    ranges = [asked for name, asked in hub.downloads() if name == WEIGHTS]
    assert ranges == ["", "bytes=20000-", "bytes=50000-"]
    assert store.verify(version.files.get(name=WEIGHTS).blob_id)


def test_server_without_ranges_starts_over(imported, hub):
    hub.files = {name: hub.files[name] for name in ("config.json", WEIGHTS, "tokenizer.json")}
    hub.ignore_ranges = True
    hub.cut_after = [10**9, 20_000]
    ok(imported("hub", "acme/tiny"))
    assert [asked for name, asked in hub.downloads() if name == WEIGHTS] == ["", "bytes=20000-"]


def gguf_only(hub, tmp_path) -> bytes:
    content = tiny_models.write_gguf(tmp_path / "tiny.gguf").read_bytes()
    hub.files = {"tiny.gguf": content, "README.md": b"hello"}
    return content


@pytest.mark.slow
def test_broken_off_import_keeps_its_part_for_the_retry(imported, hub, tmp_path):
    content = gguf_only(hub, tmp_path)
    hub.cut_after = [30_000] + [0] * 5
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "interrupted")
    assert "Retry" in job.reason
    assert Version.objects.get().state == VersionState.FAILED
    hub.requests.clear()
    hub.cut_after = []
    jobs.retry_job(job=job, actor=Actor("alice"))
    version = ok(rerun(job))
    assert hub.downloads() == [("tiny.gguf", "bytes=30000-")]
    assert version.size_bytes == len(content)


def test_wrong_content_is_refused_and_not_kept(imported, hub, tmp_path):
    gguf_only(hub, tmp_path)
    hub.damage = {"tiny.gguf"}
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "wrong_digest")
    assert "tiny.gguf has SHA-256" in job.reason
    assert list(store.local().files()) == [item for item in store.local().files() if item[0] == job.log_blob_id], (
        "only the log is in the store"
    )
    hub.damage = set()
    jobs.retry_job(job=job, actor=Actor("alice"))
    assert ok(rerun(job)).state == VersionState.READY


def test_small_files_are_checked_by_gits_digest(imported, hub):
    hub.damage = {"config.json"}
    job = imported("hub", "acme/tiny")
    assert job.error["code"] == "wrong_digest"
    assert "config.json" in job.reason


def test_gated_repository_says_what_to_do(imported, hub, monkeypatch):
    hub.token = "hf_secret"
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "gated")
    assert "HF_TOKEN" in job.reason
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    jobs.retry_job(job=job, actor=Actor("alice"))
    version = ok(rerun(job))
    assert "hf_secret" not in str(job.spec) + logs.read(job, 0).text + str(job.report) + version.reason


@pytest.mark.parametrize(
    ("ref", "revision", "code"),
    [
        ("acme/tinny", "", "unknown_repository"),
        ("acme/tiny", "v9", "unknown_revision"),
        ("acme/tiny:missing.gguf", "", "unknown_file"),
    ],
)
def test_unknown_names(imported, hub, ref, revision, code):
    job = imported("hub", ref, revision=revision)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, code)
    assert job.error["hint"]


def test_one_gguf_of_many_is_named_in_the_ref(imported, hub, tmp_path):
    one = tiny_models.write_gguf(tmp_path / "one.gguf", seed=1).read_bytes()
    two = tiny_models.write_gguf(tmp_path / "two.gguf", seed=2).read_bytes()
    hub.files = {"q4/one.gguf": one, "two.gguf": two}
    job = imported("hub", "acme/tiny")
    assert job.error["code"] == "ambiguous"
    assert "q4/one.gguf, two.gguf" in job.reason
    version = ok(imported("hub", "acme/tiny:q4/one.gguf"))
    assert (version.model.name, version.files.get().name) == ("one", "one.gguf")


def test_unreachable_endpoint(imported, settings):
    settings.HF_ENDPOINT = "http://127.0.0.1:9"
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "unreachable")
    assert "http://127.0.0.1:9" in job.reason


def test_endpoint_that_is_no_hub(imported, settings):
    state = hub_server.Hub()
    server = hub_server.start(state)
    settings.HF_ENDPOINT = state.endpoint + "/api/models/acme/tiny/revision/main?"
    try:
        job = imported("hub", "acme/tiny")
    finally:
        server.shutdown()
        server.server_close()
    assert job.state == JobState.ERRORED
    assert job.error["code"] in ("bad_answer", "no_weights", "unknown_repository", "unknown_revision")


def test_redirect_to_a_private_address_elsewhere_is_refused(imported, hub):
    hub.redirect_to = "http://10.1.2.3:8080"
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "bad_redirect")
    assert "10.1.2.3" in job.reason


def test_disk_too_small_is_said_before_the_first_byte(imported, hub, store_dir):
    name = WEIGHTS
    real = hub.files[name]
    listing = type(hub.files)(hub.files)

    class Huge(bytes):
        def __len__(self):
            return 10**18

    listing[name] = Huge(real)
    hub.files = listing
    job = imported("hub", "acme/tiny")
    assert (job.state, job.error["code"]) == (JobState.ERRORED, "disk_full")
    assert hub.downloads() == []


def test_slow_download_shows_bytes_and_can_be_cancelled(hub, team, store_dir, tmp_path, monkeypatch):
    gguf_only(hub, tmp_path)
    hub.files["tiny.gguf"] += b"\0" * 2_000_000
    hub.slow_s = 0.1  # 160 KB/s: 12 s in all
    job = services.import_model(team=team, actor=Actor("a", factories.make_user(team)), source="hub", ref="acme/tiny")
    shown: list[str] = []

    def record(*, job_id, owner, progress, text):
        shown.append(text)
        if len(shown) == 3:
            jobs.cancel_job(job=job, actor=Actor("alice"))

    monkeypatch.setattr(jobs, "record_progress", record)
    started = time.monotonic()
    rerun(job)
    assert job.state == JobState.CANCELLED
    assert time.monotonic() - started < 11
    assert "of 2.0 MiB" in shown[0]
    assert Version.objects.get().state == VersionState.FAILED


@pytest.mark.parametrize("ref", ["", "a/b/c", "../etc", "acme/tiny:x.bin", "https://huggingface.co/acme/tiny", "a b/c"])
def test_bad_refs_are_refused_at_the_door(team, ref):
    with pytest.raises(TursiopsError) as caught:
        services.import_model(team=team, actor=Actor("a"), source="hub", ref=ref)
    assert list(caught.value.fields) == ["ref"]
