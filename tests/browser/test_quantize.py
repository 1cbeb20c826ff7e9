"""Schemes chosen and planned, one made, compared with its base and taken to a deployment: by the console alone."""

import re

import pytest
from playwright.sync_api import expect

from tests import tiny_models
from tests.browser.test_pages import AXE, problems, settle
from tests.running import until

JOB_MS = 240_000  # children that measure, beside a model that runs


@pytest.fixture
def version(platform, tmp_path):
    """A version of some kilobytes: what a page shows does not depend on its size."""
    path = tiny_models.write_gguf(tmp_path / "tiny-smaller.gguf", seed=7)
    made = platform.api("POST", "models/import", json={"source": "path", "ref": str(path)}).json()
    until(lambda: platform.api("GET", f"jobs/{made['id']}").json()["state"] == "succeeded", 120, "the tiny model")
    version = platform.api("GET", f"versions/{made['subject_id']}").json()
    yield version
    assert platform.api("DELETE", f"models/{version['model']}").status_code == 204


def test_schemes_are_chosen_planned_made_and_compared(new_page, platform, version, shots):
    page = new_page()
    page.set_default_timeout(JOB_MS)  # two cores that also run two children
    page.goto(f"/models/{version['model']}")
    page.get_by_role("button", name="compress Quantize").click()  # the icon is a part of its name
    settle(page)
    plan = page.get_by_test_id("quantize-plan")
    expect(plan).to_contain_text("Choose a version and a scheme")
    page.get_by_role("checkbox", name="INT8 W8A16").check()
    page.get_by_role("checkbox", name="FP8 W8A8, dynamic").check()
    expect(plan.get_by_text("Size of the files")).to_have_count(2)
    expect(plan.locator("[data-support=slow]")).to_have_count(1)  # a CPU has no FP8 products
    expect(page.get_by_text("No scheme that you chose needs data.")).to_be_visible()
    page.get_by_label("Tensor parallel").fill("3")
    expect(plan.get_by_text("Proposal:").first).to_be_visible()
    expect(page.get_by_role("button", name="Quantize: 2 jobs")).to_be_disabled()
    page.get_by_label("Tensor parallel").fill("1")
    expect(page.get_by_role("button", name="Quantize: 2 jobs")).to_be_enabled()
    submit = page.get_by_role("button", name="Quantize: 2 jobs")
    page.set_viewport_size({"width": 1360, "height": 500})
    page.evaluate("window.scrollTo(0, 400)")
    assert submit.evaluate("(button) => button.getBoundingClientRect().bottom <= innerHeight"), "a long plan scrolls"
    page.set_viewport_size({"width": 1360, "height": 860})
    page.screenshot(path=shots / "quantize-form.png", full_page=True)
    assert problems(page, AXE.read_text()) == []
    page.get_by_role("checkbox", name="FP8 W8A8, dynamic").uncheck()  # one job is enough for what follows
    page.get_by_role("button", name="Quantize", exact=True).click()

    expect(page.get_by_role("heading", name=re.compile("^Quantizations of "), level=1)).to_be_visible()
    expect(page.get_by_test_id("quantize-job").first).to_be_visible()
    page.screenshot(path=shots / "quantize-running.png", full_page=True)
    table = page.get_by_test_id("quantize-table")
    ended = table.locator("[data-outcome=passed], [data-outcome=failed]")
    expect(ended).to_have_count(1, timeout=JOB_MS)
    expect(table).to_contain_text(re.compile(r"[−+]\d\S* %|\d ×"))
    expect(table).to_contain_text("base, measured in float32 on CPU")
    expect(table).to_contain_text("no fall-backs")
    deploy = table.get_by_role("link", name=re.compile("^Deploy this")).first
    inside = deploy.evaluate("(link) => link.getBoundingClientRect().right <= innerWidth")
    assert inside, "what the table is for is to be seen without scrolling in it"
    table.get_by_role("button", name=re.compile("^Layers of ")).first.click()
    report = page.get_by_test_id("quantize-layers")
    expect(report.locator("tbody tr.ant-table-row").first).to_be_visible()
    report.get_by_role("checkbox", name="Keep layers.0.down in 16 bits").check()
    expect(report.get_by_role("button", name="Keep this layer in 16 bits and run again")).to_be_enabled()
    settle(page)
    page.screenshot(path=shots / "quantize-table.png", full_page=True)

    for locale, theme in (("en-US", "light"), ("zh-CN", "dark")):
        other = new_page(locale=locale, color_scheme=theme)
        other.goto(page.url)
        settle(other)
        expect(other.get_by_test_id("quantize-layers")).to_be_visible()
        other.screenshot(path=shots / f"quantize-{locale[:2]}-{theme}.png", full_page=True)
        assert problems(other, AXE.read_text()) == []
        assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")

    deploy.click()
    expect(page.get_by_role("heading", name="New deployment")).to_be_visible()
    expect(page.get_by_test_id("estimate")).to_be_visible()
