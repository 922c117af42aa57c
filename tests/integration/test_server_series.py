"""A stream's published days on the service: what its routes answer, and a day more without a restart."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, expect

import dpsketch as dps
from browsing import service, visit
from dpsketch.sketches.continual.folder import StreamFolder

DAYS, BUDGET = 9, {"epsilon": 1.0, "delta": 1e-6}
NAMES = ["tea", "milk"]


class Running(NamedTuple):
    """The address of a service, the folder that it mounts, and a stream that goes on."""

    address: str
    folder: Path
    stream: dps.ContinualSketch

    def get(self, route: str, **asked: Any) -> Any:
        answer = httpx.get(f"{self.address}/v1/{route}", params=asked, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, route: str, asked: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/{route}", json=asked, timeout=60)

    def named(self, name: str) -> Any:
        (found,) = self.get("releases", name=name)["releases"]
        return found


def begun(sketch: Any, **given: Any) -> dps.ContinualSketch:
    return dps.ContinualSketch(sketch, days=30, first_day="2026-11-01", **BUDGET, **given)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    unit, folder = dps.per_record(), tmp_path_factory.mktemp("series")
    published = folder / "published"
    published.mkdir()
    drinks = begun(dps.Histogram(unit=unit, key_type="text"), keys=NAMES)
    found = begun(dps.Histogram(unit=unit, key_type="text"))
    sums = begun(dps.CountSketch(rows=5, width=256, unit=unit, key_type="text"), design="pan-private")
    waits = begun(dps.RangeSketch(bits=8, unit=unit))
    place = begun(
        dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=20, unit=unit, bounds=[(0, 10)])
    )
    for day in range(DAYS):
        drinks.day(["tea"] * (200 + 100 * day) + ["milk"] * 50)
        found.day(["tea"] * 300 + ["seen once"])
        sums.day(["tea"] * 300)
        waits.day(list(range(10 * day, 10 * day + 50)) * 20)
        place.day(np.full((500, 1), 4.0))
    for name, stream in {"drinks": drinks, "found": found, "sums": sums, "waits": waits, "place": place}.items():
        stream.series().save(published / f"{name}.dps")
    (published / "drinks.keys").write_text("\n".join(NAMES))
    options = (f"--store={folder / 'service.db'}", f"--mount={published}", "--public-read", "--compute-rate", "100")
    with service(folder / "log", *options) as address:
        yield Running(address, published, drinks)


def test_days_are_listed_with_what_they_count(running: Running) -> None:
    shown = {each["name"]: each for each in running.get("releases", kind="series")["releases"]}
    assert {name: each["questions"] for name, each in shown.items()} == {
        "drinks": ["curve", "change", "estimate", "top"],
        "found": ["curve", "change", "estimate", "top"],
        "sums": ["curve", "change", "estimate", "top", "decode"],
        "waits": ["curve", "change", "range"],
        "place": ["curve", "change", "density"],
    }
    assert [name for name, each in shown.items() if each["needs_candidates"]] == ["sums"]
    whole = running.get(f"releases/{shown['drinks']['id']}")
    facts = {"days_published": DAYS, "first_day": "2026-11-01", "last_day": "2026-11-09", "of": "histogram"}
    assert {name: whole["facts"][name] for name in facts} == facts
    assert whole["examples"] == NAMES
    assert whole["guarantee"]["epsilon"] == 1.0


def test_curves_windows_days_and_changes_are_those_of_the_stream(running: Running) -> None:
    one = f"releases/{running.named('drinks')['id']}"
    series = dps.load(running.folder / "drinks.dps")
    asked = {"key": "tea", "confidence": 0.9, "window": 7}
    found, expected = running.get(f"{one}/curve", **asked)["estimates"], series.curve("tea", window=7, confidence=0.9)
    assert [each["key"] for each in found] == expected.key
    assert [each["low"] for each in found] == pytest.approx(expected.low.tolist())
    wide = running.get(f"{one}/curve", key="tea", together=True)
    assert wide["joint"] is True
    assert wide["estimates"][0]["high"] > running.get(f"{one}/curve", key="tea")["estimates"][0]["high"]
    answer = running.get(f"{one}/estimate", key="milk", first=3, last=9)["estimates"][0]
    assert answer["value"] == pytest.approx(series.between(3, 9).estimate(["milk"]).value[0])
    # Without days, all of them.
    assert running.get(f"{one}/estimate", key="tea")["estimates"][0]["value"] == pytest.approx(
        series.total().estimate(["tea"]).value[0]
    )
    listed = running.get(f"{one}/top", first=9, last=9)["estimates"]
    assert [each["key"] for each in listed] == NAMES
    asked = {"key": "tea", "later": [8, 9], "earlier": [1, 2]}
    (changed,) = running.post(f"{one}/change", asked).json()["estimates"]
    expected = series.change("tea", (8, 9), (1, 2))
    assert (changed["value"], changed["low"]) == pytest.approx((expected.value[0], expected.low[0]))
    assert httpx.get(f"{running.address}/v1/{one}/curve", params={"key": "tea", "format": "csv"}).text.startswith("key")


def test_every_kind_of_days_answers(running: Running) -> None:
    waits, place, sums, found = (running.named(name)["id"] for name in ("waits", "place", "sums", "found"))
    quantiles = running.get(f"releases/{waits}/curve", key="50%", window=1)["estimates"]
    assert quantiles[-1]["value"] - quantiles[0]["value"] == pytest.approx(80, abs=15)
    assert running.get(f"releases/{waits}/curve", key="0:127", window=1)["estimates"][0]["value"] > 800
    assert len(running.get(f"releases/{place}/curve", key="4.0")["estimates"]) == DAYS
    assert running.get(f"releases/{place}/grid", size=8, first=2, last=3)["bounds"] == [[0.0, 10.0]]
    asked = {"keys": ["tea"], "estimator": "median", "first": 9, "last": 9}
    counted = running.post(f"releases/{sums}/estimate", asked).json()
    assert counted["estimates"][0]["value"] == pytest.approx(300, abs=120)
    assert "seizure" in counted["guarantee"]["caveat"]
    assert [each["key"] for each in running.get(f"releases/{found}/top")["estimates"]] == ["tea"]


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        ("curve", {"key": "tea", "window": DAYS + 1}),
        ("curve", {"key": "neither"}),
        ("change", {"key": "tea", "later": [5, 3], "earlier": [1, 2]}),
        ("estimate", {"keys": ["tea"], "last": DAYS + 1}),
    ],
)
def test_days_that_are_not_there_are_refused(running: Running, route: str, asked: dict[str, Any]) -> None:
    answer = running.post(f"releases/{running.named('drinks')['id']}/{route}", asked)
    assert answer.status_code == 422
    assert "neither" not in answer.text


def wait_for(condition: Any, seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "the service took no note"
        time.sleep(0.2)


@pytest.mark.full
def test_the_page_draws_an_answer_over_time(browser: Browser, running: Running) -> None:
    with visit(browser, running.address) as tab:
        tab.open("/releases/newest/drinks")
        card = tab.card("Over time")
        expect(card.locator("svg path.line")).to_have_count(1)
        card.get_by_label("Sums of").select_option("7")
        expect(card.locator("svg")).to_contain_text("tea, the last 7 days")
        card.get_by_label("Key over time").fill("milk")
        card.get_by_role("button", name="Draw").click()
        expect(card.locator("svg")).to_contain_text("milk, the last 7 days")
        tab.page.get_by_label("From day").fill("9")
        tab.page.get_by_label("From day").press("Tab")
        expect(tab.card("Which days")).to_contain_text("2026-11-09 to 2026-11-09")


def test_a_new_day_appears_without_a_restart(running: Running) -> None:
    before = running.named("drinks")["id"]
    running.stream.day(["tea"] * 4000 + ["milk"] * 50)
    running.stream.series().save(running.folder / "drinks.dps")
    wait_for(lambda: running.named("drinks")["id"] != before)
    found = running.get(f"releases/{running.named('drinks')['id']}/curve", key="tea", window=1)["estimates"]
    assert len(found) == DAYS + 1
    assert found[-1]["value"] == pytest.approx(4000, abs=100)
    # The file of yesterday is gone; the newest of its name is shown.
    assert httpx.get(f"{running.address}/v1/releases/{before}").status_code == 404


def test_the_state_of_a_stream_is_never_mounted(tmp_path: Path, running: Running) -> None:
    state = tmp_path / "state"
    StreamFolder(state).begin(begun(dps.Histogram(unit=dps.per_record(), key_type="text"), keys=NAMES))
    running.stream.series().save(state / "beside.dps")
    command = [sys.executable, "-m", "dpsketch", "serve", "--port", "0", f"--store={tmp_path / 'other.db'}"]
    refused = subprocess.run([*command, f"--mount={state}"], capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert "state of a stream, which is sensitive" in re.sub(r"\s+", " ", refused.stderr)
    # A stream that is begun in a folder that is mounted already takes what lies there off the list.
    StreamFolder(running.folder).token()
    wait_for(lambda: not running.get("releases", kind="series")["releases"])
    for left in ("stream.begun", "stream.lock"):
        (running.folder / left).unlink()
    wait_for(lambda: running.get("releases", kind="series")["releases"])
