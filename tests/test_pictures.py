"""The pictures of the console: each that a page shows is there, and each that is there is shown."""

from __future__ import annotations

import re

from tests.running import ROOT

FOLDER = ROOT / "docs" / "screenshots"


def test_pages_show_the_pictures_that_there_are() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"screenshots/([\w-]+\.png)", page.read_text())}
    assert shown == {path.name for path in FOLDER.glob("*.png")}
