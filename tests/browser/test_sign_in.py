"""Coming in, being refused, choosing language and theme, going out."""

import httpx2 as httpx
from playwright.sync_api import Page, expect

from tests.browser.conftest import sign_in


def test_a_deep_link_survives_signing_in(new_page, platform, shots):
    page = new_page(anonymous=True)
    page.goto("/models")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.screenshot(path=shots / "sign-in.png")
    page.get_by_label("User name").fill(platform.username)
    page.get_by_label("Password", exact=True).fill(platform.password)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
    assert page.url.endswith("/models")


def test_a_wrong_password_says_so_and_a_sixth_try_must_wait(new_page, shots):
    page = new_page(anonymous=True)
    page.goto("/")
    page.get_by_label("User name").fill("stranger")
    alert = page.get_by_role("alert")
    for attempt in range(5):
        page.get_by_label("Password", exact=True).fill(f"guess {attempt}")
        with page.expect_response("**/auth/login") as answer:
            page.get_by_role("button", name="Sign in").click()
        assert answer.value.status == 400
        expect(alert).to_contain_text("User name or password is wrong.")
    with page.expect_response("**/auth/login") as answer:
        page.get_by_role("button", name="Sign in").click()
    assert answer.value.status == 429
    expect(alert).to_contain_text("Too many failed attempts.")
    expect(alert).to_contain_text("Wait")
    expect(page.get_by_role("button", name="Sign in")).to_be_disabled()
    page.screenshot(path=shots / "sign-in-limited.png")


def choose(page: Page, entry: str) -> None:
    page.locator(".account").click()
    page.get_by_role("menuitem", name=entry, exact=True).click()
    expect(page.get_by_role("menuitem", name=entry, exact=True)).to_be_hidden()


def test_language_and_theme_are_kept_with_the_person(new_page, platform):
    page = new_page(anonymous=True, color_scheme="light")
    sign_in(page, platform)
    choose(page, "简体中文")
    choose(page, "深色")
    expect(page.get_by_role("heading", name="总览", level=1)).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    other = new_page()  # another browser of the same person
    other.goto("/")
    expect(other.get_by_role("heading", name="总览", level=1)).to_be_visible()
    expect(other.locator("html")).to_have_attribute("data-theme", "dark")
    choose(page, "English")
    choose(page, "Like the system")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_signing_out_ends_the_session_everywhere(new_page, platform):
    page = new_page(anonymous=True)
    sign_in(page, platform)
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    choose(page, "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    answer = httpx.get(f"{platform.url}/api/v1/auth/session", cookies=cookies)
    assert answer.status_code == 401
