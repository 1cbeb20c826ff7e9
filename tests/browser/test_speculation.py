"""What was guessed: tinted in the answer, counted under it, and on the deployment page. The lookahead cache guesses."""

import re

import httpx2 as httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import MODEL
from tests.browser.test_chat import ANSWER_MS, answers, ask, set_parameters
from tests.browser.test_pages import AXE, problems, settle

pytestmark = pytest.mark.speculation

COUNT = "Count from 1 to 50, one number per line."


def guessed(page: Page, pattern: str) -> tuple[int, int]:
    """(accepted guesses, tokens) as the line under the answer has them; its tokens per step are those two's."""
    line = answers(page).last.get_by_test_id("guessed").inner_text()
    found = re.search(pattern, line)
    assert found, line
    accepted, tokens = int(found["accepted"]), int(found["tokens"])
    shown = float(re.search(r"\d+\.\d\d", line)[0])
    assert shown == pytest.approx(tokens / (tokens - accepted), abs=0.006)
    return accepted, tokens


def test_guessed_words_are_tinted_and_counted(page, platform, shots):
    asked = {"model": MODEL, "temperature": 0, "max_tokens": 72, "messages": [{"role": "user", "content": COUNT}]}
    bearer = {"Authorization": f"Bearer {platform.key}"}  # what was said before is guessed again
    httpx.post(f"{platform.url}/v1/chat/completions", json=asked, headers=bearer, timeout=60).raise_for_status()
    page.goto(f"/playground?model={MODEL}")
    set_parameters(page, Temperature="0", Longest_answer="72")
    ask(page, COUNT)
    answer = answers(page).last
    expect(answer).to_have_attribute("data-state", "done", timeout=ANSWER_MS)
    expect(answer.locator("mark")).to_have_count(0)
    plain = answer.locator(".markdown").inner_text()
    page.get_by_role("switch", name="Guessed words").click()
    page.mouse.move(4, 4)
    page.get_by_label("Message", exact=True).focus()
    expect(page.get_by_role("tooltip")).to_have_count(0)
    expect(answer.locator("mark.guessed").first).to_be_visible()
    assert answer.locator(".markdown").inner_text() == plain
    expect(answer.locator("li[data-source=lookahead]")).to_contain_text("% of the text")
    accepted, tokens = guessed(page, r"(?P<accepted>\d+) of (?P<tokens>\d+) tokens guessed")
    assert 0 < accepted < tokens <= 72
    assert problems(page, AXE.read_text()) == []
    page.screenshot(path=shots / "guessed-en-light.png")

    page.get_by_role("button", name="Show as code").click()
    expect(page.get_by_label("curl", exact=True).last).to_contain_text('"return_draft_sources": true')
    platform.api("PATCH", "auth/session", json={"language": "zh-hans", "theme": "dark"}).raise_for_status()
    page.reload()  # the chat and the switch are kept
    expect(answers(page).last.locator("mark.guessed").first).to_be_visible()
    assert guessed(page, r"(?P<tokens>\d+) 个词元中有 (?P<accepted>\d+) 个来自草稿") == (accepted, tokens)
    page.screenshot(path=shots / "guessed-zh-dark.png")

    page.goto(f"/deployments/{platform.deployment(MODEL)['id']}?tab=speculation&window=start")
    settle(page)
    panel = page.get_by_test_id("speculation")
    expect(panel).to_have_attribute("data-standing", re.compile("works|rests"))
    row = panel.locator("tr[data-source=lookahead]")
    expect(row).to_contain_text("%")
    assert int(row.locator("td").nth(1).inner_text().replace(",", "")) >= accepted
    assert problems(page, AXE.read_text()) == []
    page.screenshot(path=shots / "speculation-zh-dark.png", full_page=True)
