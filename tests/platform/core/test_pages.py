"""Pages of the web process beside the console's: the API's docs and the operators' back office."""

import re

import pytest

from tests import factories

pytestmark = pytest.mark.django_db


def test_docs_page_runs_under_the_content_security_policy(client):
    response = client.get("/api/v1/docs")
    assert response.status_code == 200
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", response.content.decode(), re.DOTALL)
    assert scripts
    for attributes, body in scripts:
        assert "src=" in attributes
        assert not body.strip()
        source = re.search(r'src="([^"]+)"', attributes)
        assert source is not None
        assert client.get(source[1].replace("&amp;", "&")).status_code == 200, source[1]


def test_back_office_has_no_sign_in_of_its_own(client):
    for path in ("/admin/", "/admin/login/"):
        response = client.get(path, follow=True)
        assert [url for url, _ in response.redirect_chain][-1] == "/"
    assert client.post("/admin/login/", {"username": "x", "password": "y"}).status_code == 302


def test_back_office_opens_for_admins_alone(client):
    client.force_login(factories.make_user(is_superuser=True, is_staff=True))
    for page in ("", "accounts/user/", "accounts/team/add/", "registry/version/", "jobs/job/"):
        assert client.get(f"/admin/{page}").status_code == 200, page
    assert client.get("/admin/jobs/job/add/").status_code == 403
    client.force_login(factories.make_user(factories.make_team(), "admin"))
    assert client.get("/admin/").status_code == 302
