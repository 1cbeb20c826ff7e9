"""API keys over REST, as a way in, and in the audit list."""

import hashlib
from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient
from tursiops.accounts.models import ApiKey, AuditEntry
from tursiops.core.models import Event

from tests import factories
from tests.platform.api_bases import CreateBase, DeleteBase, ListBase, assert_error_shape

URL = "/api/v1/keys"


class TestKeys(ListBase, CreateBase, DeleteBase):
    url = URL
    make = staticmethod(factories.make_api_key)
    list_queries = 7
    needs_delete = "admin"  # of keys that others made; one's own: below

    def create_body(self, team):
        return {"name": factories.unique("app")}

    def test_delete_per_role(self, api, team):
        for role, expected in (("viewer", 403), ("member", 404), ("admin", 204)):
            client = api(factories.make_user(team, role))
            assert client.delete(self.detail_url(self.make(team))).status_code == expected


@pytest.mark.django_db
def test_secret_is_shown_once_and_only_its_hash_is_kept(api, member):
    client = api(member)
    body = client.post(URL, {"name": "app", "requests_per_minute": 60, "allowed_models": ["smollm2"]}).json()
    secret = body["secret"]
    assert secret.startswith("ts-")
    assert len(secret) == 46
    key = ApiKey.objects.get(pk=body["id"])
    assert key.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert (key.prefix, key.requests_per_minute, key.allowed_models) == (secret[:9], 60, ["smollm2"])
    assert secret not in client.get(URL).content.decode()
    assert secret not in str(list(Event.objects.values())) + str(list(AuditEntry.objects.values()))
    assert Event.objects.get().kind == "key.created"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value"),
    [("requests_per_minute", 0), ("tokens_per_minute", -1), ("max_parallel", "many"), ("name", ""), ("name", "x" * 101),
     ("expires_at", "2020-01-01T00:00:00Z"), ("allowed_models", "smollm2")],
)  # fmt: skip
def test_bad_input_names_the_field(api, member, field, value):
    error = assert_error_shape(api(member).post(URL, {"name": "app", field: value}), 400)
    assert field in error["fields"]
    assert not ApiKey.objects.exists()


@pytest.mark.django_db
def test_members_see_and_revoke_their_own_keys_admins_all(api, team, member, admin):
    mine, theirs = factories.make_api_key(team, created_by=member), factories.make_api_key(team)
    assert [row["id"] for row in api(member).get(URL).json()["results"]] == [str(mine.pk)]
    assert {row["id"] for row in api(admin).get(URL).json()["results"]} == {str(mine.pk), str(theirs.pk)}
    assert api(member).delete(f"{URL}/{mine.pk}").status_code == 204
    assert_error_shape(api(member).delete(f"{URL}/{mine.pk}"), 409)
    mine.refresh_from_db()
    assert mine.revoked_at is not None


def get(secret: str, path: str = "/api/v1/jobs"):
    return APIClient().get(path, HTTP_AUTHORIZATION=f"Bearer {secret}")


@pytest.mark.django_db
def test_key_opens_the_api_in_its_team_with_the_rights_of_its_maker(team, other_team, viewer):
    key = factories.make_api_key(team, created_by=viewer)
    mine, theirs = factories.make_job(team), factories.make_job(other_team)
    assert [row["id"] for row in get(key.secret).json()["results"]] == [str(mine.pk)]
    assert get(key.secret, f"/api/v1/jobs/{theirs.pk}").status_code == 404
    post = APIClient().post(f"/api/v1/jobs/{mine.pk}/cancel", HTTP_AUTHORIZATION=f"Bearer {key.secret}")
    assert post.status_code == 403
    key.refresh_from_db()
    assert key.last_used_at is not None


@pytest.mark.django_db
@pytest.mark.parametrize(
    "limit", [{"allowed_models": ["m"]}, {"requests_per_minute": 1}, {"tokens_per_minute": 1}, {"max_parallel": 1}]
)
def test_key_with_a_limit_opens_v1_alone_and_cannot_make_one_without(team, admin, limit):
    key = factories.make_api_key(team, created_by=admin, **limit)
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key.secret}")
    assert_error_shape(client.get("/api/v1/audit"), 403)
    refused = client.post(URL, {"name": "escalated"})
    assert_error_shape(refused, 403)
    assert "opens /v1 only" in refused.json()["error"]["message"]
    assert ApiKey.objects.count() == 1


@pytest.mark.django_db
def test_body_over_the_limit_is_413_in_our_shape(team, admin):
    key = factories.make_api_key(team, created_by=admin)
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key.secret}")
    assert_error_shape(client.post(URL, {"name": "x" * 3_000_000}, format="json"), 413)


@pytest.mark.django_db
@pytest.mark.parametrize("change", [
    {"revoked_at": timezone.now()}, {"expires_at": timezone.now() - timedelta(seconds=1)}, {"created_by": None},
])  # fmt: skip
def test_dead_key_is_refused(team, change):
    key = factories.make_api_key(team)
    ApiKey.objects.filter(pk=key.pk).update(**change)
    assert_error_shape(get(key.secret), 401)


@pytest.mark.django_db
@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer ts-\xff", "Bearer a b", "Bearer tsi.a.b"])
def test_malformed_header_is_401(header):
    assert APIClient().get("/api/v1/jobs", HTTP_AUTHORIZATION=header).status_code == 401


@pytest.mark.django_db
def test_key_of_a_person_who_left_the_team_opens_nothing(team, member):
    key = factories.make_api_key(team, created_by=member)
    member.memberships.all().delete()
    assert_error_shape(get(key.secret), 403)


class TestAudit(ListBase):
    url = "/api/v1/audit"
    needs_list = "admin"
    list_queries = 6

    @staticmethod
    def make(team):
        return AuditEntry.objects.create(
            team=team, actor="alice", action="key.revoked", subject_type="key", subject_id=team.pk, address="10.0.0.1"
        )
