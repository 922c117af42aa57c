"""Limits of sums, features, lists and stores that are met by few inputs."""

from __future__ import annotations

import asyncio
import csv
import io
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.noise import DiscreteLaplace
from dpsketch.results import Estimates
from dpsketch.server import service
from dpsketch.server.releases import Releases, Served
from dpsketch.server.storage import Mark, Storage
from dpsketch.sketches.histogram import intervals
from dpsketch.sketches.histogram.private import Passed
from tests.effort import instructions


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("keys", [1, 5, 50, 1000])
@pytest.mark.parametrize(("law", "cutoff"), [(DiscreteLaplace(1.0, 1), 14), (DiscreteLaplace(0.1, 1), 140)])
def test_sums_of_keys_that_only_noise_has_listed_are_covered(
    law: DiscreteLaplace, cutoff: int, keys: int, confidence: float
) -> None:
    # Given that a key of one record passed, what it passed by is geometric.
    beyond = np.random.default_rng(7).geometric(-np.expm1(-law.epsilon / law.sensitivity), size=(400, keys)) - 1
    reach = intervals.sum_width(law, keys, (1 - confidence) / 2)
    covered = 0
    for each in beyond:
        counts = (cutoff + each).astype(np.int64)
        added = Passed(counts, law, cutoff).added(np.arange(keys), confidence)
        covered += counts.sum() - added - reach <= keys <= counts.sum() + reach
    assert covered / 400 > confidence - 3 * np.sqrt(confidence * (1 - confidence) / 400)


@pytest.mark.parametrize("features", ["series", "nystrom"])
def test_points_far_from_zero_are_told_apart(features: Any) -> None:
    start = 1.76e18  # nanoseconds since 1970
    points = start + 1e9 * np.arange(0, 1000, 0.5)[:, None]
    more: dict[str, Any] = (
        {"bounds": (start, start + 1e12)}
        if features == "series"
        else {"landmarks": start + 1e9 * np.arange(0, 1000, 1.0)}
    )
    kernel = dps.kernels.Gaussian(1, 1e9)
    sketch = dps.DensitySketch(kernel=kernel, features=features, unit=dps.per_record(), **more)
    sketch.update(points)
    found = sketch.release(epsilon=8.0, delta=1e-6).estimate(points[500:501], confidence=0.9999)
    truth = kernel.similarity(points[500:501], points).sum()
    assert found.low[0] <= truth <= found.high[0] < 50


@pytest.mark.parametrize("features", ["fourier", "signs"])
def test_one_row_shows_no_error_and_is_refused(features: Any) -> None:
    kernel = dps.kernels.Angular(2, power=1) if features == "signs" else dps.kernels.Gaussian(2, 1.0)
    with pytest.raises(InvalidInput, match="rows"):
        dps.DensitySketch(kernel=kernel, rows=1, features=features, unit=dps.per_record())


def test_a_series_of_no_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="narrow"):
        dps.DensitySketch(kernel=dps.kernels.Gaussian(1, 1e-300), bounds=(0, 1e300), unit=dps.per_record())


def test_inner_products_with_nobody_and_of_long_vectors() -> None:
    kernel = dps.kernels.Linear(2)
    assert kernel.similarity([[1, 0]], np.zeros((0, 2))).shape == (1, 0)
    assert kernel.similarity([[1e200, 0]], [[1e200, 0], [0.5, 0]]).tolist() == [[1.0, 0.5]]


def test_a_key_is_one_field_of_a_table_whatever_it_holds() -> None:
    keys = ["a\rb", "c\nd", "e\r\nf", 'g"h', "i,j", "k"]
    found = Estimates(keys, *np.ones((3, len(keys))), 0.95)
    rows = list(csv.reader(io.StringIO(found.to_csv(), newline="")))
    assert [row[0] for row in rows[1:]] == keys
    assert {len(row) for row in rows} == {4}


def _served(number: int, name: str) -> Served:
    sketch = dps.Histogram(unit=dps.per_record())
    release = _RELEASE or sketch.release(epsilon=1.0, delta=0, keys=[1])
    return Served(f"{number:016x}", name, "histogram", 1, None, float(number), release)


_RELEASE: Any = None


def _shelf(count: int) -> Releases:
    releases = Releases(None)  # type: ignore[arg-type]
    for number in range(count):
        releases._put(_served(number, f"visits {number % 4}"))
    return releases


def test_the_list_of_many_releases_grows_with_their_number_and_survives_changes() -> None:
    """Ten times as many releases are ten times the work (a look at all of them for each would be 100 times)."""
    global _RELEASE
    _RELEASE = _served(0, "").release
    releases = _shelf(400)
    assert instructions(releases.views) < 11 * instructions(_shelf(40).views)
    views = releases.views()
    assert [(each["version"], each["versions"]) for each in views[:2]] == [(100, 100), (99, 100)]
    assert all(views[i] == releases.view(releases.get(views[i]["id"])) for i in (0, 1, 99, 399))
    gone = releases.get(views[0]["id"])
    before = releases.changes
    with releases._lock:
        del releases._all[gone.id]
    assert releases.view(gone)["version"] == 100  # as it was when it was looked up
    releases._put(gone)
    assert releases.changes == before + 1


def test_a_store_keeps_no_order_of_tickets(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    storage = Storage(str(file))
    storage.claim()
    storage.append([], {}, [Mark("c", 0, "ff"), Mark("c", 1, "aa")])
    assert storage.used_marks([Mark("c", 0, "ff"), Mark("c", 0, "aa"), Mark("d", 0, "ff")]) == {Mark("c", 0, "ff")}
    storage.close()
    with sqlite3.connect(file) as new, pytest.raises(sqlite3.OperationalError, match="rowid"):
        new.execute("SELECT rowid FROM dpsketch_mark")


def test_housekeeping_goes_on_after_whatever_failed() -> None:
    class Failing:
        class tokens:  # noqa: N801
            refresh_seconds = 0.001

        rounds = 0

        async def keep_house(self) -> None:
            self.rounds += 1
            raise FileRefused("a release of a newer version")

    async def watch() -> int:
        failing: Any = Failing()
        task = asyncio.create_task(service._keep_house(failing))
        await asyncio.sleep(0.1)
        task.cancel()
        return int(failing.rounds)

    assert asyncio.run(watch()) > 2
