"""dps.sql and dpsketch sql: a GROUP BY query as one release, and queries that cannot be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import noise

BUDGET: dict[str, float] = {"epsilon": 1.0, "delta": 1e-6}
OPTIONS = ["--epsilon", "1", "--delta", "1e-6"]
RECORDS = 9_000


def events() -> pa.Table:
    """9,000 visits of 1,000 visitors: 5,400 in FR, 2,700 in US, 900 in IT, on three days."""
    rng = np.random.default_rng(3)
    number = np.arange(RECORDS)
    ts = np.datetime64("2026-01-01T00:00:00") + (number % 3 * 86_400 + number * 9).astype("timedelta64[s]")
    return pa.table(
        {
            "country": pa.array(np.array(["FR", "US", "IT"])[np.searchsorted([5400, 8100], number, side="right")]),
            "ts": pa.array(ts.astype("datetime64[us]")),
            "visitor": pa.array(number % 1000),
            "amount": pa.array(np.round(rng.uniform(5, 25, RECORDS), 2)),
            "qty": pa.array(number % 4),
        }
    )


EVENTS = events()


def answer(query: str, **options: Any) -> Any:
    return dps.sql(query, {"events": EVENTS}, **{**BUDGET, **options})


def names(private: Any) -> list[str]:
    return [name for name in private.columns if not name.endswith(("_low", "_high"))]


def test_the_command_of_the_public_contract(dpsketch: Any, tmp_path: Path) -> None:
    """Counts are checked at over eight standard deviations of their noise."""
    pa.parquet.write_table(EVENTS, tmp_path / "events.parquet")
    query = (
        "SELECT country, date_trunc('day', ts) AS day, COUNT(*), COUNT(DISTINCT visitor), SUM(amount), AVG(amount), "
        "MEDIAN(amount) FROM 'events.parquet' WHERE amount > 0 GROUP BY ALL"
    )
    made = dpsketch("sql", query, "--user", "visitor", *OPTIONS)
    assert made.code == 0, made.err
    heading, *rows = made.out.splitlines()
    names = "country day count users sum_amount mean_amount quantile_amount_0.5"
    assert heading.split() == names.split()
    assert any(row.startswith("FR       2026-01-01 00:00:00") for row in rows)
    said = " ".join(made.err.split())
    for words in (
        "A record that lacks any of country, day, visitor, amount counts in no column.",
        "Charged to dataset 'events.parquet'",
        "Guarantee: ε = 1, δ = 1e-06, for each user",
    ):
        assert words in said
    kept = dpsketch("sql", f"{query} ORDER BY 3 DESC LIMIT 2", "--user", "visitor", *OPTIONS, "-o", "t.dps", "--json")
    assert kept.code == 0, kept.err
    assert len(kept.json["rows"]) == 2
    assert kept.json["rows"][0]["country"] == "FR"
    whole: Any = dps.load("t.dps")
    assert len(whole) == kept.json["groups"] > 2
    assert whole.spec.types == ("text", "timestamp")


FORMS = [
    "SELECT country AS c, qty, COUNT(*) AS n FROM events GROUP BY country, qty",
    "SELECT country AS c, qty, COUNT(*) AS n FROM events GROUP BY ALL",
    "select e.country as c, e.qty, count() as n from events as e group by e.country, e.qty",
    "SELECT country AS c, qty, COUNT(*) AS n FROM events WHERE true OR qty = 0 GROUP BY ALL;",
]


@pytest.mark.parametrize("query", FORMS)
def test_queries_that_mean_the_same_release_the_same(query: str) -> None:
    """Also as the table that is asked without SQL: the same noise gives the same file."""
    computed = EVENTS.append_column("c", EVENTS["country"])
    table = dps.Table(by=["c", "qty"], columns=[dps.count(name="n")])
    table.update(computed)
    with noise.seeded_noise_for_tests_only(5):
        found = answer(query)
    with noise.seeded_noise_for_tests_only(5):
        expected = table.release(**BUDGET)
    assert found.spec == expected.spec
    assert found.to_arrow().equals(expected.to_arrow())


def test_each_aggregate_is_its_column() -> None:
    query = """
        SELECT country, COUNT(DISTINCT visitor) AS people, COUNT(*), SUM(amount * qty) AS worth, SUM(amount),
            AVG(amount), MEAN(qty) AS each, MEDIAN(amount) AS middle, QUANTILE_CONT(amount, 0.9),
            PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY qty),
            PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY amount DESC)
                AS quarter
        FROM events GROUP BY country
    """
    bounds = {"sum_amount": (0, 300), "mean_amount": (0, 25), "qty": (0, 3), "middle": (0, 30), "worth": (0, 99)}
    private = answer(query, user="visitor", bounds=bounds, grid={"quantile_qty": 1, "middle": 0.5}, over="users")
    assert private.spec.columns == (
        dps.users(name="people"),
        dps.count(),
        dps.sum("(amount * qty)", bounds=(0, 99), name="worth"),
        dps.sum("amount", bounds=(0, 300)),
        dps.mean("amount", bounds=(0, 25), over="users"),
        dps.mean("qty", bounds=(0, 3), over="users", name="each"),
        dps.quantiles("amount", [0.5], bounds=(0, 30), grid=0.5, name="middle"),
        dps.quantiles("amount", [0.9], bounds=(0, 30), grid=0.5),
        dps.quantiles("qty", [0.75], bounds=(0, 3), grid=1),
        dps.quantiles("amount", [0.25], bounds=(0, 30), grid=0.5, name="quarter"),
    )
    assert private.spec.user == "visitor"
    assert names(private)[:4] == ["country", "people", "count", "worth"]


def test_having_order_and_limit_are_of_released_rows() -> None:
    query = "SELECT AVG(amount) AS a, country, COUNT(*) FROM events GROUP BY country "
    with noise.seeded_noise_for_tests_only(1):
        whole = answer(query)
    rows = {row["country"]: row for row in whole.to_json()}
    assert names(whole) == ["a", "country", "count"]
    assert [row["country"] for row in whole.to_json()] == ["FR", "IT", "US"]
    for after, expected in {
        "ORDER BY COUNT(*)": ["IT", "US", "FR"],
        "HAVING count_high < 1800 OR country = 'FR'": ["FR", "IT"],
        "HAVING COUNT(*) / 2 < 900 ORDER BY a": ["IT"],
        "HAVING CAST(country AS INTEGER) > 0": [],  # no row has a number there
    }.items():
        with noise.seeded_noise_for_tests_only(1):
            private = answer(query + after)
        assert [row["country"] for row in private.to_json()] == expected, after
        assert all(row == rows[row["country"]] for row in private.to_json())
        assert (private.groups, private.others) == (whole.groups, whole.others)
        assert private.guarantee == whole.guarantee
        assert len(private.rollup()) == 1
        assert len(private.to_text().splitlines()) == 1 + len(expected)


def test_a_record_without_a_value_counts_for_nothing() -> None:
    """As documented, also where SQL would count it. Noise of scale 1 to 2 passes 80 with probability e⁻⁴⁰."""
    amounts = [1.0] * 400 + [None] * 300 + [float("nan")] * 200
    frame = pa.table({"g": ["a"] * 900, "x": pa.array(amounts), "t": ["t"] * 500 + [None] * 400})
    for query, truth in (
        ("SELECT g, COUNT(*) AS n FROM f GROUP BY g", 900),
        ("SELECT g, COUNT(t) AS n FROM f GROUP BY g", 500),
        ("SELECT g, COUNT(t) AS n, AVG(x) FROM f GROUP BY g", 400),
    ):
        private = dps.sql(query, {"f": frame}, groups=["a"], **BUDGET)
        assert abs(private.to_arrow()["n"][0].as_py() - truth) < 80, query


def test_options_reach_the_table(dpsketch: Any, tmp_path: Path) -> None:
    pa.parquet.write_table(EVENTS, tmp_path / "e.parquet")
    (tmp_path / "g.csv").write_text("country\nUS\nXX\n")
    query = "SELECT country, AVG(amount) AS a, MEDIAN(qty) FROM 'e.parquet' GROUP BY country"
    made = dpsketch(
        "sql", query, "--user", "visitor", "--max-keys", "2", "--max-records", "9", "--bounds", "a=0:25", "--grid",
        "qty=1", "--over", "users", "--groups", "g.csv", "--neighbours", "replace", *OPTIONS, "-o", "t.dps",
    )  # fmt: skip
    assert made.code == 0, made.err
    private: Any = dps.load("t.dps")
    assert private.groups == ["US", "XX"]
    assert private.spec.unit == dps.per_user(max_keys=2, neighbours="replace")
    assert private.spec.max_records == 9
    assert private.spec.columns == (
        dps.mean("amount", bounds=(0, 25), over="users", name="a"),
        dps.quantiles("qty", [0.5], grid=1),
    )


GROUPED = "SELECT country, COUNT(*) AS n FROM events GROUP BY country"
REFUSED = {
    # what is not one SELECT that groups
    "": "not one SELECT",
    f"{GROUPED}; SELECT 1": "not one SELECT",
    "SELECT COUNT(*) FROM events": "has no groups",
    # several sources, or queries within
    f"{GROUPED} UNION ALL {GROUPED}": "combines queries",
    f"WITH x AS (FROM events) {GROUPED.replace('events', 'x')}": "has a WITH",
    "SELECT a.country, COUNT(*) FROM events a JOIN events b ON a.qty = b.qty GROUP BY ALL": "joins sources",
    "SELECT country, COUNT(*) FROM (FROM events) GROUP BY country": "reads a subquery",
    "SELECT country, COUNT(*) FROM read_csv('x.csv') GROUP BY country": "function in FROM",
    "SELECT country, COUNT(*) FROM events GROUP BY country USING SAMPLE 5": "samples",
    # groups that are none
    "SELECT country, COUNT(*) FROM events GROUP BY ROLLUP (country)": "grouping sets",
    "SELECT country, qty, COUNT(*) FROM events GROUP BY country": "neither in GROUP BY nor an aggregate",
    "SELECT visitor % 2 AS visitor, COUNT(*) FROM events GROUP BY 1": "the column of the user",
    "SELECT lower(country) AS country, COUNT(*) FROM events GROUP BY country": "both a column and the alias",
    # aggregates that are none
    "SELECT country, MIN(amount) FROM events GROUP BY country": "no aggregate that can be released.*low values",
    "SELECT country, COUNT(DISTINCT qty) FROM events GROUP BY country": "COUNT\\(DISTINCT …\\) counts users",
    "SELECT country, SUM(amount) FILTER (WHERE qty > 1) FROM events GROUP BY country": "has a FILTER",
    "SELECT country, SUM(amount) / COUNT(*) FROM events GROUP BY country": "computes with an aggregate",
    "SELECT country, SUM(DISTINCT amount) FROM events GROUP BY country": "DISTINCT in sum",
    "SELECT country, COUNT(*) OVER () FROM events GROUP BY country": "has a window",
    "SELECT country, SUM(row_number() OVER ()) FROM events GROUP BY country": "kind window",
    "SELECT random() AS r, COUNT(*) FROM events GROUP BY r": "function random",
    # conditions
    "SELECT country, COUNT(*) FROM events WHERE read_text('/etc/passwd') > '' GROUP BY country": "function read_text",
    f"{GROUPED} QUALIFY row_number() OVER () < 2": "has a QUALIFY",
    f"{GROUPED} HAVING qty > 5": "'qty' is none of them",
    f"{GROUPED} HAVING SUM(amount) > 5": "Select it as well",
    "SELECT DISTINCT country, COUNT(*) FROM events GROUP BY country": "SELECT DISTINCT",
    # sources
    "SELECT country + 1 AS c, COUNT(*) FROM events GROUP BY c": "does not fit the types",
}


@pytest.mark.parametrize("query", REFUSED)
def test_every_other_query_is_refused_with_its_reason_before_it_is_paid_for(query: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with pytest.raises((dps.InvalidInput, dps.SourceError), match=f"(?s){REFUSED[query]}") as refusal:
        answer(query, user="visitor", ledger=url, dataset="events")
    assert str(refusal.value).endswith(".")
    assert refusal.value.__cause__ is None
    assert not (tmp_path / "ledger.db").exists() or not dps.Ledger(url).datasets()


def test_a_refused_query_exits_with_an_error_of_its_own(dpsketch: Any, tmp_path: Path) -> None:
    pa.parquet.write_table(EVENTS, tmp_path / "events.parquet")
    for query, code, words in (
        ("SELECT country, COUNT(*) FROM events.parquet GROUP BY 1", 2, "The name of a file stands in quotes"),
        ("SELECT country, COUNT(*) FROM 'none.parquet' GROUP BY 1", 1, "does not exist"),
    ):
        refused = dpsketch("sql", query, *OPTIONS, "--dataset", "d", "-o", "t.dps")
        assert (refused.code, words in " ".join(refused.err.split())) == (code, True), (query, refused.err)
        assert not (tmp_path / "t.dps").exists()
    assert dpsketch("ledger", "show", "--json").json["datasets"] == []


def test_errors_quote_nothing_of_the_data(tmp_path: Path) -> None:
    """Neither a value that does not convert nor what DuckDB says of it."""
    frame = pa.table({"g": ["secret-group"] * 9, "x": ["secret-7"] * 9})
    for query in (
        "SELECT g, SUM(CAST(x AS DOUBLE)) FROM f GROUP BY g",
        "SELECT CAST(g AS DATE) AS d, COUNT(*) FROM f GROUP BY 1",
        "SELECT g, COUNT(*) FROM f WHERE CAST(x AS INTEGER) > 2 GROUP BY g",
    ):
        for data, source in (({"f": frame}, "f"), (None, f"'{tmp_path / 'f.parquet'}'")):
            pa.parquet.write_table(frame, tmp_path / "f.parquet")
            with pytest.raises(dps.SourceError) as refusal:
                dps.sql(query.replace(" f ", f" {source} "), data, **BUDGET)
            told = [str(refusal.value), repr(refusal.value.__cause__), repr(refusal.value.__context__)]
            assert "secret" not in "".join(told)


def test_bounds_are_by_name_or_by_column() -> None:
    query = "SELECT country, SUM(amount), AVG(amount), COUNT(*) FROM events GROUP BY country"
    by_column = answer(query, bounds={"amount": (0, 25)}).spec.columns
    assert by_column[:2] == (dps.sum("amount", bounds=(0, 25)), dps.mean("amount", bounds=(0, 25)))
    with pytest.raises(dps.InvalidInput, match=r"one user's total in one group.*sum_amount, mean_amount"):
        answer(query, user="visitor", bounds={"amount": (0, 25)})
    for wrong in ({"count": (0, 1)}, {"sum_amount": (5, 1)}):
        with pytest.raises(dps.InvalidInput, match="bounds"):
            answer(query, bounds=wrong)


def test_a_connection_is_asked_for_its_tables_and_no_file() -> None:
    """DuckDB would read a file, with types that its values suggest."""
    for name in ("none", "'none.csv'"):
        with pytest.raises(dps.InvalidInput, match="no table or view"):
            dps.sql(GROUPED.replace("events", name), duckdb.connect(), **BUDGET)
    connection = duckdb.connect()
    connection.register("source", EVENTS)
    connection.execute("CREATE SCHEMA s; CREATE TABLE s.events AS FROM source")
    assert len(dps.sql(GROUPED.replace("events", "s.events"), connection, **BUDGET)) == 3
