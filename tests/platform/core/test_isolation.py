"""Walks every address of the API: nobody sees another team's rows, strangers see nothing, unknown ids are 404."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.platform.addresses import ROUTES, addresses, fill, kind_of, one_of_each

OPEN = {"auth/session", "auth/login", "auth/logout", "schema", "docs"}  # answer strangers, with nothing of a team's


@pytest.fixture
def theirs(other_team) -> dict[str, Any]:
    return one_of_each(other_team)


def test_the_walk_finds_the_api():
    assert {"models", "jobs", "deployments", "keys", "nodes", "usage", "events", "overview"} <= set(ROUTES)


@pytest.mark.django_db
def test_lists_show_nothing_of_another_team(api, admin, other_team, theirs):
    client = api(admin)
    secrets = [*(str(row.pk) for row in theirs.values()), other_team.name]
    for route in [route for route in ROUTES if "<" not in route]:
        response = client.get(f"/api/v1/{route}")
        assert response.status_code in (200, 400, 405), (route, response.content)
        body = getattr(response, "content", b"").decode()
        assert [secret for secret in secrets if secret in body] == [], route


@pytest.mark.django_db
def test_rows_of_another_team_are_not_found(api, admin, theirs):
    """By every method: never found, never changed. An address of a kind not known here is tried with every id."""
    client = api(admin)
    for route in [route for route in ROUTES if "<" in route and not route.startswith("nodes")]:
        kind = kind_of(route, theirs)
        for row in theirs.values() if kind is None else [theirs[kind]]:
            for method in ("get", "post", "patch", "put", "delete"):
                response = getattr(client, method)(fill(route, row.pk), *([] if method == "get" else [{}]))
                assert response.status_code in (404, 405), (route, method, response.status_code, response.content)


@pytest.mark.django_db
def test_strangers_are_told_to_sign_in(api):
    client = api(None)
    for route in [route for route in ROUTES if route not in OPEN]:
        for method in ("get", "post", "patch", "put", "delete"):
            response = getattr(client, method)(fill(route, uuid.uuid4()))
            assert response.status_code in (401, 405), (route, method, response.content)


@pytest.mark.django_db
def test_view_querysets_go_through_restrict(rf, admin, team, other_team, theirs):
    """Each viewset's get_queryset, asked directly: what a new action would get."""
    secrets = {row.pk for row in theirs.values()}
    checked = 0
    for _, callback in addresses():
        view_class = getattr(callback, "cls", None)
        if view_class is None or not hasattr(view_class, "rows"):
            continue
        view = view_class()
        view.request = rf.get("/")
        view.request.user, view.request.team = admin, team
        view.action, view.kwargs, view.format_kwarg = "list", {}, None
        rows = list(view.get_queryset())
        assert not secrets & {row.pk for row in rows}, view_class
        checked += 1
    assert checked >= 5
