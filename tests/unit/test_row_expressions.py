"""SQL over one row: what may be asked, what is refused because one record could touch many, and what comes out."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources import Columns, open_source, parse_expression, parse_query
from reading import write

ROWS = [("UA", "600", "2026-01-01 10:20:00"), ("UA", "x9", "2026-01-01 10:50:00"), ("B6", "700", ""), ("", " 501 ", "")]


def write_csv(path: Path, copies: int = 1) -> str:
    path.write_text("carrier,distance,ts\n" + "".join(",".join(row) + "\n" for row in ROWS * copies))
    return str(path)


def keys(source: str, key: Any, where: str | None = None, computed: tuple[str, ...] = (), **more: Any) -> list[Any]:
    columns = Columns(
        key=key,
        where=None if where is None else parse_expression(where, "--where"),
        computed=tuple(parse_expression(text, "--key") for text in computed),
        **more,
    )
    return [each for batch in open_source([source], columns, batch_rows=3) for each in batch.key.to_pylist()]


BEYOND_THE_ROW = [
    "sum(a) > 1", "count(*) > 1", "first(a) = a", "row_number() over () < 3", "lag(a) over () = a", "a > (select 1)",
    "exists (select 1)", "a in (select b from t)", "a = any (select 1)", "a in (from t)", "random() < a", "now() > a",
    "nextval('s') = a", "read_text('/etc/passwd') = a", "getenv('HOME') = a", "getvariable('x') = a", "error(a)",
    "unnest(a)", "list_aggregate(a, 'sum') = 1", "list_transform(a, lambda x: x) = a", "[a, 1] = b",
    "a collate nocase = 'x'", "#1 = 2", "$1 = a", "? = a", "*", "columns(*) = 1", "t.a = 1", "a::struct(x int) is null",
    "cast(a as nosuchtype) = 1", "sum(distinct a) = 1", "main.lower(a) = 'x'", "lower(a) over () = 'x'",
    "struct_pack(x := a) is null", "a between b and (select 1)", "case when exists (from t) then a else b end = 1",
    "coalesce(a, (select max(a) from t)) = 1", "a = (values (1))", "count(a) filter (where a > 1) > 1",
    "lower(distinct a) = 'x'", "lower(a order by b) = 'x'", "generate_series(1, a) = b", "t.* = 1",
    "apply([a], x -> x) = b", "{'x': a} = b", "map {'k': a}['k'] = 1", "query('select 1') = a", "query_table(a) = 1",
    "duckdb_settings() = a", "read_csv('x') = a", "a = :p", "cast(a as main.integer) = 1", "cast(a as json) is null",
    "cast(a as enum('x')) = 'x'", "1 = 1", "", "a = ", "a), (b", "a) from t where (b", "a; select 1",
    "a) union select (1", "select a", "a) limit 1 --", "a) group by (b",
]  # fmt: skip


@pytest.mark.parametrize("text", BEYOND_THE_ROW)
def test_what_could_look_beyond_its_row_is_refused(text: str) -> None:
    """As is what is not one expression, or names no column."""
    with pytest.raises((InvalidInput, SourceError)) as refused:
        parse_expression(text, "--where")
    assert re.search(
        r"could let one record touch many|not one SQL expression|names no column|parse|empty", str(refused.value)
    )


QUERIES_BEYOND_THE_ROW = [
    "select k from 'f.csv', lateral (select 1)", "select k from 'f.csv' cross join range(3)",
    "select k, unnest([1, 2]) as u from 'f.csv'", "from 'f.csv' positional join 'g.csv' select k",
    "select k from 'f.csv' asof join 'g.csv' using (k)", "pivot 'f.csv' on k using count(*)",
    "unpivot 'f.csv' on k into name n value v", "select k from 'f.csv' at (version => 1)",
    "with recursive r as (select 1 union all select 1 from r) select k from 'f.csv'",
    "select (select k) as k from 'f.csv'",
    "select k from 'f.csv' a where exists (select 1 from 'f.csv' b where b.k = a.k)",
    "select k from 'f.csv' limit 10%", "select k from 'f.csv' offset 3", "select distinct on (k) k from 'f.csv'",
    "select k from 'f.csv' using sample reservoir(5)", "select k from 'f.csv' tablesample system(10%)",
    "select k from 'f.csv' group by ()", "select k from 'f.csv' group by rollup(k)",
    "select k from 'f.csv' having true",
    "select k from 'f.csv' qualify true", "select k from 'f.csv' except select k from 'g.csv'",
    "select string_agg(k) as k from 'f.csv'", "select * replace (max(k) as k) from 'f.csv'",
    "select * like 'k%' from 'f.csv'", "select k from 'f.csv' t(k)", "select k from values (1)",
    "select k from unnest([1, 2]) t(k)", "select k from query('select 1 as k')",
    "select sum(k) over (rows 1 preceding) as k from 'f.csv'", "select k from 'f.csv' order by all",
    "create macro f(x) as sum(x)", "attach 'x.db'", "install httpfs", "summarize 'f.csv'", "insert into t select 1",
    "explain select k from 'f.csv'", "select k from 'f.csv', 'g.csv'", "select k from 'f.csv'; select 1", "",
    "select a.k from 'f.csv' a join 'g.csv' b on a.k = b.k", "select k from (select * from 'f.csv')",
    "select k from 'f.csv' union all select k from 'g.csv'", "select k from read_csv('f.csv')",
    "select k, count(*) as n from 'f.csv' group by k", "select k, row_number() over () as r from 'f.csv'",
    "select k from 'f.csv' limit 5", "select columns(*) from 'f.csv'",
]  # fmt: skip


@pytest.mark.parametrize("text", QUERIES_BEYOND_THE_ROW)
def test_queries_whose_rows_are_not_made_of_one_row_each_are_refused(text: str) -> None:
    words = r"one record|touch many|not one SQL|could not be parsed|AS name"
    with pytest.raises((InvalidInput, SourceError), match=words):
        parse_query(text)


ALLOWED = {
    "carrier = 'UA' and distance > 500": ["UA"],
    "500 < distance": ["UA", "B6", None],  # a distance that is no number is missing, and not above 500
    "distance * 2 between 1100 and 1300": ["UA"],
    "distance in (600, 700)": ["UA", "B6"],
    "not carrier = 'UA'": ["B6"],  # of a null, not is null
    "lower(carrier) like 'u%' or carrier is null": ["UA", "UA", None],
    "case when carrier = 'B6' then true else false end": ["B6"],
    "try_cast(ts as timestamp) >= timestamp '2026-01-01 10:30:00' -- late": ["UA"],
    "false and carrier = 'UA'": [],
}


@pytest.mark.parametrize("where", ALLOWED)
def test_rows_are_read_of_which_a_condition_is_true(where: str, tmp_path: Path) -> None:
    expected = [key if key else None for key in ALLOWED[where]]
    assert keys(write_csv(tmp_path / "t.csv"), "carrier", where) == expected


def test_no_row_changes_what_becomes_of_another(tmp_path: Path) -> None:
    """Types by values would: one text among numbers would make the whole column text. A schema's types are taken."""
    path = tmp_path / "t.csv"
    for place in (0, 2, 4):
        rows = ["5", "60", "700", "8000"]
        rows.insert(place, "secret")
        path.write_text("n,x\n" + "".join(f"{row},x\n" for row in rows))
        assert [key for key in keys(str(path), "n", "n > 500") if key != "secret"] == ["700", "8000"]
    typed = write(
        pa.table({"k": ["a", "b"], "n": pa.array([9, 10], pa.int16()), "t": ["9", "10"]}), tmp_path / "t.parquet"
    )
    assert keys(str(typed), "k", "n > 9") == ["b"]
    with pytest.raises(SourceError, match="does not fit the types"):
        keys(str(typed), "k", "t > 9")  # text is text here, whatever it holds
    with pytest.raises(SourceError, match="put it in single quotes"):
        keys(str(typed), "k", where='k = "UA"')


CASTS = {
    "ts::date": "2026-03-29", "cast(n as double)": 7, "n::text": "7", "n::int8": 7, "cast(n = 7 as bool)": "true",
    "hour(ts)": 1, "date_trunc('hour', ts)": "2026-03-29 01:00:00Z", "cast(ts as varchar)": "2026-03-29 01:30:00+00",
    "cast(s['x'] as integer)": 5, "(-n // 4)": -1, "(f // 2)": 3, "(big // 1)": 2**62 + 1,
}  # fmt: skip


def test_casts_are_spelt_as_people_do_and_times_are_in_utc_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's own zone is the machine's: the same file would have other keys elsewhere."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    ts = pa.array([datetime(2026, 3, 29, 1, 30, tzinfo=UTC)], pa.timestamp("us", "Europe/Rome"))
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"ts": ts, "n": [7], "s": [{"x": 5}], "f": [7.9], "big": [2**62 + 1]}), path)
    try:
        texts = tuple(CASTS)
        assert keys(str(path), texts, computed=texts) == [",".join(str(key) for key in CASTS.values())]
        assert keys(str(path), "n", "ts > '2026-03-29 01:00:00' and ts < '2026-03-29 02:00:00'") == [7]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_errors_of_sql_quote_no_record(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("k\nsecret\n")
    for where in ("cast(k as integer) = 1", "k + interval 1 day = k", "nowhere = 1", "k + 1"):
        with pytest.raises((SourceError, InvalidInput)) as refused:
            keys(str(path), "k", where)
        assert "secret" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None
