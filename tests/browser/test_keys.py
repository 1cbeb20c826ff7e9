"""An API key: shown once, works, and is refused soon after it is revoked."""

import re

import httpx2 as httpx
from playwright.sync_api import expect

from tests.browser.conftest import MODEL
from tests.running import until


def test_a_key_is_shown_once_works_and_can_be_revoked(page, platform, shots):
    page.goto("/keys")
    page.get_by_role("button", name="Create key").first.click()
    page.get_by_label("Name").fill("browser test")
    page.get_by_label("Requests per minute").fill("60")
    page.get_by_role("dialog").get_by_role("button", name="Create", exact=True).click()
    secret = page.get_by_test_id("secret").locator("code").inner_text()
    assert re.fullmatch(r"ts-[\w-]{43}", secret)
    page.get_by_role("button", name="I have stored it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="browser test")
    expect(row).to_contain_text("60 requests/min")
    assert secret not in page.content()
    page.screenshot(path=shots / "keys.png")

    def status() -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        return httpx.get(f"{platform.url}/v1/models", headers=headers, timeout=10).status_code

    until(lambda: status() == 200, 10, "the new key works")
    models = httpx.get(f"{platform.url}/v1/models", headers={"Authorization": f"Bearer {secret}"}).json()
    assert MODEL in [model["id"] for model in models["data"]]

    row.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("browser test")
    dialog.get_by_role("button", name="Revoke browser test").click()
    expect(row).to_have_count(0)
    until(lambda: status() == 401, 6, "the revoked key is refused")


def test_a_name_is_asked_for_at_the_field(page):
    page.goto("/keys?create=1")
    page.get_by_role("dialog").get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("Name is needed.")).to_be_visible()
