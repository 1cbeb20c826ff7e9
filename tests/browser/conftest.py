"""A real Chromium in front of a real platform. Screenshots are kept in test-artifacts/browser/.

Everything is of package scope: the synchronous Playwright keeps an event loop in the thread, which must be gone
before the next package's asynchronous tests.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.running import ROOT, Running, until

MODEL = "smollm2"  # the served name of the demo model
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WINDOW = {"width": 1360, "height": 860}
WAIT_MS = 20_000  # the two cores of CI also run the model

expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for mark in (pytest.mark.browser, pytest.mark.slow, pytest.mark.weights, pytest.mark.timeout(600)):
                item.add_marker(mark)


@dataclass
class Platform:
    up: Running
    username: str
    password: str
    key: str

    @property
    def url(self) -> str:
        return self.up.url

    def api(self, method: str, path: str, **options) -> httpx.Response:
        """The REST API with the demo key, for what a test needs but does not test."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.request(method, f"{self.url}/api/v1/{path}", headers=headers, timeout=30, **options)

    def deployment(self, name: str) -> dict | None:
        found = self.api("GET", "deployments").json()["results"]
        return next((one for one in found if one["name"] == name), None)


@pytest.fixture(scope="package")
def platform(tmp_path_factory) -> Iterator[Platform]:
    if not (ROOT / "platform/tursiops/console/dist/index.html").exists():
        pytest.fail("the console is not built: cd webui && npm ci && npm run build")
    with Running(tmp_path_factory.mktemp("browser") / "data", "--cpu") as up:
        up.wait_for("Logs follow", 400)
        username, password = up.wait_for(r"login +(\S+) / (\S+)").groups()
        yield Platform(up, username, password, up.wait_for(r"Bearer (ts-[\w-]{43})").group(1))


@pytest.fixture(scope="package")
def second(platform: Platform) -> str:
    """Name of a second deployment of the demo model, in float32, ready."""
    name = "smollm2-float32"
    if platform.deployment(name) is None:
        revision = platform.deployment(MODEL)["revision"]
        body = {
            "name": name,
            "version": revision["version"],
            "replicas": {"unified": 1},
            "dtype": "float32",
            "max_model_len": 1024,
            "max_num_seqs": 2,
        }
        answer = platform.api("POST", "deployments", json=body)
        assert answer.status_code == 201, answer.text
    until(lambda: platform.deployment(name)["state"] == "ready", 120, f"{name} ready")
    return name


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("browser tests need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def signed_in(browser: Browser, platform: Platform) -> dict:
    """Cookies of a session, so that only the tests of signing in sign in."""
    context = browser.new_context(base_url=platform.url)
    page = context.new_page()
    sign_in(page, platform)
    state = context.storage_state()
    context.close()
    return {**state, "origins": []}  # what the browser keeps of language and theme is not part of it


def sign_in(page: Page, platform: Platform) -> None:
    page.goto("/")
    page.get_by_label("User name").fill(platform.username)
    page.get_by_label("Password", exact=True).fill(platform.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation")).to_be_visible()


NewPage = Callable[..., Page]


@pytest.fixture
def new_page(browser: Browser, platform: Platform, signed_in: dict) -> Iterator[NewPage]:
    """Makes pages: signed in unless `anonymous`. Their scripts' errors fail the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def complain(message: ConsoleMessage) -> None:
        # The browser itself reports each answer of 4xx; those are what some tests are about.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            complaints.append(message.text)

    def make(anonymous: bool = False, **options) -> Page:
        state = None if anonymous else signed_in
        options.setdefault("locale", "en-US")
        options.setdefault("viewport", WINDOW)
        options.setdefault("reduced_motion", "reduce")  # a page that is not painted never ends an animation
        context = browser.new_context(base_url=platform.url, storage_state=state, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    # The person's own wishes would win over the browser's.
    platform.api("PATCH", "auth/session", json={"language": "", "theme": "system"}).raise_for_status()
    yield make
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()


@pytest.fixture(scope="session")
def shots(artifacts: Path) -> Path:
    folder = artifacts / "browser"
    folder.mkdir(exist_ok=True)
    return folder
