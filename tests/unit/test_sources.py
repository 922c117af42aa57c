"""Files and pipes: every format gives the same records, by the same rules."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch.cli.options import SourceFormat
from dpsketch.sources import Columns, Format, open_source
from dpsketch.sources.locations import Database, locate
from reading import FILES, SECRET, Pipe, Records, keys, records, refused, text_of, write

TABLE = pa.table(
    {
        "spare": ["x", "y", None, "z", "w"],
        "text": ["a", "b,c", None, 'd"e\nf', "né"],
        "number": pa.array([1, -(2**63), 2**63 - 1, None, 5], pa.int64()),
        "weight": [1.0, 2.5, 0.0, 1e-3, 7.0],
    }
)
AS_TEXT = Columns(key="text", user="text", weight="weight", points=("weight",))
AS_NUMBERS = Columns(key="number", weight="weight", key_type="int")


def test_the_shell_names_every_format() -> None:
    assert get_args(SourceFormat) == get_args(Format)


@pytest.mark.parametrize("suffix", FILES)
def test_every_file_gives_the_same_records(suffix: str, tmp_path: Path) -> None:
    path = write(TABLE, tmp_path / f"table.{suffix}")
    texts, weights = TABLE["text"].to_pylist(), TABLE["weight"].to_pylist()
    expected = [(t, t, w, w) for t, w in zip(texts, weights, strict=True) if t is not None]
    assert records(path, columns=AS_TEXT) == expected
    numbers = TABLE["number"].to_pylist()
    assert records(path, columns=AS_NUMBERS) == list(zip(numbers, weights, strict=True))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "arrow", "arrows"])
def test_a_pipe_gives_what_the_file_gives(kind: str, tmp_path: Path, pipe: Pipe) -> None:
    path = write(TABLE, tmp_path / f"table.{kind}")
    stdin_format: Any = kind.removesuffix("s")
    for columns in (AS_TEXT, AS_NUMBERS):
        pipe(path.read_bytes())
        left = set(tmp_path.iterdir())
        read = records("-", columns=columns, stdin_format=stdin_format, temp_directory=tmp_path)
        assert read == records(path, columns=columns)
        assert set(tmp_path.iterdir()) == left


# Each case: the bytes of a CSV file, the texts of its column k.
AWKWARD: dict[str, tuple[bytes, list[str | None]]] = {
    "an unquoted empty field is missing, a quoted one is empty": (b'k,b\n,1\n"",2\na,3\n', [None, "", "a"]),
    "separators, line ends and quotes inside quotes": (b'k,b\n"a,b",1\n"c\nd",2\n"e""f",3\n', ["a,b", "c\nd", 'e"f']),
    "byte-order mark": (b"\xef\xbb\xbfk,b\na,1\n", ["a"]),
    "byte-order mark before a quoted name": (b'\xef\xbb\xbf"k",b\na,1\n', ["a"]),
    "CRLF": (b'k,b\r\na,1\r\n"x\r\ny",2\r\n', ["a", "x\r\ny"]),
    "CR": (b"k,b\ra,1\rb,2", ["a", "b"]),
    "no line end at the end": (b"k,b\na,1\nb,2", ["a", "b"]),
    "blank lines": (b"\n\nk,b\na,1\n\n\nb,2\n\n", ["a", "b"]),
    "blank lines in a single column": (b'k\na\n\n""\nb\n', ["a", "", "b"]),
    "header only": (b"k,b\n", []),
    "header only, without a line end": (b"k,b", []),
    "header and blank lines": (b"k\r\n\r\n", []),
    "spaces are part of a text": (b"k,b\n a ,1\n", [" a "]),
    "names with spaces and quotes": (b'"my ""new"" column",k\n1,a\n', ["a"]),
    "columns without names": (b"k,,\na,1,2\n", ["a"]),
    "what other readers take for null": (b"k,b\nNA,1\nnull,2\nNaN,3\n-,4\n", ["NA", "null", "NaN", "-"]),
    "what other readers take for dates and numbers": (
        b"k,b\n2020-01-01,1\n007,2\n1e3,3\n",
        ["2020-01-01", "007", "1e3"],
    ),
    "a null byte": (b"k,b\na\x00b,1\n", ["a\x00b"]),
    "a quote inside an unquoted field": (b'k,b\na"b"c,1\n', ['a"b"c']),
    "bad UTF-8 in a column nobody asked for": (b"k,b\na,\xff\n", ["a"]),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_csv_reads_the_same_from_file_and_pipe(case: str, tmp_path: Path, pipe: Pipe) -> None:
    data, expected = AWKWARD[case]
    path = tmp_path / "awkward.csv"
    path.write_bytes(data)
    pipe(data)
    assert keys(path) == expected
    assert keys("-") == expected


def test_names_with_spaces_and_quotes_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_bytes(b'"my ""new""\ncolumn", b \n1,2\n')
    assert records(path, columns=Columns(key='my "new"\ncolumn', user=" b ")) == [("1", "2")]


_fields = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_fields, _fields), max_size=30), st.sampled_from(["\n", "\r\n"]), st.sampled_from(",\t"))
def test_csv_agrees_with_pythons_writer(
    tmp_path_factory: pytest.TempPathFactory, rows: Records, ends: str, separator: str
) -> None:
    target = io.StringIO(newline="")
    writer = csv.writer(target, delimiter=separator, lineterminator=ends, quoting=csv.QUOTE_ALL)
    writer.writerow(["k", "u"])
    writer.writerows(rows)
    path = tmp_path_factory.mktemp("csv") / ("t.csv" if separator == "," else "t.tsv")
    path.write_bytes(target.getvalue().encode())
    assert records(path, columns=Columns(key="k", user="u")) == rows


def test_rows_that_cross_blocks_are_whole(tmp_path: Path, pipe: Pipe) -> None:
    texts = [f'row {i},\n"{"x" * (i % 97)}"' for i in range(120_000)]
    data = text_of(pa.table({"k": texts, "b": range(len(texts))}), ".csv")
    assert len(data) > 4 << 20
    path = tmp_path / "long.csv"
    path.write_bytes(data)
    pipe(data)
    assert keys(path) == texts
    assert keys("-") == texts


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        (b'5,-5,007, 6 ,"7"', [5, -5, 7, 6, 7]),
        (b"9223372036854775807,-9223372036854775808", [2**63 - 1, -(2**63)]),
        (b"18446744073709551615,-1,0", [-1, -1, 0]),
        (b'1,,"", ,2', [1, None, None, None, 2]),
    ],
)
def test_integer_keys_of_csv(fields: bytes, numbers: list[int | None], tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_bytes(b"k,b\n" + b"".join(field + b",0\n" for field in fields.split(b",")))
    assert keys(path, key_type="int") == numbers


def test_unsigned_keys_are_the_same_patterns_everywhere(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([0, 2**63, 2**64 - 1], pa.uint64())})
    for suffix in ("parquet", "arrow", "csv"):
        assert keys(write(table, tmp_path / f"u.{suffix}"), key_type="int") == [0, -(2**63), -1]
    for suffix in ("parquet", "arrow", "csv"):
        assert keys(tmp_path / f"u.{suffix}", key_type="text") == ["0", str(2**63), str(2**64 - 1)]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([1, 2], pa.uint32()), [1, 2]),
        (pa.array([1, 2], pa.decimal128(20, 0)), [1, 2]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", "é"], pa.string_view()), ["a", "é"]),
        (pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
        (pa.array([b"a", b"\xff"]), [b"a", b"\xff"]),
        (pa.array([1.0, 2.0, None]), [1, 2, None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([0, 86_400_000_000], pa.timestamp("us")), ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]),
        (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
        (pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(20, 2)), ["1.5", "2"]),
        (pa.array([None, None], pa.string()), [None, None]),
    ],
)
def test_types_that_are_keys(suffix: str, column: pa.Array, expected: list[Any], tmp_path: Path) -> None:
    path = write(pa.table({"k": column}), tmp_path / f"keys.{suffix}")
    batch = next(open_source([str(path)], Columns(key="k")))
    assert batch.key is not None
    assert batch.key.type in (pa.int64(), pa.string(), pa.binary())
    assert batch.key.to_pylist() == expected


@pytest.mark.parametrize("suffix", FILES)
def test_key_types_can_be_asked_for(suffix: str, tmp_path: Path) -> None:
    path = write(pa.table({"k": [3, 1, None], "t": ["3", " 1", None]}), tmp_path / f"keys.{suffix}")
    assert keys(path, key_type="text") == ["3", "1", None]
    assert keys(path, key_type="int") == [3, 1, None]
    assert records(path, columns=Columns(key="t", key_type="int")) == [(3,), (1,), (None,)]
    assert records(path, columns=Columns(user="t", user_type="int")) == [(3,), (1,)]


@pytest.mark.parametrize("number", ["0x5", "0X5", "-0x5", "1e1", "1_0", "٥"])
def test_a_whole_number_in_text_has_decimal_digits(number: str, tmp_path: Path) -> None:
    """Else the texts 5 and 0x5 were one user."""
    path = tmp_path / "records.csv"
    path.write_text(f"k,u,c\n5,{number},1\n", encoding="utf-8")
    assert "not a whole 64-bit number" in refused(path, columns=Columns(key="k", user="u", user_type="int"))
    assert "not a whole 64-bit number" in refused(path, columns=Columns(key="u", key_type="int"))
    assert "is not a whole number" in refused(path, columns=Columns(key="k", count="u"))


JSON_LINES: dict[str, tuple[str, list[Any]]] = {
    "text": ('{"k": "a"}\n{"k": "2020-01-01"}\n', ["a", "2020-01-01"]),
    "numbers, and null before the first": ('{"k": null}\n{"k": 7}\n{"b": 1}\n', [None, "7", None]),
    "escapes": ('{"k": "\\u00e9\\ud83d\\ude00\\u0000"}\n', ["é😀\x00"]),
    "blank lines, CRLF, no line end": ('\n{"k": "a"}\r\n\r\n{"k": "b"}', ["a", "b"]),
    "byte-order mark": ('\ufeff{"k": 1}\n', ["1"]),
    "numbers and texts are one text": ('{"k": 1}\n{"k": "1"}\n{"k": true}\n', ["1", "1", "true"]),
    "nulls alone": ('{"k": null}\n{"k": null}\n', [None, None]),
    "other columns are not looked at": ('{"k": 1, "b": [1, {"c": 2}]}\n{"k": 2, "b": "x"}\n', ["1", "2"]),
}


@pytest.mark.parametrize("case", JSON_LINES)
def test_json_lines(case: str, tmp_path: Path, pipe: Pipe) -> None:
    text, expected = JSON_LINES[case]
    path = tmp_path / "records.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    pipe(text.encode())
    assert keys(path) == expected
    assert keys("-", stdin_format="jsonl") == expected


def test_keys_in_json_lines_are_whole_numbers_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"k": 7, "u": 1}\n{"k": null, "u": 2}\n{"k": -3, "u": 3}\n', encoding="utf-8")
    assert keys(path, key_type="int") == [7, None, -3]
    assert records(path, columns=Columns(key="k", user="u")) == [("7", "1"), (None, "2"), ("-3", "3")]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_fields_of_json_are_found_by_their_exact_name(suffix: str, tmp_path: Path) -> None:
    names = [
        "k",
        "K",
        "",
        "a.b",
        'q"t',
        "a'b",
        "a/b",
        "a~b",
        "~1",
        "a\\b",
        "a\nb",
        "*",
        "**",
        "$",
        "$.k",
        "[0]",
        "0",
        "-",
        "#",
    ]
    record = {name: f"value {i}" for i, name in enumerate(names)}
    path = tmp_path / f"records.{suffix}"
    path.write_text(json.dumps([record] if suffix == "json" else record), encoding="utf-8")
    for name, value in record.items():
        assert records(path, columns=Columns(key=name)) == [(value,)]


def test_parquet_columns_are_found_by_their_exact_name(tmp_path: Path) -> None:
    table = pa.table({"K": [1], "k": ["a"], "a.b": [2], 'q"t': [3], "column_0": [4]})
    (tmp_path / "k=5").mkdir()
    path = write(table, tmp_path / "k=5" / "odd [1]*?'.parquet")
    write(pa.table({"k": ["wrong"]}), tmp_path / "k=5" / "odd 1xx'.parquet")
    assert keys(path) == ["a"]
    for name, value in (("K", 1), ("a.b", 2), ('q"t', 3), ("column_0", 4)):
        assert records(path, columns=Columns(key=name)) == [(value,)]


@pytest.mark.parametrize("suffix", FILES)
def test_weights_and_points_are_numbers(suffix: str, tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "w": [1, None], "t": ["0.5", SECRET], "big": [2**53 + 1, -1], "f": [0.5, -1.5]})
    path = write(table, tmp_path / f"w.{suffix}")
    (batch,) = open_source([str(path)], Columns(key="k", weight="w"))
    assert (batch.weight.to_pylist(), batch.rows, batch.skipped) == ([1.0], 1, 1)
    message = refused(path, columns=Columns(key="k", weight="t"))
    assert "number" in message
    assert "'t'" in message
    assert records(path, columns=Columns(points=("big", "f"))) == [(float(2**53), 0.5), (-1.0, -1.5)]


def test_sources_must_agree_on_the_type_of_keys(tmp_path: Path) -> None:
    numbers = write(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    texts = write(pa.table({"k": ["1", "3"]}), tmp_path / "b.parquet")
    nothing = write(pa.table({"k": pa.nulls(2)}), tmp_path / "0.arrow")
    message = refused(numbers, texts)
    assert "holds text where" in message
    assert "key_type='int'" in message
    assert keys(numbers, texts, key_type="int") == [1, 2, 1, 3]
    assert keys(numbers, texts, key_type="text") == ["1", "2", "1", "3"]
    assert keys(nothing, numbers) == [None, None, 1, 2]
    assert keys(numbers, nothing) == [1, 2, None, None]


def test_globs_give_their_files_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".hidden.csv", "c.csv"):
        (tmp_path / name).write_text(f"k\n{name}\n", encoding="utf-8")
    (tmp_path / "d.csv").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "e.csv").write_text("k\ne\n", encoding="utf-8")
    (tmp_path / "odd[1].csv").write_text("k\nodd\n", encoding="utf-8")
    assert keys(tmp_path / "[a-c].csv") == ["a.csv", "b.csv", "c.csv"]
    assert keys(tmp_path / "deep" / "**" / "*.csv") == ["e"]
    assert keys(tmp_path / "odd[1].csv") == ["odd"]
    assert "no file matches" in refused(tmp_path / "*.parquet")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    for twice in ((tmp_path / "a.csv", tmp_path / "?.csv"), (tmp_path / "a.csv", tmp_path / "link.csv"), ("-", "-")):
        assert "would count twice" in refused(*twice)


def test_relative_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.csv").write_text("k\na\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "in")
    assert keys("../*.csv") == ["a"]
    assert keys("../a.csv") == ["a"]


@pytest.mark.parametrize(
    ("source", "url", "table", "query"),
    [
        ("sqlite:///a.db?table=t", "/a.db", "t", None),
        ("sqlite:////tmp/a.db?table=my%20table", "//tmp/a.db", "my table", None),
        ("sqlite:///a.db?query=SELECT a FROM t WHERE b = '%20' AND c = 'x&y'", "/a.db", None, None),
        ("postgres://u:pw@h:5/d?sslmode=disable&table=s.t", "u:pw@h:5/d?sslmode=disable", "s.t", None),
        (
            "postgresql+psycopg://h/d?sslmode=disable&query=SELECT%20a+FROM%20t",
            "h/d?sslmode=disable",
            None,
            "SELECT a FROM t",
        ),
    ],
)
def test_database_addresses(source: str, url: str, table: str | None, query: str | None) -> None:
    (found,) = locate([source], "csv")
    assert isinstance(found, Database)
    assert (found.url, found.table) == (url, table)
    if table is None:
        assert found.query == (query or source.partition("query=")[2])
    assert "pw" not in repr(found) + str(found)


def test_whole_numbers_that_are_written_as_floats_are_whole_numbers(tmp_path: Path) -> None:
    """So pandas writes a column of whole numbers in which one is missing."""
    path = tmp_path / "t.csv"
    path.write_text("k,u\n2.0,a\n-13.,b\n,c\n18446744073709551615.00,d\n 7.0 ,e\n")
    keys = [
        key for batch in open_source([str(path)], Columns(key="k", key_type="int")) for key in batch.key.to_pylist()
    ]
    assert keys == [2, -13, None, -1, 7]
