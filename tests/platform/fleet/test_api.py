"""REST of nodes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from tursiops.accounts.models import AuditEntry
from tursiops.core.models import Event
from tursiops.fleet import serializers
from tursiops.fleet.models import Gpu

from tests import factories
from tests.platform.api_bases import assert_error_shape

URL = "/api/v1/nodes"


@pytest.fixture
def node(db):
    node = factories.make_node()
    Gpu.objects.create(node=node, index=0, uuid="GPU-1", name="NVIDIA L20", memory_total=46 * 10**9)
    return node


@pytest.fixture
def root(api, team):
    return api(factories.make_user(team, "admin", is_superuser=True))


def test_everyone_signed_in_sees_nodes(api, viewer, node):
    assert_error_shape(api(None).get(URL), 401)
    (row,) = api(viewer).get(URL).json()["results"]
    assert set(row) == set(serializers.NodeSerializer().fields)
    assert set(row["gpus"][0]) == set(serializers.GpuSerializer().fields)
    assert (row["state"], row["reason"]) == ("ready", "")
    assert row["heartbeat_age_s"] < 10
    assert api(viewer).get(f"{URL}/{node.pk}").json()["name"] == node.name


def test_case_14_a_lost_node_never_breaks_the_list(api, viewer, node):
    node.heartbeat_at = timezone.now() - timedelta(hours=2)
    node.reachable_at = None
    node.save()
    factories.make_node(heartbeat_at=None, memory_total=0)
    rows = api(viewer).get(URL).json()["results"]
    assert [row["state"] for row in rows] == ["lost", "lost"]
    assert all(row["reason"] for row in rows)


def test_instances_of_other_teams_are_not_shown(api, viewer, outsider, team, node):
    factories.make_instance(factories.make_deployment(team), node=node)
    assert len(api(viewer).get(URL).json()["results"][0]["instances"]) == 1
    assert api(outsider).get(URL).json()["results"][0]["instances"] == []


def test_list_asks_the_same_number_of_questions_for_any_fleet(api, viewer, node, django_assert_max_num_queries):
    for _ in range(5):
        factories.make_instance(node=factories.make_node())
    client = api(viewer)
    with django_assert_max_num_queries(9):
        assert len(client.get(URL).json()["results"]) == 6


@pytest.mark.parametrize("what", ["cordon", "drain"])
def test_closing_a_node_is_for_admins_of_the_installation(api, admin, viewer, root, node, what):
    for user in (admin, viewer):
        assert_error_shape(api(user).post(f"{URL}/{node.pk}/{what}"), 403)
    answer = root.post(f"{URL}/{node.pk}/{what}").json()
    assert answer["state"] == {"cordon": "cordoned", "drain": "draining"}[what]
    assert answer["cordoned"]
    assert answer["reason"]
    assert_error_shape(root.post(f"{URL}/{node.pk}/{what}"), 409)
    assert root.post(f"{URL}/{node.pk}/uncordon").json()["state"] == "ready"
    assert AuditEntry.objects.count() == Event.objects.filter(subject_type="node").count() == 2
