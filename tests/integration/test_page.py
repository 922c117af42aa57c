"""The service's page, in a real browser against a real service; the quick suite walks it twice."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect

import dpsketch as dps
from browsing import AXE, Visit, collection, use, views, visit
from dpsketch import files, local
from serving import Server

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
def server(serve: Callable[..., Server]) -> Server:
    """A service that is open to nobody but its administrator."""
    return serve("--compute-rate", "100")


def rows(tab: Visit) -> list[list[str]]:
    """The rows that are shown, as texts; an interval is on a line of its own."""
    script = "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    found: list[list[str]] = tab.page.locator("tbody tr").evaluate_all(script)
    return found


def written(number: float) -> str:
    return (f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}").replace("-", "−")


def with_interval(row: dict[str, Any], name: str) -> str:
    value, low, high = (written(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return f"{value}\n{low} to {high}"


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
            [row["town"], row["season"], *(with_interval(row, name) for name in ("count", "mean_rain"))]
            for row in released.to_json()
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
    drawn = draw(page, "mango")
    text = page.get_by_label("What will be sent", exact=True)
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


def ask(page: Page, fruit: str) -> None:
    page.get_by_label(fruit).check()
    page.get_by_role("button", name="Randomise").click()


def draw(page: Page, fruit: str) -> str:
    ask(page, fruit)
    text = page.get_by_label("What will be sent", exact=True)
    expect(text).to_contain_text("bucket")
    return text.inner_text()


def refusal(page: Page) -> Any:
    return expect(page.get_by_role("alert").filter(visible=True))


@pytest.mark.full
def test_a_report_whose_sending_failed_is_the_one_sent_later(browser: Browser, demo: str) -> None:
    """What it names is told only after it was sent: whoever could see it before would send the true ones only."""
    before = collection(demo)["reports"]
    with visit(browser, demo, may_fail=True) as seen:
        seen.open(f"/demo/{collection(demo)['id']}")
        first = draw(seen.page, "pear")
        seen.page.route("**/reports", lambda route: route.abort())
        seen.page.get_by_role("button", name="Send it").click()
        refusal(seen.page).to_contain_text("cannot be reached")
        seen.page.unroute("**/reports")
        seen.page.reload()
        seen.page.wait_for_function("() => document.querySelector('main h1')")
        seen.settle()
        step = seen.card("2. Look at what will be sent")
        expect(step).not_to_contain_text("which holds")
        seen.page.get_by_role("button", name="Send it").click()
        expect(seen.page.get_by_text("Sent, and stored.")).to_be_visible()
        expect(step).to_contain_text("which holds, of this list")
        assert {request.post_data for request in seen.sent("/reports")} == {first}
    assert collection(demo)["reports"] == before + 1


@pytest.mark.full
def test_two_tabs_draw_one_report(tab: Visit, demo: str) -> None:
    """Both are open before either draws, and both draw at once, twenty times over."""
    tab.open(f"/demo/{collection(demo)['id']}")
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    other.wait_for_function("() => document.querySelector('.choice')")
    assert draw(tab.page, "mango") == draw(other, "apple")
    assert "ε = 2 " in other.locator(".cost").inner_text()
    announced = collection(demo)["spec"]
    race = """async ([person, announced, own]) => {
      const { reportOnce } = await import("/page/taking.js");
      const { readSpec } = await import("/client.js");
      const spec = readSpec(announced, { maxEpsilon: 2 });
      window[person] = reportOnce(person, spec, [own], 1000);
    }"""
    result = "async (person) => (await window[person]).message"
    for number in range(20):
        person = f"race-{number}"
        for page, own in ((tab.page, "mango"), (other, "apple")):
            page.evaluate(race, [person, announced, own])
        assert tab.page.evaluate(result, person) == other.evaluate(result, person)


def answer_with(one: dict[str, Any]) -> Any:
    """Answer the page's question about a collection ourselves."""
    return lambda route: route.fulfill(status=200, content_type="application/json", body=json.dumps(one))


@pytest.mark.full
def test_collections_share_the_budget_of_this_browser(tab: Visit, demo: str) -> None:
    """A service that asks the same under three names gets what the person agreed to, and no more."""
    whole = collection(demo)
    for number in range(3):
        tab.page.route(f"**/collections/copy{number}", answer_with({**whole, "id": f"copy{number}"}))
    for number in range(2):
        tab.open(f"/demo/copy{number}")
        draw(tab.page, "mango")
        assert f"ε = {2 * (number + 1)} " in tab.page.locator(".cost").inner_text()
    tab.open("/demo/copy2")
    ask(tab.page, "mango")
    refusal(tab.page).to_contain_text("Nothing was drawn")
    expect(tab.page.get_by_role("button", name="Send it")).to_be_hidden()


@pytest.mark.parametrize(
    ("promise", "spec"),
    [({"epsilon": 0.01}, {}), ({"holds": False}, {}), ({"epsilon": 0.01}, {"epsilon": 0.01}),
     ({}, local.PrivSketchAsPublished(2.0).to_json())],
    ids=["other epsilon", "does not hold", "fingerprint", "not private"],
)  # fmt: skip
@pytest.mark.full
def test_an_announcement_that_contradicts_itself_is_refused(tab: Visit, demo: str, promise: Any, spec: Any) -> None:
    one = collection(demo)
    announced = spec if "protocol" in spec else {**one["spec"], **spec}
    forged = {**one, "guarantee": {**one["guarantee"], **promise}, "spec": announced}
    tab.page.route(f"**/collections/{one['id']}", answer_with(forged))
    tab.open(f"/demo/{one['id']}")
    refusal(tab.page).to_contain_text("do not take part")
    expect(tab.page.get_by_role("button", name="Randomise")).to_have_count(0)


@pytest.mark.full
def test_without_a_memory_nothing_is_drawn(tab: Visit, demo: str) -> None:
    tab.page.add_init_script("Object.defineProperty(window, 'indexedDB', { value: undefined })")
    tab.open(f"/demo/{collection(demo)['id']}")
    refusal(tab.page).to_contain_text("cannot remember")
    expect(tab.page.get_by_role("button", name="Randomise")).to_have_count(0)
