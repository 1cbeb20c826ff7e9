"""How the built console is served. The files are made here; that the real build works is test_webui's matter."""

import gzip

import pytest
from django.test import Client
from tursiops.console import views

INDEX = b"<!doctype html><title>Tursiops</title>"
SCRIPT = b"console.info(1)"


@pytest.fixture
def dist(tmp_path, monkeypatch):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(INDEX)
    (tmp_path / "favicon.svg").write_text("<svg/>")
    (tmp_path / "assets" / "index-abc123.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-abc123.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path.parent / "secret.txt").write_text("secret")
    monkeypatch.setattr(views, "DIST", tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", ["/", "/models", "/deployments/0197-aa/edit", "/playground?model=smollm2.5"])
def test_every_page_is_the_index_with_csrf_cookie_and_never_stored(client, dist, path):
    response = client.get(path)
    assert response.status_code == 200
    assert response.content == INDEX
    assert response.headers["Cache-Control"] == "no-store"
    assert response.cookies["csrftoken"].value


def test_policy_lets_no_inline_script_run(client, dist):
    directives = dict(
        part.strip().split(" ", 1) for part in client.get("/").headers["Content-Security-Policy"].split(";")
    )
    assert directives["script-src"] == "'self'"
    assert directives["object-src"] == "'none'"
    assert directives["frame-ancestors"] == "'none'"


def test_hashed_files_are_kept_for_ever_and_sent_packed_to_who_takes_it(client, dist):
    plain = client.get("/assets/index-abc123.js")
    assert plain.content == SCRIPT
    assert plain.headers["Content-Type"].split(";")[0] in ("text/javascript", "application/javascript")
    assert plain.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    packed = client.get("/assets/index-abc123.js", headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == SCRIPT
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert "Accept-Encoding" in plain.headers["Vary"]


@pytest.mark.parametrize("path", ["/favicon.svg", "/favicon.ico"])
def test_icon_is_there_under_both_names(client, dist, path):
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/gone-000000.js",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/secret.txt",
        "/assets/.hidden",
        "/assets/..",
        "/missing.png",
    ],
)
def test_what_is_not_there_is_404_and_never_the_page(client, dist, path):
    response = client.get(path)
    assert response.status_code == 404
    assert b"secret" not in response.content
    assert INDEX not in response.content


@pytest.mark.parametrize("path", ["/api/v1/nothing-here", "/api", "/v1/models", "/ws/live"])
def test_programs_get_json_for_an_unknown_address(client, dist, path):
    response = client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
    assert path in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/tokenize", 405, "method_not_allowed"), ("/models", 405, "method_not_allowed"), ("/api/v1/x", 404, "not_found")],
)
def test_what_is_sent_to_a_wrong_address_is_refused_in_json_and_not_for_a_cookie(dist, path, status, code):
    response = Client(enforce_csrf_checks=True).post(path, {"prompt": "hi"}, content_type="application/json")
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert path in response.json()["error"]["message"]


def test_console_that_was_not_built_says_how_to_build_it(client, tmp_path, monkeypatch):
    monkeypatch.setattr(views, "DIST", tmp_path / "nothing")
    response = client.get("/deployments")
    assert response.status_code == 503
    assert "npm run build" in response.text
    assert response.headers["Cache-Control"] == "no-store"
