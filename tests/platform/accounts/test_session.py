"""Signing in and out, the attempts that are counted, password, team and preferences."""

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient
from tursiops.accounts import throttle
from tursiops.accounts.models import Membership, Role

from tests import factories
from tests.platform.api_bases import assert_error_shape

SESSION = "/api/v1/auth/session"
LOGIN = "/api/v1/auth/login"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_attempts():
    cache.clear()


def login(username: str, password: str = factories.PASSWORD, **extra):
    client = APIClient()
    return client, client.post(LOGIN, {"username": username, "password": password}, **extra)


def test_signed_out_session_is_401_and_sets_the_csrf_cookie():
    response = APIClient().get(SESSION)
    assert_error_shape(response, 401)
    assert "csrftoken" in response.cookies


def test_login_gives_the_session(member, team):
    client, response = login(member.username)
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["user"] == {
        "id": str(member.pk), "username": member.username, "email": "", "is_admin": False, "language": "",
        "theme": "system",
    }  # fmt: skip
    assert body["team"] == {"id": str(team.pk), "name": team.name, "role": "member"}
    assert body["teams"] == [body["team"]]
    assert body["version"]
    assert client.get(SESSION).json() == body


def test_login_needs_the_csrf_token(member):
    client = APIClient(enforce_csrf_checks=True)
    data = {"username": member.username, "password": factories.PASSWORD}
    assert assert_error_shape(client.post(LOGIN, data), 403)["code"] == "csrf"
    token = client.get(SESSION).cookies["csrftoken"].value
    assert client.post(LOGIN, data, HTTP_X_CSRFTOKEN=token).status_code == 200


def test_wrong_password_and_unknown_user_read_the_same(member):
    wrong = assert_error_shape(login(member.username, "wrong")[1], 400)
    unknown = assert_error_shape(login("nobody", "wrong")[1], 400)
    assert wrong == unknown
    assert wrong["code"] == "wrong_credentials"


def test_sixth_attempt_is_refused_even_with_the_right_password(member):
    for _ in range(throttle.ATTEMPTS):
        assert_error_shape(login(member.username, "wrong")[1], 400)
    response = login(member.username)[1]
    assert assert_error_shape(response, 429)["code"] == "too_many_attempts"
    assert 0 < int(response.headers["Retry-After"]) <= throttle.WINDOW_S


def test_attempts_are_counted_per_user_and_address(member, admin):
    for _ in range(throttle.ATTEMPTS):
        login(member.username, "wrong")
    assert login(admin.username)[1].status_code == 200
    assert login(member.username, REMOTE_ADDR="10.1.2.3")[1].status_code == 200
    assert login(member.username.upper(), "x")[1].status_code == 429, "capitals are no way round"


def test_address_behind_the_gateway_is_the_one_it_reports(member):
    """uvicorn on a unix socket has no peer address; the last entry of the header is the gateway's own."""
    for _ in range(throttle.ATTEMPTS):
        login(member.username, "wrong", REMOTE_ADDR="", HTTP_X_FORWARDED_FOR="6.6.6.6, 10.0.0.1")
    spoofed = login(member.username, "wrong", REMOTE_ADDR="", HTTP_X_FORWARDED_FOR="7.7.7.7, 10.0.0.1")[1]
    assert spoofed.status_code == 429
    assert login(member.username, REMOTE_ADDR="", HTTP_X_FORWARDED_FOR="10.0.0.2")[1].status_code == 200


def test_success_forgets_the_failures(member):
    for _ in range(2):
        for _ in range(throttle.ATTEMPTS - 1):
            login(member.username, "wrong")
        assert login(member.username)[1].status_code == 200


def test_login_works_while_the_broker_is_away(member, settings):
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "unix:///tmp/there-is-no-such-broker.sock",
        }
    }
    assert login(member.username)[1].status_code == 200
    assert_error_shape(login(member.username, "wrong")[1], 400)


@pytest.mark.parametrize(
    "body", [{}, {"username": "a"}, {"username": ["a"], "password": "b"}, [], {"username": "a\x00", "password": "b"}]
)
def test_malformed_login_names_the_field(body):
    assert_error_shape(APIClient().post(LOGIN, body), 400)


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"username": ' * 50_000, "NaN", "9" * 5000, b"\xff", ""])
def test_json_that_can_not_be_read_is_400(raw):
    assert_error_shape(APIClient().generic("POST", LOGIN, raw, content_type="application/json"), 400)


def test_inactive_user_can_not_sign_in(team):
    user = factories.make_user(team, is_active=False)
    assert_error_shape(login(user.username)[1], 400)


def test_logout_ends_the_session(api, member):
    client = api(member)
    assert client.post("/api/v1/auth/logout").status_code == 204
    assert client.get(SESSION).status_code == 401


def test_password_change_ends_other_sessions_only(member):
    here, _ = login(member.username)
    there, _ = login(member.username)
    new = "a long enough phrase 7"
    response = here.post("/api/v1/auth/password", {"current": factories.PASSWORD, "new": new})
    assert response.status_code == 204, response.content
    assert here.get(SESSION).status_code == 200
    assert there.get(SESSION).status_code == 401
    assert login(member.username, new)[1].status_code == 200


@pytest.mark.parametrize(
    ("current", "new", "field"),
    [
        ("wrong", "a long enough phrase 7", "current"),
        (factories.PASSWORD, "short", "new"),
        (factories.PASSWORD, "password1234", "new"),
    ],
)
def test_password_change_names_what_is_wrong(api, member, current, new, field):
    error = assert_error_shape(api(member).post("/api/v1/auth/password", {"current": current, "new": new}), 400)
    assert list(error["fields"]) == [field]


def test_api_key_can_not_change_the_password(team):
    key = factories.make_api_key(team)
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key.secret}")
    response = client.post("/api/v1/auth/password", {"current": factories.PASSWORD, "new": "a long enough phrase 7"})
    assert_error_shape(response, 400)


def test_team_of_the_session_decides_which_rows_are_seen(api, member, team, other_team):
    Membership.objects.create(team=other_team, user=member, role=Role.VIEWER)
    job = factories.make_job(other_team)
    client = api(member)
    assert client.get(f"/api/v1/jobs/{job.pk}").status_code == 404
    body = client.post("/api/v1/auth/team", {"team": str(other_team.pk)}).json()
    assert body["team"] == {"id": str(other_team.pk), "name": other_team.name, "role": "viewer"}
    assert client.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    assert client.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 403


def test_team_that_one_is_not_in_is_not_found(api, member, other_team):
    assert_error_shape(api(member).post("/api/v1/auth/team", {"team": str(other_team.pk)}), 404)


def test_preferences(api, member):
    client = api(member)
    user = client.patch(SESSION, {"language": "zh-hans"}).json()["user"]
    assert (user["language"], user["theme"]) == ("zh-hans", "system")
    user = client.patch(SESSION, {"theme": "dark", "language": ""}).json()["user"]
    assert (user["language"], user["theme"]) == ("", "dark")
    assert "theme" in assert_error_shape(client.patch(SESSION, {"theme": "pink"}), 400)["fields"]
    assert_error_shape(APIClient().patch(SESSION, {"theme": "dark"}), 401)


def test_person_without_a_team_may_sign_in_and_sees_nothing():
    user = factories.make_user()
    client, response = login(user.username)
    assert response.json()["team"] is None
    assert_error_shape(client.get("/api/v1/jobs"), 403)
