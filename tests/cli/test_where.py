"""--where and computed keys in the shell, and what is refused before anything is read or charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    rows = ["UA,SFO,600,2026-01-01 10:20:00", "UA,JFK,300,2026-01-01 10:50:00", "B6,BOS,700,2026-01-01 11:00:00"]
    path = tmp_path / "flights.csv"
    path.write_text("carrier,dest,distance,ts\n" + "".join(f"{row}\n" for row in rows * 500))
    return path


def top(dpsketch: Any, *options: object) -> dict[Any, float]:
    made = dpsketch("run", *options, *BUDGET, "--no-ledger", "--overwrite", "-o", "out.dps")
    assert made.code == 0, made.err
    return {row.key: row.value for row in dps.load("out.dps").top(9)}  # type: ignore[attr-defined]


def test_a_condition_chooses_the_records(dpsketch: Any, flights: Path) -> None:
    found = top(dpsketch, "histogram", flights, "--key", "dest", "--where", "carrier = 'UA' and distance > 500")
    assert found.keys() == {"SFO"}
    assert abs(found["SFO"] - 500) < 40


def test_a_key_is_computed_where_it_has_parentheses(dpsketch: Any, flights: Path) -> None:
    hour = "date_trunc('hour', cast(ts as timestamp))"
    found = top(dpsketch, "histogram", flights, "--key", hour)
    assert found.keys() == {"2026-01-01 10:00:00", "2026-01-01 11:00:00"}
    found = top(dpsketch, "histogram", flights, "--key", f"carrier,{hour}", "--where", "distance < 650")
    assert found.keys() == {("UA", "2026-01-01 10:00:00")}
    assert dps.load("out.dps").key_columns == ("carrier", hour)  # type: ignore[attr-defined]
    assert dpsketch("query", "out.dps", "UA,2026-01-01 10:00:00").code == 0


def test_a_column_with_parentheses_in_its_name_is_quoted(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("date (UTC)\n" + "monday\n" * 500)
    assert top(dpsketch, "histogram", "t.csv", "--key", '"date (UTC)"').keys() == {"monday"}
    refused = dpsketch("run", "histogram", "t.csv", "--key", "date (UTC)", *BUDGET, "-o", "no.dps")
    assert refused.code == 1
    assert "no column 'UTC'" in refused.err
    assert "double quotes" in " ".join(dpsketch("run", "histogram", "--help").out.split())


@pytest.mark.parametrize(
    "where", ["distance > (select avg(distance) from t)", "row_number() over () < 5", "random() < distance", "dest ="]
)
def test_what_looks_beyond_its_row_is_refused_before_anything_is_charged(
    dpsketch: Any, flights: Path, where: str
) -> None:
    for options in (["--key", "dest", "--where", where], ["--key", f"({where})"]):
        refused = dpsketch("run", "histogram", flights, *options, *BUDGET, "-o", "out.dps")
        assert refused.code == 2
        assert not Path("out.dps").exists()
        assert "no dataset" in dpsketch("ledger", "show").err.lower() + dpsketch("ledger", "show").out.lower()
