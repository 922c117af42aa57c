"""One release for each part, in one pass: the same as one run a part, named by a list and not by the records."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps

DAYS = ("2026-11-15", "2026-11-16", "2026-11-17")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Two days that are listed, one that is not, one that has no records, and records of no day."""
    path = tmp_path / "visits.csv"
    days = [DAYS[0]] * 300 + [DAYS[1]] * 100 + ["2026-12-24"] * 7 + [""] * 5
    path.write_text("day,url\n" + "".join(f"{day},/{row % 2}\n" for row, day in enumerate(days)))
    (tmp_path / "days.txt").write_text("\n".join(DAYS) + "\n")
    return path


def test_every_listed_part_is_released_and_costs_what_one_does(dpsketch, visits, tmp_path) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "2", "--delta", "1e-6", "--parts", "day")
    asked = ("run", "counts", visits, "--key", "url", "--part-by", "day", "--parts", "days.txt", *BUDGET)
    planned = dpsketch(*asked, "--dataset", "web", "--dry-run", "--json", "-o", "out")
    assert planned.json["budget"]["allowed"] is True
    made = dpsketch(*asked, "--dataset", "web", "-o", "out")
    assert made.code == 0, made.err
    assert "Read 412 records, 12 of them in no part that 3 names list." in made.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{day}.dps" for day in DAYS]
    shown = dpsketch("ledger", "show", "web", "--json").json["datasets"][0]
    assert (shown["releases"], shown["parts"], shown["epsilon"]) == (3, 3, pytest.approx(1.0))
    released = [dps.load(tmp_path / "out" / f"{day}.dps") for day in DAYS]
    assert released[0].spec == released[1].spec == released[2].spec  # also where there are no records
    for release, expected in zip(released, (150, 50, 0), strict=True):
        assert abs(release.estimate(["/0"]).value[0] - expected) < 40
    assert dpsketch("ledger", "verify", *(tmp_path / "out").iterdir()).code == 0
    again = dpsketch(*asked[:-4], "--epsilon", "1.9", "--delta", "1e-6", "--dataset", "web", "-o", "again-{part}.dps")
    assert again.code == 3
    assert "BudgetExceeded" in again.err
    assert "Read" not in again.err
    assert list(tmp_path.glob("again*")) == []


def test_names_of_files_have_the_part(dpsketch, visits, tmp_path) -> None:
    asked = ("run", "histogram", visits, "--key", "url", "--part-by", "day", "--parts", "days.txt", *BUDGET)
    made = dpsketch(*asked, "--no-ledger", "--json", "-o", "day-{part}.dps")
    assert made.code == 0, made.err
    assert made.json["outputs"] == {day: f"day-{day}.dps" for day in DAYS}
    assert dps.load(tmp_path / f"day-{DAYS[0]}.dps").top(1).key[0] in ("/0", "/1")


def test_what_cannot_be_divided_is_refused(dpsketch, visits, tmp_path) -> None:
    run = ("run", "counts", visits, "--key", "url", *BUDGET, "--no-ledger", "-o", "out")
    by = ("--part-by", "day", "--parts", "days.txt")
    (tmp_path / "twice.txt").write_text("a\na\n")
    (tmp_path / "slash.txt").write_text("../a\n")
    for options, words in (
        (by[:2], "needs --parts FILE"),
        (by[2:], "say that as well"),
        (("--part-by", "day", "--parts", "twice.txt"), "each once"),
        (("--part-by", "day", "--parts", "slash.txt"), "hold a slash"),
        ((*by, "--user", "day", "--max-keys", "1"), "divides records"),
    ):
        refused = dpsketch(*run, *options)
        assert refused.code != 0
        assert words in refused.err
    moment = ("run", "moment", visits, "--key", "url", "--p", "0.5", "--size", "20", "--epsilon", "1", "--delta", "0")
    assert "--part-by does not apply to moment" in dpsketch(*moment, *by, "--no-ledger", "-o", "out").err
    assert not (tmp_path / "out").exists()


def test_a_part_without_records_states_the_same_as_any(dpsketch, tmp_path) -> None:
    """The type of a column is public, and stands in each release: it must not say which parts are empty."""
    table = pa.table({"day": [DAYS[0]] * 4, "item": pa.array([1, 2, 3, None], pa.int64())})
    pq.write_table(table, tmp_path / "items.parquet")
    (tmp_path / "days.txt").write_text("\n".join(DAYS))
    asked = ("run", "counts", "items.parquet", "--key", "item", "--part-by", "day", "--parts", "days.txt", *BUDGET)
    assert dpsketch(*asked, "--no-ledger", "-o", "out").code == 0
    full, *empty = (dps.load(tmp_path / "out" / f"{day}.dps").spec for day in DAYS)
    assert full.key_type == "int"
    assert empty == [full, full]


def test_rows_that_stand_for_many_records_are_divided_with_their_counts(dpsketch, tmp_path) -> None:
    (tmp_path / "days.txt").write_text("\n".join(DAYS[:2]) + "\n")
    (tmp_path / "many.csv").write_text(
        f"day,from,to,n\n{DAYS[1]},a,b,700\n{DAYS[0]},a,b,300\n{DAYS[0]},c,d,90\n2026-12-24,a,b,5000\n"
    )
    asked = ("run", "histogram", "many.csv", "--key", "from,to", "--count", "n", "--part-by", "day")
    made = dpsketch(*asked, "--parts", "days.txt", *BUDGET, "--no-ledger", "-o", "day-{part}.dps")
    assert made.code == 0, made.err
    first, second = (dps.load(tmp_path / f"day-{day}.dps") for day in DAYS[:2])
    assert first.keys == [("a", "b"), ("c", "d")]
    assert abs(first.estimate([("a", "b")]).value[0] - 300) < 20
    assert second.keys == [("a", "b")]
    assert abs(second.estimate([("a", "b")]).value[0] - 700) < 20
