"""A released table at the page: its rows are those of the library, sorted, searched, added up and saved."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import dpsketch as dps
from browsing import AXE, Visit, releases, service, visit

CHROMIUM = shutil.which("chromium")
BAD = "<img src=nowhere.png>"
FORMULA = "=1+1"
SPLIT = 40  # names of a column, of which three groups each make more than one page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser: chromium is not installed")


def make_table() -> dps.PrivateTable:
    """120 groups by two columns; the first group has as many records more as no other, and its name is markup."""
    towns = [BAD, FORMULA, "Zürich", *(f"town {number:02}" for number in range(SPLIT - 3))]
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tables")
    make_table().save(found / "rain.dps")
    return found


@pytest.fixture(scope="module")
def released(folder: Path) -> dps.PrivateTable:
    found = dps.load(folder / "rain.dps")
    assert isinstance(found, dps.PrivateTable)
    assert len(found) == 3 * SPLIT
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    options = (f"--store={folder / 'service.db'}", f"--mount={folder}", "--public-read", "--compute-rate=100")
    with service(folder / "log", *options) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Visit]:
    with visit(browser, address) as opened:
        open_table(opened)
        yield opened


def open_table(tab: Visit) -> None:
    tab.open(f"/releases/{releases(tab.address)['table']}")


def rows(tab: Visit) -> list[list[str]]:
    """The rows that are shown, as texts; an interval is on a line of its own."""
    return [
        [cell.strip() for cell in row]
        for row in tab.page.locator("tbody tr").evaluate_all(
            "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
    ]


def shown(row: dict[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "\n".join([written(value), f"{written(low)} to {written(high)}"])


def written(number: float) -> str:
    return (f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}").replace("-", "−")


def test_the_rows_are_those_of_the_library_a_page_at_a_time(tab: Visit, released: dps.PrivateTable) -> None:
    expected = [
        [row["town"], row["season"], shown(row, "count"), shown(row, "mean_rain")] for row in released.to_json()
    ]
    status = tab.card("Groups").get_by_role("status")
    expect(status).to_have_text("Rows 1 to 100 of 120.")
    assert rows(tab) == expected[:100]
    tab.page.get_by_role("button", name="Next rows").press("Enter")
    expect(status).to_have_text("Rows 101 to 120 of 120.")
    assert rows(tab) == expected[100:]
    assert tab.focus()["shown"]  # the button is gone, and the focus is on the table
    tab.page.get_by_role("button", name="Previous rows").click()
    expect(status).to_have_text("Rows 1 to 100 of 120.")
    others = tab.page.locator("tfoot tr")
    expect(others).to_contain_text("All other groups")
    assert shown(released.others, "count") in others.inner_text().replace("\t", "\n")


def test_names_are_text_whatever_they_hold(tab: Visit) -> None:
    tab.page.get_by_label("Find groups").fill("nowhere.png spring")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    assert rows(tab)[0][0] == BAD
    assert tab.page.locator("main img").count() == 0
    assert not any("nowhere.png" in one.url for one in tab.requests)  # neither loaded nor asked in an address


def test_columns_are_sorted_by_keyboard(tab: Visit, released: dps.PrivateTable) -> None:
    heading = tab.page.get_by_role("columnheader", name="count")
    expect(heading).to_have_attribute("aria-sort", "none")
    heading.get_by_role("button").focus()
    tab.page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "descending")
    largest = sorted((row["count"] for row in released.to_json()), reverse=True)
    expect(tab.page.locator("tbody tr").first).to_contain_text(BAD)
    assert [row[2].split("\n")[0] for row in rows(tab)] == [written(value) for value in largest[:100]]
    assert tab.focus()["shown"]  # still on the heading
    tab.page.keyboard.press("Space")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    expect(tab.page.locator("tbody tr").first).to_contain_text(written(largest[-1]))
    town = tab.page.get_by_role("columnheader", name="town")
    town.get_by_role("button").click()
    expect(town).to_have_attribute("aria-sort", "ascending")
    expect(heading).to_have_attribute("aria-sort", "none")


def test_groups_are_found_by_words_and_others_are_not(tab: Visit) -> None:
    status = tab.card("Groups").get_by_role("status")
    tab.page.get_by_label("Find groups").fill("ZÜRICH")
    expect(status).to_have_text("Rows 1 to 3 of 3.")
    assert [row[:2] for row in rows(tab)] == [["Zürich", season] for season in ("spring", "summer", "winter")]
    tab.page.get_by_label("Find groups").fill("zürich autumn")
    expect(status).to_have_text("No group has all these words.")
    assert rows(tab) == []


def test_a_roll_up_adds_rows_up_and_says_how_wide_that_is(tab: Visit, released: dps.PrivateTable) -> None:
    card = tab.card("Groups")
    expect(card).not_to_contain_text("may belong to any row")
    tab.page.get_by_label("town").uncheck()
    expect(card).to_contain_text("may belong to any row")
    expected = [
        [row["season"], shown(row, "count"), shown(row, "mean_rain")] for row in released.rollup("season").to_json()
    ]
    assert rows(tab) == expected
    tab.page.get_by_label("Confidence of the intervals").select_option("99%")
    [first, *_] = released.rollup("season").to_json(confidence=0.99)
    expect(tab.page.locator("tbody tr").first).to_contain_text(shown(first, "count").split("\n")[1])
    tab.page.get_by_label("season").uncheck()
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    expect(tab.page.locator("tbody tr")).to_contain_text("All listed groups")


def test_what_the_bounds_did_is_said(tab: Visit, released: dps.PrivateTable) -> None:
    card = tab.card("Groups")
    for name, words in released.meanings.items():
        expect(card.locator("dt", has_text=name)).to_have_count(1)
        expect(card).to_contain_text(words)


def test_all_rows_are_saved_as_they_are_sorted(tab: Visit, released: dps.PrivateTable) -> None:
    tab.page.get_by_role("columnheader", name="count").get_by_role("button").click()
    expect(tab.page.locator("tbody tr").first).to_contain_text(BAD)
    with tab.page.expect_download() as saved:
        tab.page.get_by_role("button", name="Save as CSV").click()
    assert saved.value.suggested_filename == "rain.csv"
    with Path(saved.value.path()).open(encoding="utf-8", newline="") as lines:
        [head, *found] = csv.reader(lines)
    assert head == released.columns
    expected = sorted(released.to_json(), key=lambda row: -row["count"])
    assert [[float(cell) for cell in row[2:]] for row in found] == [list(row.values())[2:] for row in expected]
    assert {row[0] for row in found} >= {BAD, f"'{FORMULA}"}  # no spreadsheet computes it
    with tab.page.expect_download() as saved:
        tab.page.get_by_role("button", name="Save as JSON").click()
    kept = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))
    assert [dict(zip(kept["columns"], row, strict=True)) for row in kept["rows"]] == expected
    assert kept["guarantee"]["epsilon"] == 4.0


@pytest.mark.parametrize(
    ("look", "width", "scheme"), [("phone", 360, "light"), ("dark", 390, "dark"), ("wide", 1280, "light")]
)
def test_it_fits_its_screen_and_can_be_read(
    browser: Browser, address: str, look: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with visit(browser, address, width=width, scheme=scheme) as seen:
        open_table(seen)
        seen.keep_picture(f"table-{look}")
        assert seen.overflow() <= 0
        assert seen.poor_contrast()["poor"] == []
        # What does not fit is reached by scrolling the table, by keyboard too.
        scroller = seen.page.get_by_role("region", name="Table of groups")
        scroller.focus()
        seen.page.keyboard.press("End")
        expect(seen.page.locator("tfoot")).to_be_in_viewport()
        if AXE.exists():
            assert seen.violations() == []
