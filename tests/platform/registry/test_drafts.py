"""Drafts of a version: which fit, what is refused with both numbers, who may record them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tursiops.accounts.models import AuditEntry
from tursiops.core.models import Event
from tursiops.deployments.specs import shape_of
from tursiops.registry.drafts import misfit, proposer_of
from tursiops.registry.models import LineageEdge, Version

from tests import factories
from tests.platform.api_bases import assert_error_shape

pytestmark = [pytest.mark.django_db, pytest.mark.speculation]
LARGE = {**factories.SMOLLM2_SHAPE, "parameters": 1_700_000_000, "hidden": 2048}


@pytest.fixture
def target(team):
    return factories.make_version(team=team, shape=LARGE)


@pytest.fixture
def small(team):
    return factories.make_version(team=team)


def url(target: Any, draft: Any = None) -> str:
    return f"/api/v1/versions/{target.pk}/drafts" + (f"/{draft.pk}" if draft else "")


def head(team: Any, **shape: Any) -> Any:
    return factories.make_version(
        team=team,
        format="safetensors",
        architecture="eagle3",
        shape={
            "task": "eagle3",
            "architecture": "eagle3",
            "hidden": 2048,
            "vocab": 49152,
            "parameters": 9_000_000,
            **shape,
        },
        tokenizer={},
    )


def test_fitting_ones_are_listed_with_what_computes_with_them(api, viewer, team, target, small):
    eagle = head(team)
    factories.make_version(team=team, shape={**LARGE, "parameters": 2_000_000_000})  # larger
    factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "vocab": 32_000})
    factories.make_version(team=team, state="failed")
    factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "task": "embed"})
    factories.make_version(team=factories.make_team())
    rows = api(viewer).get(url(target)).json()["drafts"]
    assert [(row["version"], row["proposer"]) for row in rows] == [(str(eagle.pk), "eagle3"), (str(small.pk), "draft")]
    assert rows[1]["label"] == str(small)
    assert rows[1]["parameters"] == factories.SMOLLM2_SHAPE["parameters"]
    assert rows[1]["reason"] == "The same vocabulary of 49,152 tokens. It has 8% of the model's parameters."
    assert rows[0]["reason"] == "A head for a hidden size of 2,048. It has 1% of the model's parameters."
    assert not any(row["recorded"] for row in rows)


def test_recorded_ones_come_first_once_and_in_the_lineage(api, member, team, target, small):
    smaller = factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "parameters": 1_000_000})
    client = api(member)
    for _ in range(2):
        rows = client.put(url(target, small)).json()["drafts"]
    assert [(row["version"], row["recorded"]) for row in rows] == [(str(small.pk), True), (str(smaller.pk), False)]
    edge = LineageEdge.objects.get()
    assert (edge.kind, edge.parent, edge.child) == ("draft_for", target, small)
    (told,) = client.get(f"/api/v1/models/{target.model_id}/lineage").json()["edges"]
    assert (told["kind"], told["parent"], told["child"]) == ("draft_for", str(target.pk), str(small.pk))
    event = Event.objects.get(kind="version.draft_added")
    assert event.text == f"{small} is a draft for {target}"
    assert AuditEntry.objects.get(action="version.draft_added").actor == member.username
    assert client.delete(url(target, small)).status_code == 204
    assert not LineageEdge.objects.exists()
    assert_error_shape(client.delete(url(target, small)), 404)
    assert Event.objects.filter(kind="version.draft_removed").count() == 1


def test_what_does_not_fit_is_refused_with_both_numbers(api, member, team, target, small):
    client = api(member)
    tokens = {"kind": "bpe", "vocab_size": 49_000}
    wrong = [
        (
            factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "vocab": 32_000}),
            "vocabulary_differs",
            "32,000",
            "49,152",
        ),
        (factories.make_version(team=team, tokenizer=tokens), "vocabulary_differs", "49,000", "49,152"),
        (head(team, hidden=4096), "hidden_size_differs", "4,096", "2,048"),
        (head(team, vocab=128_256), "vocabulary_differs", "128,256", "49,152"),
        (factories.make_version(team=team, shape={**LARGE}), "not_smaller", "1,700,000,000", "1,700,000,000"),
        (factories.make_version(team=team, state="importing"), "not_ready", "importing", ""),
        (
            factories.make_version(team=team, shape={**factories.SMOLLM2_SHAPE, "task": "score"}),
            "not_generating",
            "",
            "",
        ),
        (target, "same_version", "itself", ""),
    ]
    for draft, code, *numbers in wrong:
        error = assert_error_shape(client.put(url(target, draft)), 400)
        assert error["code"] == code, error
        assert all(number in error["message"] for number in numbers), error
    assert not LineageEdge.objects.exists()


def test_a_draft_of_another_team_is_unknown_and_viewers_only_read(api, member, viewer, target, small):
    theirs = factories.make_version(team=factories.make_team())
    assert_error_shape(api(member).put(url(target, theirs)), 404)
    assert_error_shape(api(member).put(url(theirs, small)), 404)
    assert_error_shape(api(member).get(url(theirs)), 404)
    assert_error_shape(api(viewer).put(url(target, small)), 403)
    assert not LineageEdge.objects.exists()


def test_a_head_is_imported_as_one_and_fits_the_model_of_its_size(imported, tmp_path):
    config = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 2048, "vocab_size": 49152}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"fc.weight": np.ones((4, 12), np.float32)}, tmp_path / "model.safetensors")
    job = imported("path", str(tmp_path), name="head")
    version = Version.objects.select_related("model__team").get(pk=job.subject_id)
    assert (version.state, version.reason, version.architecture, version.tokenizer) == ("ready", "", "eagle3", {})
    assert (version.model.task, shape_of(version).task) == ("draft-head", "eagle3")
    target = factories.make_version(team=version.model.team, shape=LARGE)
    assert misfit(version, target) is None
    assert proposer_of(version) == "eagle3"
    other = factories.make_version(team=version.model.team)
    assert misfit(version, other).code == "hidden_size_differs"  # type: ignore[union-attr]
