"""Retakes docs/screenshots from a platform of its own: `python -m tests.browser.screenshots [NAME…]`. Look at each one
then.

Everything on them is real: the demo model answers, and the traffic is that of this program. Each picture is taken in
both themes, and once in Chinese.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, MODEL, Platform, sign_in
from tests.browser.test_pages import settle
from tests.running import ROOT, Running, until

FOLDER = ROOT / "docs" / "screenshots"
EXACT = f"{MODEL}-float32"
WIDTH = 1280
LOOKS = {"light": ("light", "en-US"), "dark": ("dark", "en-US"), "zh": ("light", "zh-CN")}
"""What a file's name ends with → (theme, language)."""
QUESTIONS = ["What is the capital of France?", "Name the largest ocean.", "What is the opposite of hot?"]
TRAFFIC_S = 90.0


def prepare(platform: Platform) -> None:
    """A second deployment to compare with, an alias, a key, and some minutes of traffic."""
    version = platform.deployment(MODEL)["revision"]["version"]
    model = platform.api("GET", f"versions/{version}").json()["model"]
    platform.api("PUT", f"models/{model}/aliases/champion", json={"version": version}).raise_for_status()
    limits = {"requests_per_minute": 600, "allowed_models": [MODEL, EXACT]}
    key = platform.api("POST", "keys", json={"name": "support assistant", **limits}).json()["secret"]
    body = {"name": EXACT, "description": "The exact model, to compare with", "version": version, "dtype": "float32"}
    made = platform.api("POST", "deployments", json={**body, "replicas": {"unified": 1}, "max_num_seqs": 4})
    made.raise_for_status()
    until(lambda: platform.deployment(EXACT)["state"] == "ready", 180, f"{EXACT} ready")
    until(lambda: httpx.get(f"{platform.url}/v1/models", headers=bearer(key)).text.count(MODEL) > 1, 30, "the route")
    began = time.monotonic()
    for number in range(1000):
        if time.monotonic() - began > TRAFFIC_S:
            return
        asked = {"model": (MODEL, EXACT)[number % 2], "max_tokens": 40, "stream": True, "temperature": 0}
        messages = [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}]
        url = f"{platform.url}/v1/chat/completions"
        answer = httpx.post(url, json={**asked, "messages": messages}, headers=bearer(key), timeout=60)
        answer.raise_for_status()
        time.sleep((number * 7) % 5)  # bursts and pauses


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@dataclass
class Camera:
    platform: Platform
    browser: Browser
    state: dict
    wanted: list[str]  # names; empty: all

    def take(self, name: str, height: int, act: Callable[[Page], object]) -> None:
        """`act` brings a fresh page to what is to be seen."""
        if self.wanted and name not in self.wanted:
            return
        for look, (theme, language) in LOOKS.items():
            context = self.browser.new_context(
                base_url=self.platform.url,
                storage_state=self.state,
                locale=language,
                color_scheme=theme,
                viewport={"width": WIDTH, "height": height},
                device_scale_factor=2,
                reduced_motion="reduce",
            )
            page = context.new_page()
            act(page)
            page.mouse.move(4, 4)  # over nothing
            page.screenshot(path=FOLDER / f"{name}-{look}.png")
            context.close()
            print(f"{name}-{look}.png", flush=True)


def shows(path: str) -> Callable[[Page], object]:
    def act(page: Page) -> None:
        page.goto(path)
        settle(page)
        page.wait_for_timeout(800)  # charts and bars have moved into place

    return act


def ask(page: Page, prompt: str) -> None:
    page.locator(".composer textarea").fill(prompt)
    page.keyboard.press("Enter")


def without_chance(page: Page) -> None:
    page.get_by_role("button", name=re.compile("Parameters|参数")).click()
    page.locator("#parameter-temperature").fill("0")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def streaming(page: Page) -> None:
    page.goto(f"/playground?model={MODEL}")
    settle(page)
    without_chance(page)
    ask(page, "What is the capital of France?")
    answers = page.locator("article.answer")
    expect(answers.last).to_have_attribute("data-state", "done", timeout=90_000)
    ask(page, "Write a short story about a dolphin who helps a lost sailor find the way home.")
    expect(answers).to_have_count(2)
    until(lambda: len(answers.last.locator(".markdown").inner_text()) > 420, 90, "half an answer")


def comparing(page: Page) -> None:
    page.goto(f"/playground?model={MODEL}&model={EXACT}")
    settle(page)
    without_chance(page)
    for number, prompt in enumerate(("What is the capital of France?", "Tell me about Paris in three sentences."), 1):
        ask(page, prompt)
        expect(page.locator("article.answer[data-state=done]")).to_have_count(2 * number, timeout=180_000)


def guessing(page: Page) -> None:
    page.goto(f"/playground?model={MODEL}&guessed=shown")
    settle(page)
    without_chance(page)
    ask(page, "Repeat this line five times: The quick brown dolphin jumps over the lazy boat.")
    expect(page.locator("article.answer")).to_have_attribute("data-state", "done", timeout=90_000)
    expect(page.locator("mark.guessed").first).to_be_visible()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Running(Path(folder) / "data", "--cpu") as up, sync_playwright() as p:
        up.wait_for("Logs follow", 400)
        username, password = up.wait_for(r"login +(\S+) / (\S+)").groups()
        platform = Platform(up, username, password, up.wait_for(r"Bearer (ts-[\w-]{43})").group(1))
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        context = browser.new_context(base_url=platform.url)
        sign_in(context.new_page(), platform)
        camera = Camera(platform, browser, {**context.storage_state(), "origins": []}, sys.argv[1:])
        prepare(platform)
        detail = f"/deployments/{platform.deployment(MODEL)['id']}"
        camera.take("playground-stream", 760, streaming)  # and the checklist's last step
        camera.take("overview", 880, shows("/"))
        camera.take("models", 480, shows("/models"))
        camera.take("deployment", 640, shows(detail))
        camera.take("playground-compare", 760, comparing)
        camera.take("playground-guessed", 620, guessing)
        camera.take("deployment-speculation", 860, shows(f"{detail}?tab=speculation&window=start"))
        browser.close()


if __name__ == "__main__":
    main()
