"""--sql: a query that reads rows of one source, and nothing that could let one record touch many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    folder = tmp_path / "flights"
    folder.mkdir()
    for i in range(2):
        table = pa.table(
            {
                "carrier": ["UA", "UA", "B6"] * 300,
                "Dest": ["SFO", "JFK", "BOS"] * 300,
                "distance": [600, 300, 700] * 300,
                "who": [f"{i}-{j}" for j in range(900)],
            }
        )
        pa.parquet.write_table(table, folder / f"{i}.parquet")
    return folder


def counted(dpsketch: Any, *options: object) -> Any:
    made = dpsketch("run", *options, *BUDGET, "--no-ledger", "--overwrite", "-o", "out.dps")
    assert made.code == 0, made.err
    loaded: Any = dps.load("out.dps")
    return {row.key: row.value for row in loaded.top(9)}


@pytest.mark.usefixtures("flights")
def test_a_query_names_the_source_the_columns_and_the_condition(dpsketch: Any) -> None:
    query = "select lower(\"Dest\") as to_, carrier from 'flights/*.parquet' where carrier = 'UA' and distance > 500"
    found = counted(dpsketch, "histogram", "--sql", query, "--key", "to_")
    assert found.keys() == {"sfo"}
    assert abs(found["sfo"] - 600) < 40
    assert counted(dpsketch, "histogram", "--sql", query, "--key", "carrier,to_").keys() == {("UA", "sfo")}
    star = "from 'flights/*.parquet' where distance < 650"
    assert counted(dpsketch, "histogram", "--sql", star, "--key", "Dest").keys() == {"SFO", "JFK"}


@pytest.mark.usefixtures("flights")
def test_users_weights_and_counts_are_columns_of_the_query(dpsketch: Any) -> None:
    query = "select Dest, who as person, distance * 2 as far, 5 + 0 * distance as n from 'flights/*.parquet'"
    users = ["--user", "person", "--max-keys", "1"]
    query = query.replace("Dest", '"Dest"')
    assert abs(counted(dpsketch, "histogram", "--sql", query, "--key", "Dest", *users)["JFK"] - 600) < 60
    assert abs(counted(dpsketch, "histogram", "--sql", query, "--key", "Dest", "--count", "n")["JFK"] - 3000) < 60
    weighed = counted(dpsketch, "histogram", "--sql", query, "--key", "Dest", "--weight", "far", "--max-weight", 1000)
    assert abs(weighed["JFK"] - 600 * 600) < 60_000


REFUSED = [
    "select a.Dest from 'flights/*.parquet' a join 'flights/*.parquet' b on a.carrier = b.carrier",
    "select Dest from 'flights/0.parquet', 'flights/1.parquet'",
    "select distinct Dest from 'flights/*.parquet'",
    "select Dest from 'flights/*.parquet' limit 5",
    "select Dest from 'flights/*.parquet' order by distance",
    "select Dest, count(*) as n from 'flights/*.parquet' group by Dest",
    "select Dest from 'flights/*.parquet' group by all",
    "select who as Dest, row_number() over (partition by carrier) as r from 'flights/*.parquet'",
    "select Dest from 'flights/*.parquet' qualify row_number() over () < 5",
    "select Dest from 'flights/*.parquet' using sample 5",
    "select Dest from 'flights/*.parquet' tablesample 5 rows",
    "select Dest from (select * from 'flights/*.parquet')",
    "with x as (from 'flights/*.parquet') select Dest from x",
    "select Dest from 'flights/0.parquet' union all select Dest from 'flights/1.parquet'",
    "select Dest from read_parquet('flights/*.parquet')",
    "select unnest([carrier, Dest]) as Dest from 'flights/*.parquet'",
    "select Dest from 'flights/*.parquet' where distance > (select avg(distance) from 'flights/*.parquet')",
    "select random() as Dest from 'flights/*.parquet'",
    "select columns(*) from 'flights/*.parquet'",
    "select * exclude (who) from 'flights/*.parquet'",
    "select max(Dest) as Dest from 'flights/*.parquet'",
    "select Dest from 'flights/0.parquet'; select 1",
    "values (1)",
    "drop table x",
    "copy (select 1) to 'x.csv'",
    "select",
    "",
]


@pytest.mark.parametrize("query", REFUSED)
@pytest.mark.usefixtures("flights")
def test_what_could_let_one_record_touch_many_rows_is_refused(dpsketch: Any, query: str, tmp_path: Path) -> None:
    refused = dpsketch(
        "run", "histogram", "--sql", query, "--key", "Dest", "--user", "who", "--max-keys", "1", *BUDGET, "-o", "o.dps"
    )
    assert refused.code == 2, refused.out
    assert "touch many" in refused.err or "not one SQL" in refused.err or "one record" in refused.err
    assert not (tmp_path / "o.dps").exists()
    assert not (tmp_path / "dpsketch" / "ledger.db").exists()


@pytest.mark.usefixtures("flights")
def test_what_does_not_go_with_a_query_is_said(dpsketch: Any) -> None:
    query = "select carrier, \"Dest\", distance as distance from 'flights/*.parquet'"
    cases = [
        (["--sql", query, "--key", "who"], "--sql does not select", 2),
        (["--sql", query, "--key", "Dest", "--user", "who", "--max-keys", "1"], "--sql does not select", 2),
        (["--sql", query, "--key", "lower(carrier)"], "SELECT … AS name", 2),
        (["--sql", query, "--key", "Dest", "--where", "distance > 1"], "drop SOURCE and --where", 2),
        (["flights/0.parquet", "--sql", query, "--key", "Dest"], "drop SOURCE and --where", 2),
        (["--sql", "select lower(carrier) from 'flights/*.parquet'", "--key", "c"], "AS name", 2),
        (["--sql", "select carrier as c, who as c from 'flights/*.parquet'", "--key", "c"], "one name", 2),
        (["--sql", "select nowhere from 'flights/*.parquet'", "--key", "nowhere"], "no column 'nowhere'", 1),
        (["--key", "Dest"], "Name what to read", 2),
    ]
    for options, words, code in cases:
        refused = dpsketch("run", "histogram", *options, *BUDGET, "-o", "o.dps")
        assert (refused.code, words in refused.err) == (code, True), (options, refused.err)
