"""A stream's published days on the service: what its routes answer, and a day more without a restart."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import dpsketch as dps
from browsing import service
from dpsketch.sketches.continual.folder import StreamFolder
from serving import wait_for

DAYS, BUDGET = 9, {"epsilon": 1.0, "delta": 1e-6}
NAMES = ["tea", "milk"]


class Running(NamedTuple):
    """The address of a service, and the folder that it mounts."""

    address: str
    folder: Path

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
    streams = {
        "drinks": begun(dps.Histogram(unit=unit, key_type="text"), keys=NAMES),
        "sums": begun(dps.CountSketch(rows=5, width=256, unit=unit, key_type="text"), design="pan-private"),
        "waits": begun(dps.RangeSketch(bits=8, unit=unit)),
    }
    for day in range(DAYS):
        streams["drinks"].day(["tea"] * (200 + 100 * day) + ["milk"] * 50)
        streams["sums"].day(["tea"] * 300)
        streams["waits"].day(list(range(10 * day, 10 * day + 50)) * 20)
    for name, stream in streams.items():
        stream.series().save(published / f"{name}.dps")
    (published / "drinks.keys").write_text("\n".join(NAMES))
    options = (f"--store={folder / 'service.db'}", f"--mount={published}", "--public-read", "--compute-rate", "100")
    with service(folder / "log", *options) as address:
        yield Running(address, published)


def test_days_are_listed_with_what_they_count(running: Running) -> None:
    shown = {each["name"]: each for each in running.get("releases", kind="series")["releases"]}
    assert {name: each["questions"] for name, each in shown.items()} == {
        "drinks": ["curve", "change", "estimate", "top"],
        "sums": ["curve", "change", "estimate", "top", "decode"],
        "waits": ["curve", "change", "range"],
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


def test_days_that_are_not_there_are_refused(running: Running) -> None:
    for route, asked in (
        ("curve", {"key": "tea", "window": DAYS + 1}),
        ("curve", {"key": "neither"}),
        ("change", {"key": "tea", "later": [5, 3], "earlier": [1, 2]}),
        ("estimate", {"keys": ["tea"], "last": DAYS + 1}),
    ):
        answer = running.post(f"releases/{running.named('drinks')['id']}/{route}", asked)
        assert answer.status_code == 422
        assert "neither" not in answer.text


def test_a_new_day_appears_without_a_restart(running: Running) -> None:
    """The file of yesterday is gone; the newest of its name is shown."""
    stream, path = begun(dps.Histogram(unit=dps.per_record(), key_type="text"), keys=NAMES), running.folder / "new.dps"
    found: list[str] = []
    for _ in range(2):
        stream.day(["tea"] * 4000)
        stream.series().save(path)
        wait_for(lambda: {each["id"] for each in running.get("releases", name="new")["releases"]} - {*found})
        found.append(running.named("new")["id"])
    days = running.get(f"releases/{found[1]}/curve", key="tea", window=1)["estimates"]
    assert [each["value"] for each in days] == pytest.approx([4000] * 2, abs=100)
    assert httpx.get(f"{running.address}/v1/releases/{found[0]}").status_code == 404
    path.unlink()


def test_the_state_of_a_stream_is_never_mounted(tmp_path: Path, running: Running) -> None:
    state = tmp_path / "state"
    StreamFolder(state).begin(begun(dps.Histogram(unit=dps.per_record(), key_type="text"), keys=NAMES))
    (state / "beside.dps").write_bytes((running.folder / "drinks.dps").read_bytes())
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
