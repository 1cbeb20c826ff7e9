"""Domain tokens with real children: a version of a version, what it saves, how it is refused, cancelled and resumed."""

from __future__ import annotations

import io
import json
import uuid

import pytest
from django.utils import timezone
from tursiops.core import store
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict
from tursiops.core.models import Blob, Event
from tursiops.jobs import logs, runner
from tursiops.jobs import services as jobs
from tursiops.jobs.models import Job, JobState
from tursiops.registry import corpora, domain_tokens, services
from tursiops.registry.models import Corpus, LineageEdge, LineageKind, Version, VersionState

from tests import factories, tiny_models
from tests.platform.api_bases import DeleteBase, ListBase, assert_error_shape
from tests.platform.registry.conftest import rerun

pytestmark = pytest.mark.django_db
ALICE = Actor("alice")
TERMS = ["quantitative easing", "市盈率"]
TEXT = "the quantitative easing of the bank\n" * 6 + "我们的市盈率很高\n\n"


@pytest.fixture
def base(team, store_dir, tmp_path) -> Version:
    """As an import would have left it."""
    blob = store.put_file(tiny_models.write_gguf(tmp_path / "tiny.gguf"))
    return factories.make_version(
        factories.make_model(team, name="tiny"),
        files={"tiny.gguf": blob},
        chat_template=tiny_models.TEMPLATE,
        license="mit",
    )


@pytest.fixture
def corpus(team, store_dir) -> Corpus:
    data = TEXT.encode()
    return corpora.add_corpus(team=team, actor=ALICE, name="reports", file=io.BytesIO(data), size=len(data))


def ended(base: Version, **options) -> Job:
    return rerun(domain_tokens.add_domain_tokens(base=base, actor=ALICE, **{"terms": TERMS, **options}))


def test_a_lost_worker_s_job_is_done_again_and_its_version_has_files_lineage_and_figures(base, corpus):
    job = domain_tokens.add_domain_tokens(base=base, actor=ALICE, terms=TERMS, corpus=corpus)
    assert jobs.claim_job(job_id=job.pk, owner="gone") is not None
    staging = store.local().incoming(str(job.subject_id)) / "files"
    staging.mkdir()
    (staging / "model.safetensors.part").write_bytes(b"half a file")
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - jobs.LEASE)
    assert jobs.reap_lost_jobs() == 1
    job = rerun(job)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2), (job.reason, logs.read(job, 0).text)
    version = Version.objects.get(pk=job.subject_id)
    assert (version.model, version.number, version.state) == (base.model, 2, VersionState.READY)
    assert (version.format, version.architecture, version.license) == ("safetensors", "llama", "mit")
    assert version.chat_template == base.chat_template
    assert (version.shape["vocab"], version.tokenizer["vocab_size"]) == (320, tiny_models.VOCAB + 3)
    assert version.source_ref == "tiny v1 + domain tokens"
    names = {file.name: file.blob_id for file in version.files.all()}
    assert set(names) == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
        "domain_tokens.json",
    }  # fmt: skip
    with store.open_blob(names["domain_tokens.json"]) as file:
        assert [token["text"] for token in json.load(file)["tokens"]] == [" " + TERMS[0], TERMS[0], TERMS[1]]
    assert all(store.verify(digest) for digest in names.values())
    saving = job.report["saving"]
    assert saving["before"] - saving["after"] == sum(row["saved"] for row in job.report["terms"])
    assert [(row["term"], row["count"]) for row in job.report["terms"]] == [(TERMS[0], 6), (TERMS[1], 1)]
    assert "% less" in job.reason
    edge = LineageEdge.objects.get()
    assert (edge.kind, edge.parent, edge.child, edge.job) == (LineageKind.EXTENDED_FROM, base, version, job)
    assert edge.changes["corpus"] == {"before": saving["before"], "after": saving["after"], "unit": "tokens"}
    assert edge.changes["vocabulary"] == {"before": 259, "after": 262, "unit": "tokens"}
    assert not (store.local().root / "incoming" / str(version.pk)).exists()
    kinds = list(Event.objects.filter(subject_id=version.pk).values_list("kind", flat=True))
    assert kinds[-1] == "version.ready"


def test_a_preview_counts_and_makes_nothing(base, corpus):
    job = ended(base, terms=[], corpus=corpus, candidates=3, min_count=2, preview=True)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert (job.subject_type, job.subject_id) == ("model", base.model_id)
    assert job.report["terms"][0]["term"] == "quantitative easing"
    assert "files" not in job.report
    assert Version.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ({"terms": ["<|im_end|>"]}, "bad_terms", "terms[0]"),
        ({"terms": [], "candidates": 5, "min_count": 1000}, "no_candidates", "corpus"),
    ],
)
def test_what_only_the_tokenizer_can_refuse_ends_the_job_with_the_field(base, corpus, options, code, named):
    job = ended(base, corpus=corpus, **options)
    assert (job.state, job.error["code"]) == (JobState.ERRORED, code)
    assert named in job.reason
    version = Version.objects.get(pk=job.subject_id)
    assert (version.state, version.reason) == (VersionState.FAILED, job.reason)
    assert not LineageEdge.objects.exists()


def test_terms_that_can_have_no_token_can_be_left_out(base):
    job = ended(base, terms=[*TERMS, TERMS[0], "", "<|im_end|>"], skip_unneeded=True, preview=True)
    assert job.state == JobState.SUCCEEDED, job.reason
    assert {(row["term"], row["code"]) for row in job.report["skipped"]} == {
        (TERMS[0], "bad_term"), ("", "bad_term"), ("<|im_end|>", "holds_special_token"),
    }  # fmt: skip


def test_a_cancelled_job_fails_its_version_and_a_retry_goes_on(base):
    job = domain_tokens.add_domain_tokens(base=base, actor=ALICE, terms=TERMS)
    jobs.cancel_job(job=job, actor=ALICE)
    version = Version.objects.get(pk=job.subject_id)
    assert version.state == VersionState.FAILED
    jobs.retry_job(job=job, actor=ALICE)
    version.refresh_from_db()
    assert (version.state, version.reason) == (VersionState.IMPORTING, "")


def test_a_running_child_is_ended_by_a_cancel(base, monkeypatch):
    job = domain_tokens.add_domain_tokens(base=base, actor=ALICE, terms=TERMS)
    real = runner.JobRun.look_after

    def cancel_then_look(self) -> None:
        if Job.objects.get(pk=job.pk).state == JobState.RUNNING:
            jobs.cancel_job(job=Job.objects.get(pk=job.pk), actor=ALICE)
        self._looked_at = 0.0
        real(self)

    monkeypatch.setattr(runner.JobRun, "look_after", cancel_then_look)
    job = rerun(job)
    assert (job.state, job.reason) == (JobState.CANCELLED, "Cancelled by alice.")
    assert Version.objects.get(pk=job.subject_id).state == VersionState.FAILED


def test_base_and_corpus_stay_while_a_job_reads_them(base, corpus):
    job = domain_tokens.add_domain_tokens(base=base, actor=ALICE, terms=TERMS, corpus=corpus)
    with pytest.raises(Conflict, match="Add domain tokens to tiny v1"):
        services.delete_version(version=base, actor=ALICE)
    with pytest.raises(Conflict, match="Add domain tokens to tiny v1"):
        corpora.delete_corpus(corpus=corpus, actor=ALICE)
    jobs.cancel_job(job=job, actor=ALICE)
    corpora.delete_corpus(corpus=corpus, actor=ALICE)
    services.delete_version(version=base, actor=ALICE)


def test_a_corpus_in_the_store_is_no_garbage(corpus):
    store.collect_garbage(older_than=timezone.now().timestamp() + 1)
    assert store.path_of(corpus.blob_id).is_file()


@pytest.fixture
def client(api, member):
    return api(member)


def url(version) -> str:
    return f"/api/v1/versions/{version.pk}/domain-tokens"


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"terms": ["fine", ""]}, "terms", "terms[1] ('') is empty"),
        ({"terms": ["a", "b", "a"]}, "terms", "terms[2] ('a') is there twice, first as terms[0]"),
        ({"terms": [" a"]}, "terms", "white space"),
        ({"terms": ["x" * 65]}, "terms", "65 characters"),
        ({"terms": []}, "terms", "Give terms"),
        ({"terms": [f"t{n}" for n in range(4001)]}, "terms", "4000"),
        ({"terms": [], "candidates": 5}, "corpus", "give one"),
        ({"terms": [], "candidates": 1001}, "candidates", "1000"),
        ({"terms": ["a"], "dtype": "int4"}, "dtype", "int4"),
        ({"terms": ["a"], "corpus": str(uuid.uuid4())}, "corpus", "object does not exist"),
        ({"terms": ["a"], "min_count": 0}, "min_count", "1"),
        ({"term": ["a"]}, "term", "terms"),
        ({"terms": "a"}, "terms", "list"),
    ],
)
def test_the_door_names_the_field(client, team, body, field, said):
    version = factories.make_version(team=team)
    error = assert_error_shape(client.post(url(version), body), 400)
    assert said in json.dumps(error["fields"][field])
    assert not Job.objects.exists()


def test_dtype_is_for_gguf_and_the_base_must_be_ready(client, team):
    version = factories.make_version(team=team, format="safetensors")
    error = assert_error_shape(client.post(url(version), {"terms": ["a"], "dtype": "float16"}), 400)
    assert "GGUF" in error["fields"]["dtype"][0]
    failed = factories.make_version(team=team, state=VersionState.FAILED)
    assert assert_error_shape(client.post(url(failed), {"terms": ["a"]}), 409)["code"] == "version_not_ready"
    embedding = factories.make_version(team=team, shape={"task": "embed"})
    assert_error_shape(client.post(url(embedding), {"terms": ["a"]}), 400)


def test_a_job_is_queued_once_per_key_and_by_members_only(api, team, client):
    version = factories.make_version(team=team)
    body = {"terms": ["REIT"]}
    answers = [client.post(url(version), body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert (Job.objects.count(), version.model.versions.count()) == (1, 2)
    assert api(factories.make_user(team, "viewer")).post(url(version), body).status_code == 403
    long = client.post(url(version), body, headers={"Idempotency-Key": "k" * 101})
    assert_error_shape(long, 400)


def test_another_team_sees_neither_version_nor_corpus(client, team, other_team, outsider, api):
    theirs = factories.make_version(team=other_team)
    assert_error_shape(client.post(url(theirs), {"terms": ["a"]}), 404)
    corpus = factories.make_corpus(other_team)
    body = {"terms": ["a"], "corpus": str(corpus.pk)}
    error = assert_error_shape(client.post(url(factories.make_version(team=team)), body), 400)
    assert "corpus" in error["fields"]


class TestCorpora(ListBase, DeleteBase):
    url = "/api/v1/corpora"
    make = staticmethod(factories.make_corpus)


def upload(client, content: bytes, **fields):
    file = io.BytesIO(content)
    file.name = "reports.txt"
    return client.post("/api/v1/corpora", {"file": file, **fields}, format="multipart")


def test_an_uploaded_text_is_kept_and_counted(client, store_dir):
    answer = upload(client, TEXT.encode())
    assert answer.status_code == 201, answer.content
    row = answer.json()
    assert (row["name"], row["size"], row["lines"]) == ("reports.txt", len(TEXT.encode()), 7)
    with store.open_blob(row["sha256"]) as file:
        assert file.read().decode() == TEXT
    assert upload(client, b"another\nline", name="named").json()["name"] == "named"


@pytest.mark.parametrize(
    ("content", "said"), [(b"fine\n\xff\xfe", "UTF-8"), (b" \n\n", "no text"), (b"", "empty"), (b"\xc3", "UTF-8")]
)
def test_what_is_no_text_is_refused(client, store_dir, content, said):
    error = assert_error_shape(upload(client, content), 400)
    assert said in error["fields"]["file"][0]
    assert not Blob.objects.exists()


def test_a_text_that_is_too_large_is_refused(client, store_dir, monkeypatch):
    monkeypatch.setattr(corpora, "MAX_CORPUS", 10)
    error = assert_error_shape(upload(client, b"more than ten bytes"), 400)
    assert (error["code"], "10" in error["fields"]["file"][0]) == ("too_large", True)
