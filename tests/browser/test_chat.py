"""The playground: streaming, stopping, resuming where it was, the way without websockets, and comparing."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import MODEL

ANSWER_MS = 90_000
LONG = "Write a long story about a dolphin that learns to sail a small boat across the sea."


def ask(page: Page, prompt: str) -> None:
    page.get_by_label("Message", exact=True).fill(prompt)
    page.keyboard.press("Enter")


def answers(page: Page):
    return page.locator("article.answer")


def said(page: Page) -> str:
    return answers(page).last.locator(".markdown").inner_text()


def set_parameters(page: Page, **values: str) -> None:
    page.get_by_role("button", name="Parameters").click()
    for label, value in values.items():
        page.get_by_label(label.replace("_", " ")).fill(value)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.fixture
def chat(page: Page) -> Page:
    page.goto(f"/playground?model={MODEL}")
    expect(page.get_by_role("heading", name="Playground")).to_be_visible()
    return page


def test_an_answer_streams_and_shows_its_figures(chat, shots):
    set_parameters(chat, Temperature="0", Longest_answer="48")
    ask(chat, "What is the capital of France?")
    answer = answers(chat).last
    expect(answer).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
    expect(answer).to_contain_text("Paris")
    figures = answer.get_by_test_id("figures")
    expect(figures).to_contain_text("TTFT")
    expect(figures).to_contain_text("tokens/s")
    chat.screenshot(path=shots / "chat-done.png")

    chat.get_by_role("button", name="Show as code").click()
    code = chat.get_by_label("curl", exact=True).last
    expect(code).to_contain_text('"temperature": 0')
    expect(code).to_contain_text("capital of France")


def test_stop_keeps_what_was_said(chat, shots):
    set_parameters(chat, Longest_answer="400")
    ask(chat, LONG)
    answer = answers(chat).last
    expect(answer).to_have_attribute("data-state", "streaming", timeout=ANSWER_MS)
    chat.screenshot(path=shots / "chat-mid-stream.png")
    answer.get_by_role("button", name="Stop").click()
    expect(answer).to_have_attribute("data-state", "stopped")
    kept = said(chat)
    assert kept
    chat.wait_for_timeout(1_000)
    assert said(chat) == kept


def test_a_reload_in_the_middle_loses_nothing(chat):
    set_parameters(chat, Longest_answer="120", Seed="7")
    ask(chat, LONG)
    expect(answers(chat).last).to_have_attribute("data-state", "streaming", timeout=ANSWER_MS)
    before = said(chat)
    chat.reload()
    expect(answers(chat).last).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
    after = said(chat)
    assert after.startswith(before)
    assert len(after) > len(before)
    expect(answers(chat)).to_have_count(1)


def test_without_websockets_the_answer_comes_over_http(page, platform):
    page.route_web_socket("**/ws/chat", lambda socket: socket.close())
    page.goto(f"/playground?model={MODEL}")
    set_parameters(page, Temperature="0", Longest_answer="48")
    with page.expect_response("**/playground/stream") as stream:
        ask(page, "What is the capital of France?")
    assert "text/event-stream" in stream.value.headers["content-type"], stream.value.text()
    expect(answers(page).last).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
    expect(answers(page).last).to_contain_text("Paris")
    expect(page.get_by_text("answers come over HTTP")).to_be_visible()


def test_two_deployments_answer_the_same_prompt_side_by_side(new_page, second, shots):
    page = new_page(color_scheme="dark")
    page.goto(f"/playground?model={MODEL}")
    page.get_by_role("button", name="Compare with another").click()
    assert page.url.endswith(f"?model={MODEL}&model={second}")
    expect(page.get_by_label("Choose a deployment")).to_have_count(2)
    set_parameters(page, Temperature="0", Longest_answer="40")
    ask(page, "What is the capital of France?")
    expect(answers(page)).to_have_count(2)
    for answer in (answers(page).first, answers(page).last):
        expect(answer).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
        expect(answer).to_contain_text("Paris")
        expect(answer.get_by_test_id("figures")).to_contain_text("tokens/s")
    page.screenshot(path=shots / "compare.png")


def test_a_column_that_cannot_answer_says_why_and_the_other_answers(page):
    page.goto(f"/playground?model={MODEL}&model=unknown")
    set_parameters(page, Temperature="0", Longest_answer="40")
    ask(page, "What is the capital of France?")
    expect(answers(page)).to_have_count(2)
    expect(answers(page).first).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
    expect(answers(page).last).to_have_attribute("data-state", "error")
    expect(answers(page).last).to_contain_text("There is no model 'unknown'.")


def test_a_barred_plus_says_why(chat, platform):
    names = [one["name"] for one in platform.api("GET", "deployments").json()["results"]]
    chat.goto("/playground?" + "&".join(f"model={name}" for name in names))
    plus = chat.get_by_role("button", name="Compare with another")
    expect(plus).to_have_attribute("aria-disabled", "true")
    why = "Up to four can be compared." if len(names) >= 4 else "No other deployment to compare with."
    expect(plus).to_have_accessible_description(re.compile(re.escape(why)))
    plus.focus()
    expect(chat.get_by_role("tooltip")).to_contain_text(why)
    plus.press("Enter")
    expect(chat.get_by_label("Choose a deployment")).to_have_count(len(names))
