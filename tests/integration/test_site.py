"""The built site on a phone and on a desktop, light and dark: nothing is wider than the screen, and tables fit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from browsing import SCREENSHOTS
from doc_pages import ROOT

PAGES = ("index", "tutorial", "how-to/decide", "explanation/papers", "explanation/trust", "glossary", "policy")
# The table, and how much wider it is than the column it stands in.
_WIDE = """() => [...document.querySelectorAll(".md-content table:not(.highlighttable)")]
  .map((table) => [table, table.closest(".md-typeset__scrollwrap")])
  .map(([table, column]) => [table.innerText.slice(0, 40), table.scrollWidth - column.clientWidth])
  .filter(([, over]) => over > 1)"""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, from ``DPSKETCH_SITE`` if somebody has built it."""
    given = os.environ.get("DPSKETCH_SITE")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_their_screen(site: Path, browser: Browser, width: int, scheme: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_timeout(300)
        picture = SCREENSHOTS / f"site-{name.replace('/', '-')}-{width}-{scheme}.png"
        page.screenshot(path=picture, full_page=True, animations="disabled")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(_WIDE) == [], name
        broken = page.evaluate("[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)")
        assert broken == [], name
    context.close()
