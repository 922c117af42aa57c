"""The page for the kinds of releases that the demo does not hold."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

import dpsketch as dps
from browsing import Visit, releases, service, visit
from dpsketch import local

CHROMIUM = shutil.which("chromium")
LARGE = 2**63 + 1  # rounded, it would be another key

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser: chromium is not installed")


def save_releases(folder: Path) -> None:
    unit = dps.per_record()
    histogram = dps.Histogram(unit=unit)
    histogram.update(["oolong", "assam", "once"], counts=[9000, 4000, 1])
    histogram.release(epsilon=1.0, delta=1e-6).save(folder / "teas.dps")
    heavy = dps.HeavyHitters(unit=unit, rows=5, width=512, key_bits=64)
    heavy.update(np.array([LARGE, 7], dtype=np.uint64), counts=np.array([90_000, 50_000]))
    heavy.release(epsilon=1.0, delta=1e-6).save(folder / "numbers.dps")
    sparse = dps.SparseHistogram(unit=unit, domain=2**64)
    sparse.update(["tea", "milk"], counts=[5000, 200])
    sparse.release(epsilon=1.0, delta=0).save(folder / "drinks.dps")
    moments = dps.MomentProfile(p=(0.25, 0.5, 1.0), size=100, unit=unit)
    moments.update([str(number % 50) for number in range(5000)])
    moments.release(epsilon=4.0, delta=1e-6).save(folder / "moments.dps")
    line = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=200, unit=unit, bounds=[(0, 10)], columns=("age",)
    )
    line.update(np.linspace(2, 4, 5000)[:, None])
    line.release(epsilon=1.0, delta=1e-6).save(folder / "line.dps")
    protocol = local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text")
    collector = protocol.collector().add(protocol.report([["tea"]] * 900 + [["milk"]] * 100))
    collector.save(folder / "people.dps")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("kinds")
    save_releases(folder)
    options = (f"--store={folder / 'service.db'}", f"--mount={folder}", "--public-read")
    with service(folder / "log", *options) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        with visit(browser, address) as opened:
            yield opened
        browser.close()


def open_kind(tab: Visit, kind: str) -> None:
    tab.open(f"/releases/{releases(tab.address)[kind]}")
    tab.keep_picture(f"kind-{kind}-wide")


def test_integer_keys_of_64_bits_are_not_rounded(tab: Visit) -> None:
    open_kind(tab, "heavy")
    card = tab.card("The largest keys")
    assert card.locator("text.label").all_text_contents()[:2] == [str(LARGE), "7"]
    tab.page.get_by_label("Key (a whole number)").fill(str(LARGE))
    tab.page.keyboard.press("Enter")
    expect(tab.card("Look up a key").locator(".answer")).to_contain_text(re.compile(rf"{LARGE}: about (89,9|90,0)"))
    tab.page.get_by_label("Key (a whole number)").fill("seven")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("alert").filter(visible=True)).to_contain_text("whole numbers")


def test_a_histogram_shows_its_keys_without_a_list(tab: Visit) -> None:
    open_kind(tab, "histogram")
    card = tab.card("The largest keys")
    assert card.locator("text.label").all_text_contents() == ["oolong", "assam"]
    tab.page.get_by_label("Key, exactly").fill("assam")
    tab.page.keyboard.press("Enter")
    expect(tab.card("Look up a key").locator(".answer")).to_contain_text(re.compile(r"assam: about (3,9|4,0)"))


def test_a_sparse_histogram_is_asked_about_named_keys(tab: Visit) -> None:
    open_kind(tab, "sparse")
    card = tab.card("The largest keys")
    card.get_by_role("button", name="Show the largest").click()
    expect(card.get_by_role("alert")).to_contain_text("Write some keys that may occur")
    card.get_by_label("Candidates").fill("milk\ntea\nwater")
    card.get_by_role("button", name="Show the largest").click()
    expect(card.locator("text.label").first).to_have_text("tea")
    expect(card).to_contain_text("Counted: records.")


def test_a_release_without_a_key_type_is_asked_for_text_or_whole_numbers(tab: Visit) -> None:
    open_kind(tab, "sparse")
    card = tab.card("Look up a key")
    card.get_by_label("Key, exactly").fill("tea")
    tab.page.keyboard.press("Enter")
    expect(card.locator(".answer")).to_contain_text(re.compile(r"tea: about [45],\d"))
    card.get_by_label("Its keys are").select_option("int")
    tab.page.keyboard.press("Enter")
    card.get_by_role("button", name="Look up").click()
    expect(card.get_by_role("alert")).to_contain_text("whole numbers")


def test_several_moments_are_stated_and_compared(tab: Visit) -> None:
    open_kind(tab, "moments")
    card = tab.card("What it states")
    expect(card.locator(".answer")).to_have_count(3)
    expect(card.locator("rect.bar")).to_have_count(3)


def test_a_density_along_a_line_is_a_curve_with_its_band(tab: Visit) -> None:
    open_kind(tab, "density")
    expect(tab.page.locator("path.band")).to_have_count(1)
    tab.page.get_by_label("age", exact=True).fill("3")
    tab.page.get_by_role("button", name="Ask here").click()
    expect(tab.page.locator(".answer")).to_contain_text("Density at age 3: about 0.")


def test_reports_in_a_file_are_shares_of_people(tab: Visit) -> None:
    open_kind(tab, "local")
    tab.page.get_by_label("Key, exactly").fill("tea")
    tab.page.keyboard.press("Enter")
    expect(tab.card("Look up a key").locator(".answer")).to_contain_text("% and ")
