"""--sql, --where and computed keys: rows of one source, and nothing that could let one record touch many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture(autouse=True)
def flights(tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    for i in range(2):
        table = pa.table(
            {
                "carrier": ["UA", "UA", "B6"] * 300,
                "Dest": ["SFO", "JFK", "BOS"] * 300,
                "distance": [600, 300, 700] * 300,
                "who": [f"{i}-{j}" for j in range(900)],
                "ts": ["2026-01-01 10:20:00", "2026-01-01 10:50:00", "2026-01-01 11:00:00"] * 300,
            }
        )
        pa.parquet.write_table(table, folder / f"{i}.parquet")


def counted(dpsketch: Any, *options: object) -> Any:
    made = dpsketch("run", "histogram", *options, *BUDGET, "--no-ledger", "--overwrite", "-o", "out.dps")
    assert made.code == 0, made.err
    loaded: Any = dps.load("out.dps")
    return {row.key: row.value for row in loaded.top(9)}


def test_a_query_names_the_source_the_columns_and_the_condition(dpsketch: Any) -> None:
    query = "select lower(\"Dest\") as to_, carrier from 'flights/*.parquet' where carrier = 'UA' and distance > 500"
    found = counted(dpsketch, "--sql", query, "--key", "to_")
    assert found.keys() == {"sfo"}
    assert abs(found["sfo"] - 600) < 40
    assert counted(dpsketch, "--sql", query, "--key", "carrier,to_").keys() == {("UA", "sfo")}
    star = "from 'flights/*.parquet' where distance < 650"
    assert counted(dpsketch, "--sql", star, "--key", "Dest").keys() == {"SFO", "JFK"}


def test_a_condition_chooses_the_records_and_a_key_is_computed_where_it_has_parentheses(dpsketch: Any) -> None:
    source, hour = "flights/*.parquet", "date_trunc('hour', cast(ts as timestamp))"
    found = counted(dpsketch, source, "--key", "Dest", "--where", "carrier = 'UA' and distance > 500")
    assert found.keys() == {"SFO"}
    assert abs(found["SFO"] - 600) < 40
    users = ["--user", "who", "--max-keys", "1", "--where", "distance < 650"]
    found = counted(dpsketch, source, "--key", f"carrier,{hour}", *users)
    assert found.keys() == {("UA", "2026-01-01 10:00:00")}
    assert dps.load("out.dps").key_columns == ("carrier", hour)  # type: ignore[attr-defined]
    assert dpsketch("query", "out.dps", "UA,2026-01-01 10:00:00").code == 0


@pytest.mark.parametrize(
    "asked",
    [
        ["--sql", "select Dest from 'flights/0.parquet', 'flights/1.parquet'"],
        ["--sql", "select Dest from 'flights/*.parquet' limit 5"],
        ["flights/*.parquet", "--where", "distance > (select avg(distance) from t)"],
        ["flights/*.parquet", "--where", "random() < distance"],
        ["flights/*.parquet", "--key", "(random() < distance)"],
    ],
    ids=" ".join,
)
def test_what_could_let_one_record_touch_many_rows_is_refused_before_it_is_paid_for(
    dpsketch: Any, asked: list[str], tmp_path: Path
) -> None:
    key = [] if "--key" in asked else ["--key", "Dest"]
    refused = dpsketch("run", "histogram", *asked, *key, *BUDGET, "-o", "o.dps")
    assert refused.code == 2, refused.out
    assert "one record" in refused.err or "touch many" in refused.err
    assert not (tmp_path / "o.dps").exists()
    assert not (tmp_path / "dpsketch" / "ledger.db").exists()


def test_what_does_not_go_with_a_query_is_said(dpsketch: Any) -> None:
    query = "select carrier, \"Dest\", distance as distance from 'flights/*.parquet'"
    for options, words in (
        (["--sql", query, "--key", "who"], "--sql does not select"),
        (["--sql", query, "--key", "lower(carrier)"], "SELECT … AS name"),
        (["flights/0.parquet", "--sql", query, "--key", "Dest"], "drop SOURCE and --where"),
        (["--key", "Dest"], "Name what to read"),
    ):
        refused = dpsketch("run", "histogram", *options, *BUDGET, "-o", "o.dps")
        assert (refused.code, words in refused.err) == (2, True), (options, refused.err)
