"""From a registered model to one that serves, by the console alone; then scaled, and deleted."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import MODEL, WAIT_MS
from tests.running import until

STARTS_MS = 120_000


def test_deploy_with_estimate_scale_and_delete(page, platform, shots):
    page.goto("/models")
    page.get_by_role("row").get_by_role("link").first.click()
    page.get_by_role("button", name="Deploy").click()

    expect(page.get_by_role("heading", name="New deployment")).to_be_visible()
    expect(page.get_by_test_id("estimate")).to_have_attribute("data-fits", "true")
    expect(page.get_by_test_id("estimate")).to_contain_text("Weights")
    name = page.get_by_label("Served name")
    assert name.input_value(), "the name is suggested from the model"
    name.fill("tried-out")
    page.get_by_text("Limits, placement and engine options").click()

    page.get_by_label("Memory for the KV cache").fill("99000000")  # MiB: no machine has this
    expect(page.get_by_test_id("estimate")).to_have_attribute("data-fits", "false")
    expect(page.get_by_text("What would help")).to_be_visible()
    page.screenshot(path=shots / "deploy-does-not-fit.png", full_page=True)

    page.get_by_label("Memory for the KV cache").fill("64")
    page.get_by_label("Longest context").fill("1024")
    expect(page.get_by_test_id("estimate")).to_have_attribute("data-fits", "true")
    page.screenshot(path=shots / "deploy-form.png", full_page=True)
    page.locator("aside").get_by_role("button", name="Deploy").click()

    expect(page.get_by_role("heading", name="tried-out")).to_be_visible()
    head = page.locator(".page-title")
    expect(head).to_contain_text("Ready", timeout=STARTS_MS)
    expect(page.get_by_text(re.compile("int8, dynamic"))).to_be_visible()
    page.screenshot(path=shots / "deployment.png", full_page=True)

    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).not_to_be_empty()
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".events")).to_contain_text("ready")
    page.get_by_role("tab", name="Endpoint").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text(f"{platform.url}/v1/chat/completions")

    page.get_by_role("button", name="Scale", exact=True).click()
    page.get_by_label("Replicas").fill("0")
    expect(page.get_by_text("1 instance will drain and end.")).to_be_visible()
    page.locator(".scale").get_by_role("button", name="Scale").click()
    until(lambda: platform.deployment("tried-out")["instances"] == [], 60, "scaled to zero")

    page.get_by_role("button", name="Delete deployment").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Delete deployment")
    expect(confirm).to_be_disabled()
    dialog.get_by_role("textbox").fill("tried-out")
    confirm.click()
    expect(page).to_have_url(re.compile("/deployments$"), timeout=WAIT_MS)
    until(lambda: platform.deployment("tried-out") is None, 60, "deleted")
    expect(page.get_by_role("link", name="tried-out")).to_have_count(0)


def test_another_persons_change_appears_by_itself(page, platform):
    """No reload and no polling in between: the live socket tells."""
    deployment = platform.deployment(MODEL)
    page.goto(f"/deployments/{deployment['id']}/edit")
    expect(page.locator("[data-state=live]")).to_be_visible()
    page.goto("/deployments")
    expect(page.locator("[data-state=live]")).to_be_visible()
    page.wait_for_timeout(6_500)  # a socket that hears nothing for a while stays
    expect(page.locator("[data-state=live]")).to_be_visible(timeout=500)
    answer = platform.api("PATCH", f"deployments/{deployment['id']}", json={"description": "changed elsewhere"})
    assert answer.json()["restarts"] == []
    expect(page.get_by_text("changed elsewhere")).to_be_visible(timeout=4_000)
