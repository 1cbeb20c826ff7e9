"""REST: who may what, what is refused by name, and the table that the console shows."""

from __future__ import annotations

import json
import uuid

import pytest
from django.utils import timezone
from tursiops.jobs.models import Job, JobMetric, JobState
from tursiops.quantization.models import Quantization

from tests import factories
from tests.platform.api_bases import GetBase, ListBase, assert_error_shape

pytestmark = pytest.mark.django_db
BODY = {"schemes": [{"scheme": "fp8_dynamic"}, {"scheme": "w4a16_gptq", "options": {"group_size": 64}}]}


class TestQuantizations(ListBase, GetBase):
    url = "/api/v1/quantizations"
    make = staticmethod(factories.make_quantization)


@pytest.fixture
def client(api, member):
    return api(member)


@pytest.fixture
def version(team):
    return factories.make_version(team=team)


def url(version, action: str = "quantize") -> str:
    return f"/api/v1/versions/{version.pk}/{action}"


def test_a_job_for_each_scheme_once_per_key_and_by_members_only(api, team, client, version):
    answers = [client.post(url(version), BODY, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202], answers[0].content
    first, again = (answer.json() for answer in answers)
    assert [row["id"] for row in first] == [row["id"] for row in again]
    assert [row["scheme"] for row in first] == ["fp8_dynamic", "w4a16_gptq"]
    assert [row["job"]["state"] for row in first] == ["queued", "queued"]
    assert first[1]["options"] == {"group_size": 64}
    assert (Job.objects.count(), version.model.versions.count()) == (2, 3)
    viewer = api(factories.make_user(team, "viewer"))
    assert viewer.post(url(version), BODY).status_code == 403
    assert viewer.post(url(version, "quantize/plan"), BODY).status_code == 200
    assert_error_shape(client.post(url(version), BODY, headers={"Idempotency-Key": "k" * 81}), 400)


def test_a_plan_starts_nothing(client, version):
    answer = client.post(url(version, "quantize/plan"), BODY)
    assert answer.status_code == 200, answer.content
    plans = answer.json()["plans"]
    assert [plan["scheme"] for plan in plans] == ["fp8_dynamic", "w4a16_gptq"]
    assert plans[1]["size_bytes"] < plans[0]["size_bytes"]
    assert plans[0]["support"]["level"] == "slow"
    assert answer.json()["calibration"]["samples"] == 128
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "schemes", "required"),
        ({"schemes": []}, "schemes", "1 element"),
        ({"schemes": [{"scheme": "int3"}]}, "schemes.0.scheme", "no scheme 'int3'"),
        ({**BODY, "device": "toaster"}, "device", "is not known here"),
        ({**BODY, "devise": "cpu"}, "devise", "device"),
        ({**BODY, "tp": 0}, "tp", "1"),
        ({**BODY, "calibration": {"source": "corpus"}}, "calibration", "Give a corpus"),
        ({**BODY, "calibration": {"corpus": str(uuid.uuid4()), "source": "corpus"}}, "calibration", "does not exist"),
        ({"schemes": [{"scheme": "fp8_dynamic", "keeps": []}]}, "schemes", "keep"),
        ({"schemes": [{"scheme": "fp8_dynamic", "keep": ["*"] * 101}]}, "schemes", "100"),
        ({"schemes": [{"scheme": "fp8_dynamic", "keep": ["k" * 201]}]}, "schemes", "200"),
        ({"schemes": [{"scheme": "fp8_dynamic", "gate": {"kl": "inf"}}]}, "schemes", "valid number"),
        (
            {"schemes": [{"scheme": "w4a16_gptq", "options": {"group_size": 128}}]},
            "schemes.0.options.group_size",
            "576",
        ),
    ],
)
def test_the_door_names_the_field(client, version, body, field, said):
    error = assert_error_shape(client.post(url(version), body), 400)
    assert said in json.dumps(error["fields"][field])
    assert not Job.objects.exists()


def test_another_team_s_corpus_is_not_there(client, version, other_team):
    corpus = factories.make_corpus(other_team)
    body = {**BODY, "calibration": {"source": "corpus", "corpus": str(corpus.pk)}}
    assert "calibration" in assert_error_shape(client.post(url(version), body), 400)["fields"]


def test_layers_to_keep_join_the_head(client, version):
    body = {"schemes": [{"scheme": "fp8_dynamic", "keep": ["model.layers.0.mlp.down_proj"]}]}
    (row,) = client.post(url(version), body).json()
    assert row["keep"] == ["model.layers.0.mlp.down_proj"]
    assert Quantization.objects.get().recipe["keep"] == ["lm_head", "model.layers.0.mlp.down_proj"]


def test_the_table_has_the_base_and_all_that_was_made_of_it(client, version, team):
    made = factories.make_quantization(
        base=version,
        base_figures={"perplexity": 20.0, "size_bytes": 1},
        figures={
            "perplexity": 21.0,
            "perplexity_ratio": 1.05,
            "size_bytes": 10,
            "fallbacks": 2,
            "kl": 0.1,
            "same_top": 0.9,
        },
        rules=[{"metric": "perplexity_ratio", "value": 1.05, "limit": 1.03, "better": "lower", "passed": False}],
        verdict="failed",
    )
    gone = factories.make_quantization(base=version)
    gone.version.delete()
    factories.make_quantization(team)
    table = client.get(url(version, "quantizations")).json()
    assert (table["base"]["version"], table["base"]["label"]) == (str(version.pk), str(version))
    assert (table["base"]["figures"]["perplexity"], table["base"]["figures"]["size_bytes"]) == (
        20.0,
        version.size_bytes,
    )
    (row,) = table["rows"]
    assert (row["id"], row["version"], row["verdict"], row["fallbacks"]) == (
        str(made.pk), str(made.version_id), "failed", 2,
    )  # fmt: skip
    assert row["figures"] == {
        "size_bytes": 10, "memory_bytes": None, "decode_tokens_per_s": None, "prefill_tokens_per_s": None,
        "perplexity": 21.0, "perplexity_ratio": 1.05, "same_top": 0.9, "kl": 0.1, "dtype": None, "measured_on": None,
    }  # fmt: skip
    assert (row["base_figures"]["perplexity"], row["base_figures"]["kl"]) == (20.0, None)
    assert row["job"]["id"] == str(made.job_id)
    assert row["rules"][0]["passed"] is False


def test_a_running_job_shows_its_layers(client, version):
    row = factories.make_quantization(base=version, recipe={"scheme": "w4a16_gptq"})
    Job.objects.filter(pk=row.job_id).update(
        state=JobState.RUNNING, started_at=timezone.now(), progress=0.3, progress_text="layer 4 of 30"
    )
    for name, step, value in [
        ("resumed_at", None, 2), ("layers_done", None, 3), ("layer_loss", 2, 0.0004), ("layer_sqnr_db", 2, 21.0),
        ("fallbacks", None, 1),
    ]:  # fmt: skip
        JobMetric.objects.create(job=row.job, name=name, step=step, value=value)
    shown = client.get(f"/api/v1/quantizations/{row.pk}").json()
    progress = shown["progress"]
    assert (progress["phase"], progress["layer"], progress["layers"]) == ("quantize", "layer 4 of 30", 30)
    assert (progress["layers_done"], progress["resumed_at"], progress["fallbacks"]) == (3, 2, 1)
    (layer,) = shown["layers"]
    assert (layer["index"], layer["loss"], layer["sqnr_db"]) == (2, 0.0004, 21.0)
    assert layer["local_error"] == pytest.approx(0.02)


def test_a_report_s_layers_and_fallbacks_are_shown(client, version):
    report = {
        "layers": [
            {"index": 0, "name": "layers.0.down", "scheme": "int4", "method": "rtn_fallback", "loss": 0.01,
             "rtn_loss": 0.01, "damping": 10.0, "sqnr_db": 18.0, "note": "not positive definite"}
        ],
        "kept": ["lm_head"], "peak_memory": 10,
    }  # fmt: skip
    row = factories.make_quantization(
        base=version, report=report, figures={"serve_options": {"a": 1}}, tp=2, device="h200"
    )
    about = {"reference": {"version": str(version.pk)}, "other": {"version": str(row.version_id)}}
    compared = factories.make_job(version.model.team, kind="registry.compare", spec=about)
    factories.make_job(version.model.team, kind="registry.compare", spec={**about, "reference": {"version": "x"}})
    shown = client.get(f"/api/v1/quantizations/{row.pk}").json()
    assert shown["comparison"] == str(compared.pk)
    assert shown["deploy"] == {"device": "cuda", "gpus_per_replica": 2, "options": {"a": 1}}
    (layer,) = shown["layers"]
    assert (layer["name"], layer["fallback"], layer["damping"]) == ("layers.0.down", "not positive definite", 10.0)
    assert shown["report"] == {"kept": ["lm_head"], "peak_memory": 10}


def test_schemes_have_limits_for_the_version_that_is_asked_about(client, version, other_team):
    found = {each["name"]: each for each in client.get("/api/v1/quantization/schemes").json()}
    assert found["fp8_dynamic"]["gate"] == {"perplexity_ratio": 1.01}
    small = client.get("/api/v1/quantization/schemes", {"version": str(version.pk)}).json()
    assert small[0]["gate"] == {"perplexity_ratio": 1.03}
    theirs = factories.make_version(team=other_team)
    assert_error_shape(client.get("/api/v1/quantization/schemes", {"version": str(theirs.pk)}), 400)
