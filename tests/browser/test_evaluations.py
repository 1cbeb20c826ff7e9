"""A load test from the drawer to its cancellation, and the schedule of its suite: by the console alone."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import MODEL
from tests.browser.test_pages import AXE, problems, settle


def test_a_load_test_is_started_cancelled_and_scheduled(new_page, platform, shots):
    page = new_page()
    page.goto("/evaluations")
    settle(page)
    page.get_by_role("button", name="New run").first.click()
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text("P99 needs at least 299 requests")).to_be_visible()
    drawer.get_by_label("Requests per level").fill("100")
    expect(drawer.get_by_text("P99 cannot be certified with fewer than 299 requests")).to_be_visible()
    drawer.get_by_label("Name of the suite").fill("short search")
    page.screenshot(path=shots / "evaluations-form.png")
    drawer.get_by_role("button", name="Start").click()

    expect(page.get_by_role("heading", name="short search", level=1)).to_be_visible()
    expect(page.get_by_text(MODEL, exact=True)).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("tooltip").get_by_role("button", name="Cancel run").click()
    expect(page.locator(".page-title").get_by_text("Cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Run again")).to_be_enabled()
    assert problems(page, AXE.read_text()) == []
    page.screenshot(path=shots / "evaluations-cancelled.png", full_page=True)

    page.goto("/evaluations/schedules")
    settle(page)
    page.get_by_role("button", name="New schedule").first.click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_label("Name").fill("nightly")
    for label, option in (("Suite", "short search"), ("Deployment", MODEL)):
        drawer.get_by_label(label).click()
        page.locator(".ant-select-item-option", has_text=option).last.click()
    expect(drawer.get_by_test_id("cron-meaning")).to_contain_text("Every day at 02:30")
    expect(drawer.get_by_test_id("cron-meaning").locator("li")).to_have_count(5)
    drawer.get_by_role("button", name="Save").click()
    row = page.locator(".ant-table-row", has_text="nightly")
    expect(row).to_contain_text("Every day at 02:30")
    row.get_by_role("switch").click()
    expect(row).to_contain_text("disabled")
    page.screenshot(path=shots / "evaluations-schedules.png", full_page=True)

    made = platform.api("GET", "evaluations/schedules").json()["results"]
    assert [(one["name"], one["cron"], one["enabled"]) for one in made] == [("nightly", "30 2 * * *", False)]
    assert re.fullmatch(r"\S+", made[0]["timezone"])
    suite = made[0]["suite"]
    for path in (f"evaluations/schedules/{made[0]['id']}", f"evaluations/suites/{suite}"):
        assert platform.api("DELETE", path).status_code == 204
