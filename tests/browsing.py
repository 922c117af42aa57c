"""A person at the service's page: a real server, a real browser, and a record of all that passes between them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, Request, expect

DEMO = ("--demo", "--public-batch", "100000", "--address-rate", "1000000", "--address-quota", "1000000",
        "--collection-rate", "1000000", "--compute-rate", "100")  # fmt: skip
"""The demo, without limits on what a test does to it."""

AXE = Path(__file__).parent / "browser" / "node_modules" / "axe-core" / "axe.min.js"
"""Deque's axe-core, as ``tests/install_components.sh`` installs it."""

SCREENSHOTS = Path(__file__).parent / "output" / "screenshots"

FIGURES = {
    "releases-wide": "service-releases", "release-density-wide": "service-release",
    "collection-wide": "service-collection", "demo-wide": "service-taking-part",
}  # fmt: skip
"""The pictures that the documentation shows; where DPSKETCH_FIGURES is set, the tests that make them put them there."""

# Violations of the content security policy are events; they join the page's errors.
_WATCH_POLICY = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""

_FOCUS = """() => {
  const element = document.activeElement;
  const outlined = (one) => {
    const style = getComputedStyle(one);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  };
  const shown = outlined(element) || (element.closest("label") !== null && outlined(element.closest("label")));
  return { name: `${element.tagName} ${element.textContent.trim().slice(0, 30) || element.id}`, shown };
}"""


@contextmanager
def service(log: Path, *options: str) -> Iterator[str]:
    """Run ``dpsketch serve`` on a free port of this machine and yield its address."""
    command = [sys.executable, "-m", "dpsketch", "serve", "--port", "0", *options]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://"), log.read_text()
            yield address
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
            process.wait(60)


@dataclass
class Visit:
    """One tab with a memory of its own."""

    page: Page
    address: str
    requests: list[Request] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, route: str) -> None:
        """Go to a view and wait until it is there."""
        self.page.goto(f"{self.address}/#{route}")
        self.page.wait_for_function(
            "route => location.hash === `#${route}` && document.querySelector('main h1')", arg=route
        )
        self.settle()

    def settle(self) -> None:
        """Wait until the view is drawn: the service has answered, and a frame has passed."""
        self.page.wait_for_function("() => !document.querySelector('main').hasAttribute('aria-busy')")
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def card(self, title: str) -> Any:
        """Return the card with this heading."""
        return self.page.get_by_role("region", name=title, exact=True)

    def mentioned(self, words: str) -> list[str]:
        """Return the addresses of the requests in which words occur: in the address, a header or the body."""
        told = [(one.url, " ".join([one.url, *one.headers.values(), one.post_data or ""])) for one in self.requests]
        return [url for url, said in told if words.lower() in said.lower()]

    def sent(self, ending: str) -> list[Request]:
        """Return the POST requests to addresses with this ending."""
        return [one for one in self.requests if one.method == "POST" and one.url.endswith(ending)]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the screen."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))

    def violations(self) -> list[str]:
        """Return what axe-core calls serious or critical: rule, words, and the first element concerned."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        assert found["passes"], "axe looked at nothing"
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def focus(self) -> dict[str, Any]:
        """Return what has the focus, and whether one can see that."""
        return dict(self.page.evaluate(_FOCUS))

    def keep_picture(self, name: str) -> Path:
        """Keep a screenshot of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        if name in FIGURES and os.environ.get("DPSKETCH_FIGURES"):
            shutil.copy(path, Path(__file__).parents[1] / "docs" / "figures" / f"{FIGURES[name]}.png")
        return path


@contextmanager
def visit(
    browser: Browser, address: str, width: int = 1200, height: int = 900, scheme: Any = "light", may_fail: bool = False
) -> Iterator[Visit]:
    """Open a tab. Afterwards nothing has gone to another host, and unless it may fail, the console holds no error."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 500
    )
    context.set_default_timeout(30_000)
    try:
        page = context.new_page()
        seen = Visit(page, address)
        page.add_init_script(_WATCH_POLICY)
        page.on("request", lambda request: seen.requests.append(request))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda line: seen.errors.append(line.text) if line.type in ("error", "warning") else None)
        yield seen
        assert all(one.url.startswith((f"{address}/", f"blob:{address}/")) for one in seen.requests), seen.requests
        assert all(may_fail and text.startswith("Failed to load resource") for text in seen.errors), seen.errors
    finally:
        context.close()


def ask(address: str, path: str, question: Any = None) -> Any:
    """Ask the service without the page."""
    url = f"{address}/v1/{path}"
    reply = httpx.get(url) if question is None else httpx.post(url, json=question)
    reply.raise_for_status()
    return reply.json()


def releases(address: str) -> dict[str, str]:
    """Return the ids of the demo's releases by kind."""
    return {one["kind"]: one["id"] for one in ask(address, "releases")["releases"]}


def collection(address: str) -> dict[str, Any]:
    """Return the demo's collection."""
    [found] = ask(address, "collections")["collections"]
    return dict(found)


def views(address: str) -> dict[str, str]:
    """Return the routes of all views by a name."""
    one = collection(address)["id"]
    shown = {f"release-{kind}": f"/releases/{identifier}" for kind, identifier in releases(address).items()}
    return {"releases": "/releases", **shown, "collections": "/collections", "collection": f"/collections/{one}",
            "take-part": "/demo", "demo": f"/demo/{one}", "budget": "/budget", "programs": "/api"}  # fmt: skip


def use(seen: Visit, name: str) -> None:
    """Do in a view what a person would, so that its pictures show answers."""
    page = seen.page
    match name:
        case "release-counts":
            for key in ("/nowhere", "/shop/3", "/news/0"):
                page.get_by_label("Key, exactly").fill(key)
                page.get_by_role("button", name="Look up").click()
                expect(page.locator(".answer").first).to_contain_text(f"{key}: about")
            keys = [f"/{name}/{i}" for i in range(4) for name in ("news", "shop", "help", "blog", "docs")]
            page.get_by_label("Candidates").fill("\n".join(keys))
            page.get_by_role("button", name="Show the largest").click()
            expect(page.get_by_text("20 keys, the largest first.")).to_be_visible()
        case "release-density":
            page.locator(".map .cells").click(position={"x": 60, "y": 60})
            expect(page.locator(".answer")).to_contain_text("Density at")
        case "release-ranges":
            page.get_by_label("From", exact=True).fill("10")
            page.get_by_label("To", exact=True).fill("60")
            page.get_by_role("button", name="Count").click()
            expect(page.locator(".answer").first).to_contain_text("10:60: about")
        case "demo":
            page.get_by_label("cherry").check()
            page.get_by_role("button", name="Randomise").click()
            expect(page.get_by_role("button", name="Send it")).to_be_visible()
        case _:
            pass
    seen.settle()
