"""What every REST resource must do, once. A new resource's tests subclass the bases that apply:

    class TestModels(ListBase, GetBase, PatchBase, DeleteBase):
        url = "/api/v1/models"
        make = staticmethod(factories.make_model)      # make(team) → a saved row of that team
        patch_body = {"description": "new"}
        list_queries = 6                               # at most, whatever the number of rows

Override `needs_*` with "viewer", "member" or "admin" where a role other than the usual is needed, `detail_url(row)`
where it is not `<url>/<id>`, and `key(row)` where results are not known by their id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tests import factories

ROLES = ["viewer", "member", "admin"]


class ApiBase:
    url: str
    make: Callable[..., Any]

    def detail_url(self, row: Any) -> str:
        return f"{self.url}/{row.pk}"

    def key(self, row: Any) -> str:
        return str(row.pk)

    def _expect_role(self, api, team, needed: str, expected: int, send: Callable[[Any], Any]) -> None:
        """`send(client)` answers 403 below the role `needed`, and `expected` from it on."""
        for role in ROLES:
            client = api(factories.make_user(team, role))
            response = send(client)
            allowed = ROLES.index(role) >= ROLES.index(needed)
            assert response.status_code == (expected if allowed else 403), (role, response.content)


def assert_error_shape(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    error = response.json()["error"]
    assert set(error) >= {"code", "message", "hint", "fields"}
    assert error["message"]
    return error


@pytest.mark.django_db
class ListBase(ApiBase):
    list_queries = 10
    needs_list = "viewer"

    def _list(self, client: Any) -> list[dict[str, Any]]:
        response = client.get(self.url)
        assert response.status_code == 200, response.content
        body = response.json()
        assert set(body) == {"count", "next", "previous", "results"}
        return body["results"]

    def test_list_needs_sign_in(self, api):
        assert_error_shape(api(None).get(self.url), 401)

    def test_list_per_role(self, api, team):
        self._expect_role(api, team, self.needs_list, 200, lambda client: client.get(self.url))

    def test_list_shows_own_team_only(self, api, team, other_team):
        mine, theirs = self.make(team), self.make(other_team)
        ids = {result["id"] for result in self._list(api(factories.make_user(team, "admin")))}
        assert self.key(mine) in ids
        assert self.key(theirs) not in ids

    def test_list_query_count_is_constant(self, api, team):
        client = api(factories.make_user(team, "admin"))
        self.make(team)
        with CaptureQueriesContext(connection) as few:
            self._list(client)
        for _ in range(4):
            self.make(team)
        with CaptureQueriesContext(connection) as many:
            assert len(self._list(client)) >= 5
        assert len(many) <= len(few), "one query more per row:\n" + "\n".join(q["sql"] for q in many)
        assert len(many) <= self.list_queries, "\n".join(q["sql"] for q in many)


@pytest.mark.django_db
class GetBase(ApiBase):
    needs_get = "viewer"

    def test_get(self, api, team):
        row = self.make(team)
        response = api(factories.make_user(team, "admin")).get(self.detail_url(row))
        assert response.status_code == 200, response.content
        assert response.json()["id"] == self.key(row)

    def test_get_per_role(self, api, team):
        row = self.make(team)
        self._expect_role(api, team, self.needs_get, 200, lambda client: client.get(self.detail_url(row)))

    def test_get_of_other_team_is_not_found(self, api, outsider, team):
        assert_error_shape(api(outsider).get(self.detail_url(self.make(team))), 404)


@pytest.mark.django_db
class CreateBase(ApiBase):
    needs_create = "member"
    create_status = 201

    def create_body(self, team: Any) -> dict[str, Any]:
        """A valid body; called once per request, so that names can differ."""
        raise NotImplementedError

    def test_create(self, api, team):
        response = api(factories.make_user(team, "admin")).post(self.url, self.create_body(team))
        assert response.status_code == self.create_status, response.content
        assert response.json()["id"]

    def test_create_per_role(self, api, team):
        self._expect_role(
            api,
            team,
            self.needs_create,
            self.create_status,
            lambda client: client.post(self.url, self.create_body(team)),
        )

    def test_create_empty_body_names_a_field(self, api, team):
        error = assert_error_shape(api(factories.make_user(team, "admin")).post(self.url, {}), 400)
        assert error["fields"]

    def test_create_needs_csrf_token(self, team):
        client = APIClient(enforce_csrf_checks=True)
        client.force_login(factories.make_user(team, "admin"))
        assert_error_shape(client.post(self.url, self.create_body(team)), 403)


@pytest.mark.django_db
class PatchBase(ApiBase):
    needs_patch = "member"
    patch_body: dict[str, Any]

    def test_patch(self, api, team):
        row = self.make(team)
        response = api(factories.make_user(team, "admin")).patch(self.detail_url(row), self.patch_body)
        assert response.status_code == 200, response.content
        answer = response.json()
        assert {name: answer[name] for name in self.patch_body} == self.patch_body

    def test_patch_per_role(self, api, team):
        row = self.make(team)
        self._expect_role(
            api,
            team,
            self.needs_patch,
            200,
            lambda client: client.patch(self.detail_url(row), self.patch_body),
        )

    def test_patch_of_other_team_is_not_found(self, api, outsider, team):
        row = self.make(team)
        assert_error_shape(api(outsider).patch(self.detail_url(row), self.patch_body), 404)


@pytest.mark.django_db
class DeleteBase(ApiBase):
    needs_delete = "member"

    def test_delete_per_role(self, api, team):
        self._expect_role(
            api, team, self.needs_delete, 204, lambda client: client.delete(self.detail_url(self.make(team)))
        )

    def test_delete_of_other_team_is_not_found(self, api, outsider, team):
        row = self.make(team)
        assert_error_shape(api(outsider).delete(self.detail_url(row)), 404)
        assert type(row).objects.filter(pk=row.pk).exists()
