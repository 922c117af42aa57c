"""The service's page, in a real browser against a real service.

The quick suite walks once from a new release to its sorted table, and once through taking part; the rest is full.
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import dpsketch as dps
from browsing import AXE, Visit, ask, collection, releases, service, use, views, visit
from dpsketch import files
from dpsketch.local import tickets
from serving import OPEN, PROTOCOL, Server, new_token, objects

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
    running = Server(folder, ["--store", store, "--compute-rate", "100"], {"token": new_token(store, "admin")}).start()
    try:
        yield running
    finally:
        assert running.stop() == 0


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
def test_the_largest_keys_are_drawn_with_the_intervals_of_the_service(tab: Visit, demo: str) -> None:
    path = f"releases/{releases(demo)['counts']}"
    keys = [f"/docs/{number}" for number in range(12)]
    tab.open(f"/{path}")
    card = tab.card("The largest keys")
    card.get_by_label("Candidates").fill("\n".join(keys))
    card.get_by_label("How many").fill("7")
    card.get_by_role("button", name="Show the largest").click()
    expect(card.locator("rect.bar")).to_have_count(7)
    found = ask(demo, f"{path}/top", {"n": 7, "candidates": keys})["estimates"]
    assert card.locator("text.label").all_text_contents() == [one["key"] for one in found]
    expect(card.locator("figcaption")).to_contain_text("hold for all 7 at once")
    # On the axis of the drawing, an interval's line is as long as the interval.
    bars = [float(bar.get_attribute("width") or 0) for bar in card.locator("rect.bar").all()]
    lines = card.locator("line.whisker").evaluate_all(
        """lines => lines.map((line) => ["x1", "x2", "y1", "y2"].map((name) => Number(line.getAttribute(name))))
                         .filter(([, , y1, y2]) => y1 === y2).map(([x1, x2]) => x2 - x1)"""
    )
    for one, bar, line in zip(found, bars, lines, strict=True):
        assert line / bar == pytest.approx((one["high"] - one["low"]) / one["value"], rel=1e-9)


@pytest.mark.full
def test_the_map_tells_its_numbers_to_keys_and_to_the_mouse(tab: Visit, demo: str) -> None:
    path = f"releases/{releases(demo)['density']}"
    tab.open(f"/{path}")
    grid = ask(demo, f"{path}/grid?size=64")
    readout = tab.page.locator(".readout")
    tab.page.locator(".map").focus()
    assert tab.focus()["shown"]
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        tab.page.keyboard.press(key)
    expect(readout).to_contain_text(f"density {grid['values'][34][31]:.3g} at east 4.92, north 5.39")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".answer")).to_contain_text("Density at east 4.92, north 5.39: about")
    tab.page.locator(".map .cells").hover(position={"x": 5, "y": 5})
    expect(readout).to_contain_text(f"density {grid['values'][63][0]:.3g} at east 0.0781, north 9.92")


@pytest.mark.full
def test_promise_and_budget_stand_beside_the_answers(tab: Visit, demo: str) -> None:
    whole = ask(demo, f"releases/{releases(demo)['counts']}")
    tab.open(f"/releases/{whole['id']}")
    promised = tab.card("What is promised")
    promised.get_by_text("In full").click()
    for sentence in re.split(r"(?<=[.;:]) (?=[A-Z])", whole["guarantee"]["words"]):
        expect(promised.get_by_text(sentence)).to_be_visible()
    [budget] = [one for one in ask(demo, "ledger")["datasets"] if one["dataset"] == whole["facts"]["charge"]["dataset"]]
    for where in (f"/releases/{whole['id']}", "/budget"):
        tab.open(where)
        meter = tab.page.locator(".budget", has_text=budget["dataset"]).first.get_by_role("meter")
        assert float(meter.get_attribute("aria-valuenow") or "nan") == pytest.approx(budget["share"])


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


@pytest.mark.full
def test_failures_are_said_in_plain_words(browser: Browser, demo: str) -> None:
    with visit(browser, demo, may_fail=True) as seen:
        seen.open("/releases/nothing")
        expect(seen.page.get_by_role("alert")).to_contain_text("There is no such release.")
        seen.page.route("**/v1/**", lambda route: route.abort())
        seen.open("/collections")
        expect(seen.page.get_by_role("alert")).to_contain_text("The service cannot be reached.")


@pytest.mark.full
def test_kinds_that_the_demo_does_not_hold_have_a_view(browser: Browser, tmp_path: Path) -> None:
    """Integer keys of 64 bits are not rounded; rounded, this one would be another key."""
    unit, large = dps.per_record(), 2**63 + 1
    heavy = dps.HeavyHitters(unit=unit, rows=5, width=512, key_bits=64)
    heavy.update(np.array([large, 7], dtype=np.uint64), counts=np.array([90_000, 50_000]))
    heavy.release(epsilon=1.0, delta=1e-6).save(tmp_path / "numbers.dps")
    sparse = dps.SparseHistogram(unit=unit, domain=2**64)
    sparse.update(["tea", "milk"], counts=[5000, 200])
    sparse.release(epsilon=1.0, delta=0).save(tmp_path / "drinks.dps")
    line = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=200, unit=unit, bounds=[(0, 10)], columns=("age",)
    )
    line.update(np.linspace(2, 4, 5000)[:, None])
    line.release(epsilon=1.0, delta=1e-6).save(tmp_path / "line.dps")
    PROTOCOL.collector().add(PROTOCOL.report([["tea"]] * 900)).save(tmp_path / "people.dps")
    options = (f"--store={tmp_path / 'service.db'}", f"--mount={tmp_path}", "--public-read")
    with service(tmp_path / "log", *options) as address, visit(browser, address) as tab:
        for kind, label, key, answer in (
            ("heavy", "Key (a whole number)", str(large), rf"{large}: about (89,9|90,0)"),
            ("sparse", "Key, exactly", "tea", r"tea: about [45],\d"),
            ("local", "Key, exactly", "tea", "% and "),
        ):
            tab.open(f"/releases/{releases(address)[kind]}")
            tab.page.get_by_label(label).fill(key)
            tab.page.keyboard.press("Enter")
            expect(tab.card("Look up a key").locator(".answer")).to_contain_text(re.compile(answer))
        tab.open(f"/releases/{releases(address)['density']}")
        expect(tab.page.locator("path.band")).to_have_count(1)


@pytest.mark.full
def test_the_list_is_searched_versions_lead_to_each_other_and_a_ticket_takes_part_once(
    browser: Browser, tmp_path: Path
) -> None:
    store = str(tmp_path / "releases.db")
    token = new_token(store, "admin")
    server = Server(tmp_path, ["--store", store, *OPEN]).start()
    admin = server.client(token)
    try:
        ids = []
        for count, name in enumerate(("visits", "visits", "purchases"), 5):
            histogram = dps.Histogram(unit=dps.per_record())
            histogram.update(["tea"] * 100 * count)
            content = files.encode(histogram.release(epsilon=2.0, delta=0, keys=["tea"]).to_document())
            ids.append(admin.post(f"/v1/releases?name={name}", content=content, headers=OCTETS).json()["id"])
            time.sleep(0.01)
        asked = {"name": "Fruit", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"], "tickets": "once"}
        made = admin.post("/v1/collections", json=asked).json()
        ticket = tickets.issue(made["ticket_key"], made["id"], subject="ann", expires=time.time() + 600)
        with visit(browser, server.url, may_fail=True) as tab:
            page = tab.page
            tab.open("/releases")
            expect(page.locator(".tiles .tile")).to_have_count(2)
            page.get_by_label("Search").fill("purch hist")
            expect(page.locator(".tiles .tile")).to_have_count(1)
            tab.open("/releases/newest/visits")
            expect(page.get_by_text(f"Its id is {ids[1]}")).to_be_visible()
            page.get_by_role("link", name="Version 1").click()
            expect(page.get_by_text(f"Its id is {ids[0]}")).to_be_visible()
            page.goto(f"{server.url}/#/demo/{made['id']}/{ticket}")
            page.get_by_label("apple").check()
            page.get_by_role("button", name="Randomise").click()
            assert ticket not in page.url
            page.get_by_role("button", name="Send it").click()
            expect(page.locator("main")).to_contain_text("Sent, and stored.")
            [report] = tab.sent("/reports")
            assert report.headers["dpsketch-ticket"] == ticket
            assert all(ticket not in request.url for request in tab.requests)
            again = {tickets.HEADER: ticket}
            refused = server.client().post(f"/v1/collections/{made['id']}/reports", json=objects(1)[0], headers=again)
            assert refused.json()["error"]["code"] == "ticket_used"
    finally:
        assert server.stop() == 0
