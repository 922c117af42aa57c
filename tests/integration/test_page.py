"""The service's page, in a real browser against a real service.

The quick suite walks once from a new release to its sorted table, and once through taking part; the rest is full.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import dpsketch as dps
from browsing import AXE, Visit, ask, collection, releases, use, views, visit
from dpsketch import files
from serving import PROTOCOL, Server, new_token

OCTETS = {"Content-Type": "application/octet-stream"}
BAD = "<img src=nowhere.png>"
FORMULA = "=1+1"


def make_table() -> dps.PrivateTable:
    """120 groups by two columns; the first group has as many records more as no other, and its name is markup."""
    towns = [BAD, FORMULA, "Zürich", *(f"town {number:02}" for number in range(37))]
    names = [(town, season) for town in towns for season in ("spring", "summer", "winter")]
    sizes = [900, *(200 + place for place in range(len(names) - 1))]
    columns: dict[str, list[Any]] = {"town": [], "season": [], "rain": []}
    for (town, season), size in zip(names, sizes, strict=True):
        columns["town"] += [town] * size
        columns["season"] += [season] * size
        columns["rain"] += [float(len(season))] * size
    table = dps.Table(by=["town", "season"], columns=[dps.count(), dps.mean("rain", bounds=(0, 10))])
    table.update(pa.table(columns))
    return table.release(epsilon=4.0, delta=1e-6)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that is open to nobody but its administrator."""
    folder = tmp_path_factory.mktemp("page")
    store = str(folder / "page.db")
    with Server(folder, ["--store", store, "--compute-rate", "100"], {"token": new_token(store, "admin")}) as running:
        yield running


def rows(tab: Visit) -> list[list[str]]:
    """The rows that are shown, as texts; an interval is on a line of its own."""
    script = "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    found: list[list[str]] = tab.page.locator("tbody tr").evaluate_all(script)
    return found


def shown(row: dict[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{written(value)}\n{written(low)} to {written(high)}"


def written(number: float) -> str:
    return (f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}").replace("-", "−")


def test_a_release_is_created_and_read_as_a_table_that_is_sorted(browser: Browser, server: Server) -> None:
    """From signing in to the saved file; without mistakes that axe finds, and without requests to anybody else."""
    released = make_table()
    with visit(browser, server.url, may_fail=True) as tab:
        page = tab.page
        tab.open("/releases")
        page.locator("main").get_by_role("button", name="Sign in").click()
        page.get_by_label("Token", exact=True).fill(server.environment["token"])
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_text("There are none yet.")).to_be_visible()
        kept = page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]")
        assert kept == [0, "", [server.environment["token"]]]
        content = files.encode(released.to_document())
        added = server.client(server.environment["token"]).post(
            "/v1/releases?name=rain", content=content, headers=OCTETS
        )
        assert added.status_code == 201
        tab.open(f"/releases/{added.json()['id']}")
        status = tab.card("Groups").get_by_role("status")
        expected = [
            [row["town"], row["season"], shown(row, "count"), shown(row, "mean_rain")] for row in released.to_json()
        ]
        expect(status).to_have_text("Rows 1 to 100 of 120.")
        assert rows(tab) == expected[:100]
        page.get_by_role("button", name="Next rows").press("Enter")
        expect(status).to_have_text("Rows 101 to 120 of 120.")
        assert rows(tab) == expected[100:]
        heading = page.get_by_role("columnheader", name="count")
        heading.get_by_role("button").focus()
        page.keyboard.press("Enter")
        expect(heading).to_have_attribute("aria-sort", "descending")
        expect(page.locator("tbody tr").first).to_contain_text(BAD)
        largest = sorted((row["count"] for row in released.to_json()), reverse=True)
        assert [row[2].split("\n")[0] for row in rows(tab)] == [written(value) for value in largest[:100]]
        assert tab.focus()["shown"]  # still on the heading
        if AXE.exists():
            assert tab.violations() == []
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as CSV").click()
        with Path(saved.value.path()).open(encoding="utf-8", newline="") as lines:
            [head, *found] = csv.reader(lines)
        assert head == released.columns
        assert [float(row[2]) for row in found] == largest
        assert {row[0] for row in found} >= {BAD, f"'{FORMULA}"}  # no spreadsheet computes it
        page.get_by_label("Find groups").fill("nowhere.png spring")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert rows(tab)[0][0] == BAD
        assert page.locator("main img").count() == 0
        assert not any("nowhere.png" in one.url for one in tab.requests)  # neither loaded nor asked in an address
        assert not any(server.environment["token"] in one.url for one in tab.requests)


def test_only_the_randomised_report_leaves_the_page_and_it_is_drawn_once(tab: Visit, demo: str) -> None:
    one, page = collection(demo), tab.page
    tab.open(f"/demo/{one['id']}")
    assert "ε = 0 " in page.locator(".cost").inner_text()
    page.get_by_label("mango").check()
    page.get_by_role("button", name="Randomise").click()
    text = page.get_by_label("What will be sent", exact=True)
    expect(text).to_contain_text("bucket")
    drawn = text.inner_text()
    assert "ε = 2 " in page.locator(".cost").inner_text()  # it is charged when it is drawn, not when it is sent
    page.reload()
    expect(text).to_contain_text("bucket")
    assert text.inner_text() == drawn
    expect(page.get_by_role("button", name="Randomise")).to_be_hidden()
    assert tab.sent("/reports") == []  # nothing leaves before the person says so
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_text("Sent, and stored.")).to_be_visible()
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("sent already")
    [request] = tab.sent("/reports")
    assert request.post_data == drawn
    assert set(json.loads(drawn)) == {"dpsketch", "spec", "id", "seed", "bucket"}
    assert tab.mentioned("mango") == []
    assert collection(demo)["reports"] == one["reports"] + 1
    kept = page.evaluate(
        """async () => {
          const all = await (await import("/page/taking.js")).kept();
          return JSON.stringify([all, { ...localStorage }, { ...sessionStorage }]);
        }"""
    )
    assert "bucket" in kept
    assert "mango" not in kept


@pytest.mark.full
@pytest.mark.parametrize(
    ("look", "width", "scheme"), [("wide", 1200, "light"), ("dark", 1200, "dark"), ("phone", 360, "light")]
)
def test_every_view_fits_its_screen_and_axe_finds_nothing_serious(
    browser: Browser, demo: str, look: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with visit(browser, demo, width=width, height=740 if width < 500 else 900, scheme=scheme) as seen:
        for name, route in views(demo).items():
            seen.open(route)
            use(seen, name)
            seen.keep_picture(f"{name}-{look}")
            assert seen.overflow() <= 0, name
            assert not AXE.exists() or seen.violations() == [], name
        seen.page.evaluate("document.querySelector('main').innerHTML = '<img src=x><input>'")
        assert not AXE.exists() or len(seen.violations()) >= 2, "axe finds what is planted"
        seen.errors.clear()  # the planted image is not there
        seen.requests.clear()


@pytest.mark.full
def test_a_key_is_looked_up_by_keyboard_alone_and_is_in_no_address(tab: Visit, demo: str) -> None:
    """Also a key that is markup and turns the direction of writing; it is shown as it is."""
    tab.open("/releases")
    keyboard = tab.page.keyboard

    def tab_to(words: str) -> None:
        for _ in range(40):
            keyboard.press("Tab")
            at = tab.focus()
            assert at["shown"], at["name"]
            named = "document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent"
            if words in tab.page.evaluate(named):
                return
        raise AssertionError(f"{words} cannot be reached")

    tab_to("visits-by-page")
    keyboard.press("Enter")
    expect(tab.page.get_by_role("heading", level=1, name="visits-by-page")).to_be_focused()
    tab_to("Key, exactly as it was counted")
    keyboard.type("/news/0")
    keyboard.press("Enter")
    answer = tab.page.locator(".answer").first
    expect(answer).to_contain_text("/news/0: about")
    [found] = ask(demo, f"releases/{releases(demo)['counts']}/estimate", {"keys": ["/news/0"]})["estimates"]
    between = f"between {found['low']:,.0f} and {found['high']:,.0f} with 95% confidence"
    expect(answer).to_contain_text(f"{found['value']:,.0f}")
    expect(answer).to_contain_text(between)
    tab.page.get_by_label("Key, exactly").fill(f"{BAD}&amp;/good\u202elive")
    keyboard.press("Enter")
    expect(answer).to_contain_text(f"{BAD}&amp;/good[U+202E]live: about")
    assert len(tab.mentioned("nowhere.png")) == 1  # the body of the question; the search does find what is sent
    assert not any("nowhere.png" in one.url for one in tab.requests)


@pytest.mark.full
def test_a_collection_is_shown_as_it_grows_until_it_is_paused(tab: Visit, demo: str) -> None:
    """By one request that stays open."""
    one = collection(demo)
    tab.open(f"/collections/{one['id']}")
    count = tab.page.locator(".big")
    expect(count).to_have_text(f"{one['reports']:,}")
    body = b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["fig"]] * 500)))
    told = httpx.post(f"{demo}/v1/collections/{one['id']}/reports", content=body, headers=OCTETS)
    assert told.json()["accepted"] == 500
    expect(count).to_have_text(f"{one['reports'] + 500:,}")  # without a reload
    asked = [request.url.rpartition("/")[2] for request in tab.requests if "/v1/collections/" in request.url]
    assert asked == [one["id"], "stream"]
    tab.page.get_by_role("button", name="Pause").click()
    expect(tab.page.get_by_text("Paused.")).to_be_visible()
    before = len(tab.requests)
    tab.page.wait_for_timeout(3000)
    assert len(tab.requests) == before
    tab.page.get_by_role("button", name="Go on").click()
    tab.page.wait_for_timeout(500)
    assert len(tab.requests) > before
