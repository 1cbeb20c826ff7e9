"""The page in a real Chromium, from file://: its policy blocks nothing of its own, languages and themes switch."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from evaluation.report.html.page import report
from tests.browser.conftest import ARGUMENTS
from tests.evaluation.report.sample import search_result


@pytest.mark.browser
@pytest.mark.slow
def test_the_report_opens_from_a_file(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("browser tests need Chromium: apt-get install chromium")
    path = tmp_path / "report.html"
    path.write_text(report(search_result(n=80)[0]), "utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        context = browser.new_context(java_script_enabled=False, color_scheme="light")
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        english, chinese = (page.get_by_role("heading", name=name, exact=True) for name in ("Levels", "级别"))
        assert english.is_visible()
        assert not chinese.is_visible()
        page.locator(".for-lang-zh").click()
        assert chinese.is_visible()
        assert not english.is_visible()
        light = page.screenshot()
        page.locator(".for-theme-dark").click()
        assert page.screenshot() != light
        readout = page.locator(".hot").first.locator(".readout")
        page.locator(".hot .column").first.hover()
        assert readout.evaluate("node => getComputedStyle(node).opacity") == "1"
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert asked == [path.as_uri()]
        assert said == []
        browser.close()
