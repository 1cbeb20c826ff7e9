"""Every page, in both languages and both themes: it draws, fits the window, and passes axe."""

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as TooLate

from tests.browser.conftest import MODEL, WINDOW
from tests.running import ROOT, until

AXE = ROOT / "webui" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ["", "models", "deployments", "deployments/new", "playground", "jobs", "keys", "nodes", "usage"]
PAGES += ["evaluations", *(f"evaluations/{part}" for part in ("compare", "quality", "schedules", "gates"))]
PAGES += ["planner", "quantize"]
TABLES = {"models", "deployments", "jobs", "keys", "nodes"}
TELEPHONE = 390
FITS_MS = 3_000  # a table is laid out anew a moment after the window has changed


def settle(page: Page) -> None:
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator(".ant-skeleton")).to_have_count(0)
    expect(page.locator("[data-state=live]")).to_be_visible()


def problems(page: Page, axe: str) -> list[str]:
    """What axe complains of, with the first place of each."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['help']} at {one['nodes'][0]['target']} {one['nodes'][0]['html'][:200]}" for one in found
    ]


def detail_pages(platform) -> list[str]:
    deployment = platform.deployment(MODEL)
    version = platform.api("GET", f"versions/{deployment['revision']['version']}").json()
    node = platform.api("GET", "nodes").json()["results"][0]["id"]
    return [
        f"deployments/{deployment['id']}",
        f"deployments/{deployment['id']}?tab=revisions",
        f"deployments/{deployment['id']}/edit",
        f"models/{version['model']}",
        f"jobs/{version['job']}",
        f"nodes/{node}",
    ]


BROKEN_CELLS = """
[...document.querySelectorAll('.data-table .ant-table-row > td, .data-table th')].flatMap((cell) => {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = []
  while (texts.nextNode()) {
    if (texts.currentNode.parentElement.closest('.cell-text, .visually-hidden')) continue
    const range = document.createRange()
    range.selectNodeContents(texts.currentNode)
    if (new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1)
      broken.push(texts.currentNode.data)
  }
  return broken
})
"""
PAGE_FITS = "document.documentElement.scrollWidth <= innerWidth"
TABLE_FITS = """
(table => table && table.scrollWidth <= table.clientWidth)(document.querySelector('.data-table .ant-table-content'))
"""


def misfits(page: Page, widths: tuple[int, ...], table: bool) -> list[str]:
    """What goes beyond the window, or is broken into lines, where the window is made so wide."""
    found = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 860})
        for wanted in (PAGE_FITS, TABLE_FITS) if table and width > TELEPHONE else (PAGE_FITS,):
            try:
                page.wait_for_function(wanted, polling=50, timeout=FITS_MS)
            except TooLate:
                found.append(f"wider than a window of {width}: {wanted.strip()}")
        if table and width > TELEPHONE:
            found += page.evaluate(BROKEN_CELLS)
    return found


@pytest.mark.parametrize(
    ("locale", "theme", "widths"), [("en-US", "light", (1440, 1280, TELEPHONE)), ("zh-CN", "dark", (1280,))]
)
def test_every_page_draws_fits_and_is_accessible(new_page, platform, shots, locale, theme, widths):
    """At 1360, and the widths that it is given then; tables break no name, size or date."""
    assert AXE.exists(), "axe-core is missing: cd webui && npm ci"
    axe = AXE.read_text()
    page = new_page(locale=locale, color_scheme=theme, reduced_motion="reduce")
    failures = {}
    for path in [*PAGES, *detail_pages(platform)]:
        page.goto(f"/{path}")
        settle(page)
        name = path.split("?")[0].split("/")[0] or "overview"
        kind = "" if path in PAGES and "/" not in path else "-" + (path.split("/")[-1] if path in PAGES else "detail")
        page.screenshot(path=shots / f"{name}{kind}-{locale[:2]}-{theme}.png", full_page=True)
        if found := problems(page, axe):
            failures[path] = found
        if not page.evaluate(PAGE_FITS):
            failures.setdefault(path, []).append("wider than the window")
        if path in TABLES:
            expect(page.locator(".data-table .ant-table-row").first).to_be_visible()
        if found := misfits(page, widths, path in TABLES):
            failures.setdefault(path, []).extend(found)
        page.set_viewport_size(WINDOW)
    assert not failures


def test_the_overview_names_what_wants_a_look_and_leads_there(page, platform):
    """A hub that is not there makes a job that fails."""
    made = platform.api("POST", "models/import", json={"source": "hub", "ref": "nobody/no-such-model"})
    job = made.json()["id"]
    until(lambda: platform.api("GET", f"jobs/{job}").json()["state"] == "errored", 90, "the failed job")
    page.goto("/")
    settle(page)
    card = page.locator(".ant-card", has=page.get_by_text("Needs attention", exact=True))
    expect(card).not_to_contain_text("Nothing:")
    card.get_by_role("link", name="Import no-such-model").click()
    expect(page.get_by_role("heading", name="Import no-such-model", level=1)).to_be_visible()


def test_a_telephone_has_its_navigation_behind_a_button(new_page):
    page = new_page(viewport={"width": TELEPHONE, "height": 844})
    page.goto("/planner")
    settle(page)
    assert page.evaluate(PAGE_FITS)
    page.get_by_role("button", name="Open navigation").click()
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
    assert page.evaluate(PAGE_FITS)


def test_the_keyboard_reaches_content_and_a_new_page_takes_the_focus(page):
    page.goto("/models")
    settle(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.get_by_role("link", name="Jobs").press("Enter")
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_focused()


def test_an_unknown_page_leads_home(page):
    page.goto("/no/such/page")
    page.get_by_role("button", name="To the overview").click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_what_another_team_owns_is_said_not_to_exist(page):
    page.goto("/deployments/01890000-0000-7000-8000-000000000000")
    expect(page.get_by_role("alert")).to_be_visible()


def test_first_load_stays_small(new_page):
    """Scripts and styles until the overview is drawn, as they cross the wire."""
    page = new_page()
    sizes = {}
    page.on("requestfinished", lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]}))
    page.goto("/")
    settle(page)
    page.wait_for_load_state("load")
    loaded = sum(size for url, size in sizes.items() if "/assets/" in url)
    assert 0 < loaded <= 350 * 1024, f"{loaded / 1024:.0f} kB"
