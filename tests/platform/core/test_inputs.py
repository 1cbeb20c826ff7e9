"""Names that nothing reads are refused, at every address and by every method."""

from __future__ import annotations

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers
from tursiops.accounts.models import ApiKey
from tursiops.core.inputs import Input, meant
from tursiops.core.views import DeclaredView
from tursiops.jobs.models import Job

from tests import factories
from tests.platform.addresses import ROUTES, addresses, fill, kind_of, one_of_each
from tests.platform.api_bases import assert_error_shape

MADE_ELSEWHERE = {"schema", "docs"}  # drf-spectacular's own views
WRITES = ("post", "put", "patch", "delete")


class Part(Input):
    size = serializers.IntegerField()


class Whole(Input):
    requests_per_minute = serializers.IntegerField(required=False)
    part = Part(required=False)
    made_at = serializers.DateTimeField(read_only=True)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("rpm", "requests_per_minute"),
        ("requestsPerMinute", "requests_per_minute"),
        ("request_per_minute", "requests_per_minute"),
        ("parts", "part"),
        ("zzz", ""),
    ],
)
def test_a_slip_another_spelling_and_initials_lead_to_the_field_meant(given, known):
    assert meant(given, ["part", "requests_per_minute"]) == known


def test_one_answer_names_unknown_wrong_and_nested_fields():
    read = Whole(data={"rpm": 1, "requests_per_minute": "x", "part": {"size": 1, "sice": 2}, "made_at": "2026-01-01"})
    assert not read.is_valid()
    assert set(read.errors) == {"rpm", "requests_per_minute", "part", "made_at"}
    assert "Did you mean requests_per_minute?" in read.errors["rpm"][0]
    assert "Did you mean size?" in read.errors["part"]["sice"][0]
    assert "Known here: part, requests_per_minute." in read.errors["made_at"][0]


def test_what_is_no_object_is_said_to_be_none():
    for data in ([1], "x", 3):
        read = Whole(data=data)
        assert not read.is_valid()
        assert "dictionary" in str(read.errors)


def test_thousands_of_unknown_names_make_a_short_answer():
    read = Whole(data={f"{number}{'x' * 1000}": 1 for number in range(5000)})
    assert not read.is_valid()
    assert len(str(read.errors)) < 10_000


@pytest.fixture
def root(team):
    return factories.make_user(team, "admin", is_superuser=True)


def each_address(team) -> list[str]:
    rows = one_of_each(team)
    node = rows["instances"].node
    rows["nodes"] = node
    return [fill(route, getattr(rows.get(kind_of(route, rows) or ""), "pk", "")) for route in ROUTES]


@pytest.mark.django_db
def test_every_write_refuses_a_field_that_it_does_not_read(api, root, team):
    client = api(root)
    refused = 0
    for address in each_address(team):
        for method in WRITES:
            response = getattr(client, method)(address, {"unheard_of": 1})
            if response.status_code == 405:
                continue
            error = assert_error_shape(response, 400)
            assert "unheard_of" in error["message"], (method, address, error)
            refused += 1
    assert refused >= 29


@pytest.mark.django_db
def test_every_address_refuses_a_query_parameter_that_it_does_not_read(api, root, team):
    client = api(root)
    refused = 0
    for address in each_address(team):
        if address.rpartition("/")[2] in MADE_ELSEWHERE:
            continue
        for method in ("get", *WRITES):
            response = getattr(client, method)(f"{address}?unheard_of=1")
            if response.status_code == 405:
                continue
            error = assert_error_shape(response, 400)
            assert "unheard_of" in error["message"], (method, address, error)
            refused += 1
    assert refused >= 54


@pytest.mark.django_db
def test_strangers_are_not_told_the_names(api):
    assert api(None).post("/api/v1/keys?x=1", {"rpm": 1}).status_code == 401


def test_every_view_declares_what_it_reads_as_its_schema_says():
    """The body that the OpenAPI file shows is the one that the view reads, and it refuses what it does not know."""
    for route, callback in addresses():
        view_class = getattr(callback, "cls", None)
        if route in MADE_ELSEWHERE or route.startswith("playground/"):
            continue
        assert issubclass(view_class, DeclaredView), route
        assert all(issubclass(read, Input) for read in [*view_class.inputs.values(), *view_class.queries.values()])
    generator = SchemaGenerator()
    generator._initialise_endpoints()
    checked = 0
    for path, _, method, view in generator._get_paths_and_endpoints():
        if method in ("POST", "PUT", "PATCH"):
            view.schema.method = method
            action = getattr(view, "action", None) or method.lower()
            assert view.schema.get_request_serializer() is view.inputs.get(action), (path, method)
            checked += 1
    assert checked >= 20


KEY = {"name": "shop"}


@pytest.mark.django_db
def test_misspelt_limit_makes_no_unlimited_key(api, member):
    error = assert_error_shape(api(member).post("/api/v1/keys", {**KEY, "rpm": 60}), 400)
    assert error["fields"]["rpm"] == ["Unknown field. Did you mean requests_per_minute?"]
    assert error["message"].startswith("rpm: ")
    assert not ApiKey.objects.exists()


@pytest.mark.django_db
def test_patch_of_a_field_that_can_not_be_changed_changes_nothing(api, member, team):
    deployment = factories.make_deployment(team)
    body = {"name": "other", "description": "new"}
    error = assert_error_shape(api(member).patch(f"/api/v1/deployments/{deployment.pk}", body), 400)
    assert list(error["fields"]) == ["name"]
    deployment.refresh_from_db()
    assert deployment.description == ""


@pytest.mark.django_db
def test_body_of_an_action_that_takes_none(api, member, team):
    job = factories.make_job(team)
    client = api(member)
    error = assert_error_shape(client.post(f"/api/v1/jobs/{job.pk}/cancel", {"force": True}), 400)
    assert "none is taken here" in error["fields"]["force"][0]
    assert Job.objects.get().state == job.state
    for nothing in ({}, None):
        assert client.post(f"/api/v1/jobs/{job.pk}/cancel", nothing).status_code in (200, 409)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "wrong", "meant_name"),
    [
        ("usage", "sinse", "since"),
        ("jobs", "stat", "state"),
        ("models", "pagesize", "page_size"),
        ("events", "aftr", "after"),
    ],
)
def test_misspelt_query_parameter_names_the_one_meant(api, viewer, address, wrong, meant_name):
    error = assert_error_shape(api(viewer).get(f"/api/v1/{address}?{wrong}=1"), 400)
    assert error["fields"] == {wrong: [f"Unknown parameter. Did you mean {meant_name}?"]}


@pytest.mark.django_db
def test_parameters_of_lists_are_still_taken(api, admin):
    client = api(admin)
    for query in (
        "jobs?state=running&kind=x&page=1&page_size=5",
        "models?name=a&task=b",
        "audit?actor=x",
        "nodes?page=1",
    ):
        assert client.get(f"/api/v1/{query}").status_code == 200, query


@pytest.mark.django_db
@pytest.mark.parametrize("given", ["-1", "0", "501", "1e3", "", "\u0665", "9" * 400])
def test_a_page_size_that_cannot_be_served_is_refused_by_name(api, root, given):
    error = assert_error_shape(api(root).get("/api/v1/models", {"page_size": given}), 400)
    assert "from 1 to 500" in error["fields"]["page_size"][0]
