"""Terms found in a user's own text, looked at, and made into a version: by the console alone."""

import re

import pytest
from playwright.sync_api import expect

from tests import tiny_models
from tests.browser.test_pages import AXE, problems, settle
from tests.running import until

JOB_MS = 180_000  # two children, beside a model that runs
LINES = [
    "EBITDA, collateralized debt obligation, quantitative easing.",
    "Of the EBITDA, the collateralized debt obligation took half; quantitative easing went on.",
    "这只股票的市盈率很高，而市净率很低。",
]


@pytest.fixture
def model(platform, tmp_path):
    """Id of a model of some kilobytes: what a page shows does not depend on its size."""
    path = tiny_models.write_gguf(tmp_path / "tiny-llama.gguf")
    made = platform.api("POST", "models/import", json={"source": "path", "ref": str(path)}).json()
    until(lambda: platform.api("GET", f"jobs/{made['id']}").json()["state"] == "succeeded", 120, "the tiny model")
    model = platform.api("GET", f"versions/{made['subject_id']}").json()["model"]
    yield model
    assert platform.api("DELETE", f"models/{model}").status_code == 204


def test_terms_of_a_users_text_become_a_version(new_page, platform, model, shots, tmp_path):
    page = new_page()
    page.set_default_timeout(JOB_MS)  # two cores that also run two children
    text = tmp_path / "reports.txt"
    text.write_text("\n".join(LINES * 20), encoding="utf-8")
    page.goto(f"/models/{model}")
    page.get_by_role("button", name="Add domain tokens").click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_role("button", name="Count first").click()
    expect(drawer.get_by_text("Give terms, or choose a text")).to_be_visible()

    terms = tmp_path / "terms.csv"
    terms.write_text("市盈率,P/E\nquantitative easing,QE\n市盈率,again\n", encoding="utf-8")
    drawer.locator("input[type=file]").first.set_input_files(terms)
    expect(drawer.get_by_label("Terms", exact=True)).to_have_value(re.compile("^市盈率\nquantitative easing\n市盈率"))
    drawer.locator("input[type=file]").last.set_input_files(text)
    expect(drawer.get_by_text(re.compile(r"reports\.txt · .* · 60 lines"))).to_be_visible()
    drawer.get_by_label("Look for so many terms in it").fill("6")
    page.screenshot(path=shots / "domain-tokens-form.png", full_page=True)
    drawer.get_by_role("button", name="Count first").click()

    report = page.get_by_test_id("domain-tokens")
    expect(report).to_be_visible(timeout=JOB_MS)
    expect(report).to_contain_text("no version was made")
    expect(report).to_contain_text(re.compile(r"\d % less"))
    expect(report).to_contain_text("1 term was left out")
    row = report.locator("tr[data-row-key='quantitative easing']")
    expect(row).to_contain_text("40")  # occurrences
    settle(page)
    page.screenshot(path=shots / "domain-tokens-preview.png", full_page=True)
    assert problems(page, AXE.read_text()) == []

    report.get_by_role("checkbox", name="EBITDA", exact=True).uncheck()
    report.get_by_role("button", name=re.compile(r"Make a version with these \d+ terms")).click()
    expect(page.get_by_text("Only counted")).to_have_count(0)
    expect(report).to_be_visible(timeout=JOB_MS)
    expect(report.locator("tr[data-row-key='quantitative easing']")).to_be_visible()
    expect(report.locator("tr[data-row-key='EBITDA']")).to_have_count(0)
    made = platform.api("GET", f"models/{model}").json()["versions"][0]
    assert (made["number"], made["state"], made["format"]) == (2, "ready", "safetensors")

    for locale, theme in (("en-US", "light"), ("zh-CN", "dark")):
        other = new_page(locale=locale, color_scheme=theme)
        other.goto(page.url)
        settle(other)
        expect(other.get_by_test_id("domain-tokens")).to_be_visible()
        other.screenshot(path=shots / f"domain-tokens-{locale[:2]}-{theme}.png", full_page=True)
        assert problems(other, AXE.read_text()) == []
        assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(f"/models/{model}?tab=lineage")
    expect(page.get_by_text("domain tokens added to")).to_be_visible()
    page.screenshot(path=shots / "domain-tokens-lineage.png", full_page=True)
