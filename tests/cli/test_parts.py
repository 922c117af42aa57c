"""Whose budget pays: datasets that nobody named, parts of one, one release a part, and budgets that protect nobody."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
TOTAL = ("--epsilon", "2", "--delta", "1e-6")
DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Two days that are listed, one that is not, one that has no records, and records of no day."""
    days = [DAYS[0]] * 300 + [DAYS[1]] * 100 + ["2026-12-24"] * 7 + [""] * 5
    rows = "".join(f"{day},/{row % 2},v{row}\n" for row, day in enumerate(days))
    (tmp_path / "visits.csv").write_text("day,url,visitor\n" + rows)
    (tmp_path / "days.txt").write_text("\n".join(DAYS) + "\n")
    return tmp_path / "visits.csv"


def charged(dpsketch: Any) -> dict[str, int]:
    return {each["dataset"]: each["releases"] for each in dpsketch("ledger", "show", "--json").json["datasets"]}


def run(dpsketch: Any, source: object, *more: object) -> Any:
    small = ("--epsilon", "0.5", "--delta", "1e-6", "--overwrite", "-o", "out.dps")
    return dpsketch("run", "counts", source, "--key", "url", *small, *more)


# Datasets that nobody named.


@pytest.mark.parametrize("total", [("--epsilon", "3", "--delta", "1e-5"), ("--rho", "3")])
def test_a_copy_gets_no_fresh_budget_unnoticed(
    dpsketch: Any, visits: Path, tmp_path: Path, total: tuple[str, ...]
) -> None:
    """The name that is asked for once is remembered with the place."""
    dpsketch("ledger", "create", "web", *total)
    assert run(dpsketch, visits, "--dataset", "web").code == 0
    assert run(dpsketch, "visits.csv").code == 0
    copy = tmp_path / "copy.csv"
    shutil.copy(visits, copy)
    refused = run(dpsketch, copy)
    assert refused.code != 0
    assert "does not know the source 'copy.csv', and keeps totals (of 'web')" in refused.err
    assert charged(dpsketch) == {"web": 2}
    assert run(dpsketch, copy, "--dataset", "web").code == 0
    assert run(dpsketch, copy).code == 0
    assert charged(dpsketch) == {"web": 4}
    assert "was charged to dataset 'web' before" in run(dpsketch, visits, "--dataset", "elsewhere").err


def test_two_files_of_one_name_are_told_apart(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    assert run(dpsketch, visits).code == 0
    (tmp_path / "other").mkdir()
    shutil.copy(visits, tmp_path / "other" / "visits.csv")
    assert "another file of that name" in run(dpsketch, tmp_path / "other" / "visits.csv").err
    assert charged(dpsketch) == {"visits.csv": 1}


def test_a_pipe_has_no_name_and_a_list_of_files_gets_one(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    assert "standard input has no name of its own" in run(dpsketch, "-").err
    shutil.copy(visits, tmp_path / "patient-7.csv")
    files = [visits, tmp_path / "patient-7.csv"]
    for same in (files, files[::-1]):  # the same files are the same dataset, in any order
        assert run(dpsketch, *same).code == 0
    [(name, releases)] = charged(dpsketch).items()
    assert name.startswith("several sources ")
    assert releases == 2
    assert b"patient" not in Path("out.dps").read_bytes()


# Parts of a dataset.


def test_a_day_costs_what_the_dearest_day_does(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    """And the ledger names every entry."""
    created = dpsketch("ledger", "create", "web", *TOTAL, "--parts", "day")
    assert created.code == 0, created.err
    asked = ("run", "counts", visits, "--key", "url", "--dataset", "web")
    for day in DAYS[:2]:
        made = dpsketch(*asked, *BUDGET, "--part", day, "-o", f"{day}.dps")
        assert made.code == 0, made.err
        assert f"Charged to dataset 'web', part '{day}': ε=1.00 of 2.00" in made.err
    dear = (*asked, "--epsilon", "1.9", "--delta", "5e-7", "-o", "x.dps")
    fresh = dpsketch(*dear, "--part", DAYS[2], "--dry-run", "--json")
    assert fresh.json["budget"]["allowed"] is True
    again = dpsketch(*dear, "--part", DAYS[0])
    assert again.code == 3
    assert "A release of its kind fits with ε up to" in again.err
    charges = dpsketch("ledger", "history", "web", "--json").json["charges"]
    assert [charge["part"] for charge in charges] == list(DAYS[:2])
    assert charges[0]["origin"] == {"output": f"{DAYS[0]}.dps", "columns": "key url", "who": getpass.getuser()}
    assert dps.Ledger(tmp_path / "dpsketch" / "ledger.db").verify() == []


# One release for each part, in one pass.


def test_every_listed_part_is_released_and_costs_what_one_does(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    dpsketch("ledger", "create", "web", *TOTAL, "--parts", "day")
    asked = ("run", "counts", visits, "--key", "url", "--part-by", "day", "--parts", "days.txt", "--dataset", "web")
    planned = dpsketch(*asked, *BUDGET, "--dry-run", "--json", "-o", "out")
    assert planned.json["budget"]["allowed"] is True
    made = dpsketch(*asked, *BUDGET, "-o", "out")
    assert made.code == 0, made.err
    assert "Read 412 records, 12 of them in no part that 3 names list." in made.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{day}.dps" for day in DAYS]
    shown = dpsketch("ledger", "show", "web", "--json").json["datasets"][0]
    assert (shown["releases"], shown["parts"], shown["epsilon"]) == (3, 3, pytest.approx(1.0))
    released = [dps.load(tmp_path / "out" / f"{day}.dps") for day in DAYS]
    for release, expected in zip(released, (150, 50, 0), strict=True):
        assert abs(release.estimate(["/0"]).value[0] - expected) < 40
    assert dpsketch("ledger", "verify", *(tmp_path / "out").iterdir()).code == 0
    again = dpsketch(*asked, "--epsilon", "1.9", "--delta", "1e-6", "-o", "again-{part}.dps")
    assert again.code == 3
    assert "Read" not in again.err
    assert list(tmp_path.glob("again*")) == []


@pytest.mark.parametrize("options", [("--weight", "four", "--max-weight", "4"), ("--count", "four")])
def test_a_part_counts_its_records_for_what_they_stand_for(
    dpsketch: Any, visits: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """With its weight, or as so many records. A median of rows is off by 8σ with a probability below 1e-14."""
    columns = {"day": [DAYS[0]] * 300 + [DAYS[1]] * 100, "url": ["/0"] * 400, "four": [4] * 400}
    pq.write_table(pa.table(columns), tmp_path / "four.parquet")
    by = ("--part-by", "day", "--parts", "days.txt", *options, "--epsilon", "9", "--delta", "1e-6", "--no-ledger")
    assert dpsketch("run", "counts", "four.parquet", "--key", "url", *by, "-o", "out").code == 0
    for day, expected in zip(DAYS, (1200, 400, 0), strict=True):
        release = dps.load(tmp_path / "out" / f"{day}.dps")
        assert abs(release.estimate(["/0"]).value[0] - expected) < 8 * release.noise_scale < 200


def test_what_cannot_be_divided_is_refused(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    by = ("--part-by", "day", "--parts", "days.txt")
    (tmp_path / "slash.txt").write_text("../a\n")
    for options, words in (
        (by[:2], "needs --parts FILE"),
        ((*by[:3], "slash.txt"), "hold a slash"),
        ((*by, "--user", "day", "--max-keys", "1"), "divides records"),
    ):
        refused = dpsketch("run", "counts", visits, "--key", "url", *options, *BUDGET, "--no-ledger", "-o", "out")
        assert refused.code != 0
        assert words in refused.err
    assert not (tmp_path / "out").exists()


def test_a_part_without_records_states_the_same_as_any(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    """The type of a column is public, and stands in each release: it must not say which parts are empty."""
    table = pa.table({"day": [DAYS[0]] * 4, "item": pa.array([1, 2, 3, None], pa.int64())})
    pq.write_table(table, tmp_path / "items.parquet")
    asked = ("run", "counts", "items.parquet", "--key", "item", "--part-by", "day", "--parts", "days.txt", *BUDGET)
    assert dpsketch(*asked, "--no-ledger", "-o", "out").code == 0
    full, *empty = (dps.load(tmp_path / "out" / f"{day}.dps").spec for day in DAYS)
    assert full.key_type == "int"
    assert empty == [full, full]


def test_a_budget_that_protects_hardly_anyone_is_refused(dpsketch: Any, visits: Path, tmp_path: Path) -> None:
    asked = ("run", "counts", visits, "--key", "url", "--no-ledger", "--overwrite", "-o", "x.dps")
    for spend, words in (
        (("--epsilon", "10", "--delta", "1e-6"), "protects hardly anyone"),
        (("--rho", "5"), "protects hardly anyone"),
        (("--epsilon", "1", "--delta", "0.1"), "δ = 0.1 protects hardly anyone"),
        (("--epsilon", "1", "--delta", "1e-3", "--records", "1e3"), "no less than 1 over the 1,000 records"),
    ):
        refused = dpsketch(*asked, *spend)
        assert refused.code != 0
        assert words in refused.err
        assert not (tmp_path / "x.dps").exists()
        assert dpsketch(*asked, *spend, "--yes").code == 0
        (tmp_path / "x.dps").unlink()
    for spend in (
        ("--epsilon", "9.9", "--delta", "1e-6"),
        ("--rho", "0.5"),
        ("--epsilon", "1", "--delta", "0.009"),
        ("--epsilon", "1", "--delta", "1e-4", "--records", "1e3"),
    ):
        assert dpsketch(*asked, *spend).code == 0
