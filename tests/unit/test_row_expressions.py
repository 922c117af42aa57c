"""SQL over one row: what may be asked, what is refused because one record could touch many, and what comes out."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources import Columns, open_source, parse_expression, parse_query

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
    "sum(a) > 1", "count(*) > 1", "max(a) = a", "first(a) = a", "row_number() over () < 3", "lag(a) over () = a",
    "a > (select 1)", "exists (select 1)", "a in (select b from t)", "a = any (select 1)", "a in (from t)",
    "random() < a", "uuid() = a", "now() > a", "get_current_timestamp() > a", "nextval('s') = a", "a > today()",
    "read_text('/etc/passwd') = a", "getenv('HOME') = a", "current_setting('x') = a", "getvariable('x') = a",
    "error(a)", "unnest(a)", "list_aggregate(a, 'sum') = 1", "list_transform(a, lambda x: x) = a", "[a, 1] = b",
    "a collate nocase = 'x'", "#1 = 2", "$1 = a", "? = a", "*", "columns(*) = 1", "t.a = 1", "a.b.c = 1",
    "cast(a as int[]) is null", "a::struct(x int) is null", "cast(a as nosuchtype) = 1", "sum(distinct a) = 1",
    "main.lower(a) = 'x'", "lower(a) over () = 'x'", "struct_pack(x := a) is null", "hash(rowid) = a and f(a)",
    "a between b and (select 1)", "case when exists (from t) then a else b end = 1", "a = all (select 1)",
    "coalesce(a, (select max(a) from t)) = 1", "a in (b, (select 2))", "nullif(a, (from t limit 1)) = 1",
    "a = (values (1))", "count(a) filter (where a > 1) > 1", "sum(a) over (partition by b) = 1", "grouping(a) = 1",
    "any_value(a) = a", "arg_max(a, b) = a", "mode(a) = a", "quantile_cont(a, 0.5) = a", "histogram(a) = b",
    "lower(distinct a) = 'x'", "lower(a order by b) = 'x'", "generate_series(1, a) = b", "range(a) = b",
    "unnest([a, b]) = 1", "regexp_split_to_table(a, 'x') = 1", "*columns(*) = 1", "columns(x -> true) = 1",
    "t.* = 1", "apply([a], x -> x) = b", "{'x': a} = b", "map {'k': a}['k'] = 1", "list_contains([a], b)",
    "stats(a) = 'x'", "txid_current() = a", "setseed(0.5) is null and a = 1", "query('select 1') = a",
    "query_table(a) = 1", "duckdb_settings() = a", "read_csv('x') = a", "glob(a) = 1", "sleep_ms(a) is null",
    "write_log(a) = 1", "in_search_path('a', 'b') and a = 1", "a = :p", "cast(a as main.integer) = 1",
    "cast(a as json) is null", "cast(a as enum('x')) = 'x'",
]  # fmt: skip
NOT_ONE_EXPRESSION = [
    "", " ", "a = ", "a), (b", "a) from t where (b", "a; select 1", "a) union select (1", "(a", "select a",
    "a) limit 1 --", "a) order by (b", "a) using sample (5", "a) group by (b",
]  # fmt: skip


@pytest.mark.parametrize("text", BEYOND_THE_ROW)
def test_what_could_look_beyond_its_row_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"could let one record touch many|not one SQL expression"):
        parse_expression(text, "--where")


QUERIES_BEYOND_THE_ROW = [
    "select k from 'f.csv', lateral (select 1)", "select k from 'f.csv' cross join range(3)",
    "select k, unnest([1, 2]) as u from 'f.csv'", "select k, generate_series(1, 3) as u from 'f.csv'",
    "from 'f.csv' positional join 'g.csv' select k", "select k from 'f.csv' asof join 'g.csv' using (k)",
    "select k from 'f.csv' natural join 'g.csv'", "select k from 'f.csv' semi join 'g.csv' using (k)",
    "select k from 'f.csv' anti join 'g.csv' using (k)", "pivot 'f.csv' on k using count(*)",
    "unpivot 'f.csv' on k into name n value v", "select k from 'f.csv' at (version => 1)",
    "with recursive r as (select 1 union all select 1 from r) select k from 'f.csv'",
    "with x as (select 1) select k from 'f.csv'", "select (select k) as k from 'f.csv'",
    "select k from 'f.csv' where k in (select k from 'f.csv' group by k having count(*) > 1)",
    "select k from 'f.csv' a where exists (select 1 from 'f.csv' b where b.k = a.k)",
    "select k from 'f.csv' limit 10%", "select k from 'f.csv' offset 3", "select k from 'f.csv' limit all offset 1",
    "select distinct on (k) k from 'f.csv'", "select k from 'f.csv' using sample reservoir(5)",
    "select k from 'f.csv' tablesample system(10%)", "select k from 'f.csv' group by ()",
    "select k from 'f.csv' group by rollup(k)", "select k from 'f.csv' having true",
    "select k from 'f.csv' qualify true", "select k from 'f.csv' except select k from 'g.csv'",
    "select k from 'f.csv' intersect all select k from 'g.csv'", "select string_agg(k) as k from 'f.csv'",
    "select first(k) as k from 'f.csv'", "select * replace (max(k) as k) from 'f.csv'",
    "select * like 'k%' from 'f.csv'", "select k from 'f.csv' t(k)", "select k from values (1)",
    "select k from unnest([1, 2]) t(k)", "select k from range(10) t(k)", "select k from query('select 1 as k')",
    "select sum(k) over (rows 1 preceding) as k from 'f.csv'", "select k from 'f.csv' order by all",
    "create macro f(x) as sum(x)", "attach 'x.db'", "set threads = 4", "install httpfs", "summarize 'f.csv'",
    "insert into t select 1", "explain select k from 'f.csv'", "merge into t using s on true when matched then delete",
]  # fmt: skip


@pytest.mark.parametrize("text", QUERIES_BEYOND_THE_ROW)
def test_queries_whose_rows_are_not_made_of_one_row_each_are_refused(text: str) -> None:
    words = r"one record|touch many|not one SQL|could not be parsed|AS name"
    with pytest.raises((InvalidInput, SourceError), match=words):
        parse_query(text)


@pytest.mark.parametrize("text", NOT_ONE_EXPRESSION)
def test_what_is_not_one_expression_is_refused(text: str) -> None:
    with pytest.raises((InvalidInput, SourceError)):
        parse_expression(text, "--where")


def test_a_constant_is_refused_and_says_why() -> None:
    with pytest.raises(InvalidInput, match="names no column"):
        parse_expression("1 = 1", "--where")


ALLOWED = {
    "carrier = 'UA'": ["UA", "UA"],
    "carrier = 'UA' and distance > 500": ["UA"],
    "distance > 500": ["UA", "B6", None],  # a distance that is no number is missing, and not above 500
    "500 < distance": ["UA", "B6", None],
    "distance * 2 between 1100 and 1300": ["UA"],
    "distance in (600, 700)": ["UA", "B6"],
    "not carrier = 'UA'": ["B6"],  # of a null, not is null
    "carrier is null": [None],
    "lower(carrier) like 'u%' or carrier is null": ["UA", "UA", None],
    "case when carrier = 'B6' then true else false end": ["B6"],
    "coalesce(carrier, 'none') <> 'UA'": ["B6", None],
    "try_cast(ts as timestamp) >= timestamp '2026-01-01 10:30:00' -- late": ["UA"],
    "starts_with(carrier, 'B')": ["B6"],
    "false and carrier = 'UA'": [],
}


@pytest.mark.parametrize("where", ALLOWED)
def test_rows_are_read_of_which_a_condition_is_true(where: str, tmp_path: Path) -> None:
    expected = [key if key else None for key in ALLOWED[where]]
    assert keys(write_csv(tmp_path / "t.csv"), "carrier", where) == expected


def test_types_come_from_the_schema_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(
        pa.table({"k": ["a", "b", "c"], "n": pa.array([9, 10, None], pa.int16()), "t": ["9", "10", "11"]}), path
    )
    assert keys(str(path), "k", "n > 9") == ["b"]
    assert keys(str(path), "k", "t > '9'") == []
    with pytest.raises(SourceError, match="does not fit the types"):
        keys(str(path), "k", "t > 9")  # text is text here, whatever it holds


@pytest.mark.parametrize("bad", ["secret", "", "1e400", "-"])
def test_no_row_changes_what_becomes_of_another(bad: str, tmp_path: Path) -> None:
    """Types by values would: one text among numbers would make the whole column text."""
    rows = [f"{i}" for i in (5, 60, 700, 8000)]
    path = tmp_path / "t.csv"
    path.write_text("n\n" + "\n".join(rows) + "\n")
    before = keys(str(path), "n", "n > 500")
    for place in range(5):
        path.write_text("n,x\n" + "".join(f"{row},x\n" for row in [*rows[:place], bad, *rows[place:]]))
        assert [key for key in keys(str(path), "n", "n > 500") if key != bad] == before == ["700", "8000"]


def test_a_computed_key_is_a_function_of_its_row(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", copies=20)
    hour = "date_trunc('hour', try_cast(ts as timestamp))"
    found = keys(source, hour, computed=(hour,))
    assert found == ["2026-01-01 10:00:00", "2026-01-01 10:00:00", None, None] * 20
    both = keys(source, ("carrier", hour), "distance > 500", computed=(hour,))
    assert both == ["UA,2026-01-01 10:00:00", None, None] * 20
    whole = "cast(distance // 100 as integer)"
    assert keys(source, whole, computed=(whole,), key_type="int")[:4] == [6, None, 7, 5]
    quotient = "(distance // 7)"  # 600, 700 and 501 over 7
    assert keys(source, quotient, computed=(quotient,), key_type="int")[:4] == [85, None, 100, 71]
    tenth = "(distance / 10)"
    with pytest.raises(SourceError, match="not a whole 64-bit number"):
        keys(source, tenth, computed=(tenth,), key_type="int")


CASTS = {
    "cast(ts as date)": "2026-03-29", "ts::date": "2026-03-29", "cast(n as double)": 7, "n::text": "7",
    "cast(n as string)": "7", "cast(n as bigint)": 7, "n::int8": 7, "cast(n = 7 as bool)": "true",
    "hour(ts)": 1, "date_trunc('hour', ts)": "2026-03-29 01:00:00Z", "strftime(ts, '%H')": "01",
    "cast(ts as varchar)": "2026-03-29 01:30:00+00", "cast(s['x'] as integer)": 5, "if(n > 5, 'many', 'few')": "many",
    "(n // 4)": 1, "(-n // 4)": -1, "(f // 2)": 3, "(big // 1)": 2**62 + 1, "cast(f // 2 as integer)": 3,
}  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_casts_are_spelt_as_people_do_and_times_are_in_utc_on_every_machine(
    zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's own zone is the machine's: the same file would have other keys elsewhere."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    ts = pa.array([datetime(2026, 3, 29, 1, 30, tzinfo=UTC)], pa.timestamp("us", "Europe/Rome"))
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"ts": ts, "n": [7], "s": [{"x": 5}], "f": [7.9], "big": [2**62 + 1]}), path)
    try:
        for text, key in CASTS.items():
            assert keys(str(path), text, computed=(text,)) == [key], text
        assert keys(str(path), "n", "ts > '2026-03-29 01:00:00' and ts < '2026-03-29 02:00:00'") == [7]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rows_are_the_same_however_many_are_read_at_once(tmp_path: Path) -> None:
    table = pa.table({"k": [f"{i}" for i in range(1000)], "n": list(range(1000)), "m": [None, 1] * 500})
    path = tmp_path / "t.parquet"
    expected = [(f"{i}", f"{i % 10}") for i in range(300, 900) if i % 2]
    found = {}
    for group in (1, 7, 1 << 20):
        pa.parquet.write_table(table, path, row_group_size=group)
        rows = keys(str(path), ("k", "(n % 10)"), "m = 1 and n between 300 and 899", computed=("(n % 10)",))
        found[group] = [tuple(row.split(",")) for row in rows]
    assert list(found.values()) == [expected] * 3


def test_users_weights_and_points_follow_the_rows_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("k,u,w,x\n" + "".join(f"{i % 3},u{i},{i},{i}.5\n" for i in range(30)))
    columns = Columns(key="k", user="u", weight="w", points=("x",), where=parse_expression("k = '1'", "--where"))
    for by_user in (False, True):
        rows = [
            row
            for batch in open_source([str(path)], columns, sort_by_user=by_user)
            for row in zip(batch.key.to_pylist(), batch.user.to_pylist(), batch.weight.to_pylist(), strict=True)
        ]
        assert sorted(rows) == sorted(("1", f"u{i}", float(i)) for i in range(1, 30, 3))


def test_errors_of_sql_quote_no_record(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("k\nsecret\n")
    for where in ("cast(k as integer) = 1", "k::date > date '2026-01-01'", "k + interval 1 day = k"):
        with pytest.raises((SourceError, InvalidInput)) as refused:
            keys(str(path), "k", where)
        assert "secret" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None


@pytest.mark.parametrize("where", ["upper(k) = 'A'", "k = 'a'", "n = 1"])
def test_text_that_is_not_utf8_is_refused_before_duckdb_sees_it(where: str, tmp_path: Path) -> None:
    bad = pa.array([b"a", b"secret\xff"]).view(pa.string())
    pa.parquet.write_table(pa.table({"k": bad, "n": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="not UTF-8") as refused:
        keys(str(tmp_path / "t.parquet"), "k", where)
    assert "secret" not in str(refused.value)


def test_fields_of_json_are_text_and_numbers_where_a_number_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"k": 5, "n": 1.5}\n{"k": "5", "n": "x"}\n{"k": 10, "n": 2}\n')
    assert keys(str(path), "k", "k > 6") == ["10"]
    assert keys(str(path), "k", "k = '5'") == ["5", "5"]
    assert keys(str(path), "(n * 2)", "n > 0", computed=("(n * 2)",)) == ["3", "4"]


def test_sql_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no column 'nowhere'"):
        keys(write_csv(tmp_path / "t.csv"), "carrier", "nowhere = 1")
    with pytest.raises(SourceError, match="neither true nor false"):
        keys(write_csv(tmp_path / "t.csv"), "carrier", "distance + 1")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_without_its_quotes_is_refused_with_a_hint(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"t.{form}"
    if form == "csv":
        write_csv(path)
    else:
        pyarrow.parquet.write_table(pa.table({"carrier": ["UA"]}), path)
    with pytest.raises(SourceError, match="single quotes, as in carrier = 'UA'"):
        keys(str(path), "carrier", where='carrier = "UA"')
    with pytest.raises(SourceError) as refused:
        keys(str(path), "UA", where='carrier = "UA"')
    assert "single quotes" not in str(refused.value)
