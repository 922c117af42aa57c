"""Files and pipes: every format gives the same records, by the same rules."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.sources import Columns
from reading import Pipe, keys, records, refused, text_of, write

# Each case: the bytes of a CSV file, the texts of its column k.
AWKWARD: dict[str, tuple[bytes, list[str | None]]] = {
    "an unquoted empty field is missing, a quoted one is empty": (b'k,b\n,1\n"",2\na,3\n', [None, "", "a"]),
    "separators, line ends and quotes inside quotes": (b'k,b\n"a,b",1\n"c\nd",2\n"e""f",3\n', ["a,b", "c\nd", 'e"f']),
    "byte-order mark": (b"\xef\xbb\xbfk,b\na,1\n", ["a"]),
    "CRLF": (b'k,b\r\na,1\r\n"x\r\ny",2\r\n', ["a", "x\r\ny"]),
    "CR": (b"k,b\ra,1\rb,2", ["a", "b"]),
    "blank lines in a single column": (b'k\na\n\n""\nb\n', ["a", "", "b"]),
    "spaces are part of a text": (b"k,b\n a ,1\n", [" a "]),
    "what other readers take for null or numbers": (b"k,b\nNA,1\nnull,2\n007,3\n1e3,4\n", ["NA", "null", "007", "1e3"]),
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
        (b"18446744073709551615,-1,-9223372036854775808", [-1, -1, -(2**63)]),
        (b'1,,"", ,2', [1, None, None, None, 2]),
        (b"2.0,-13.,,18446744073709551615.00, 7.0 ", [2, -13, None, -1, 7]),  # as pandas writes them beside a null
    ],
)
def test_integer_keys_of_csv(fields: bytes, numbers: list[int | None], tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_bytes(b"k,b\n" + b"".join(field + b",0\n" for field in fields.split(b",")))
    assert keys(path, key_type="int") == numbers


@pytest.mark.parametrize("number", ["0x5", "-0x5", "1e1", "1_0", "٥", "2.5"])
def test_a_whole_number_in_text_has_decimal_digits(number: str, tmp_path: Path) -> None:
    """Else the texts 5 and 0x5 were one user."""
    path = tmp_path / "records.csv"
    path.write_text(f"k,u,c\n5,{number},1\n", encoding="utf-8")
    assert "not a whole 64-bit number" in refused(path, columns=Columns(key="k", user="u", user_type="int"))
    assert "not a whole 64-bit number" in refused(path, columns=Columns(key="u", key_type="int"))
    assert "is not a whole number" in refused(path, columns=Columns(key="k", count="u"))


@pytest.mark.parametrize("number", [2.7, -1.0, float("nan"), float("inf"), 2.0**63, Decimal("2.5"), Decimal(2**63)])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_count_that_is_no_whole_number_is_refused_in_columns_of_any_type(
    number: Any, suffix: str, tmp_path: Path
) -> None:
    """Neither is it rounded to one."""
    path = write(pa.table({"k": ["a", "b"], "n": pa.array([type(number)(1), number])}), tmp_path / f"t.{suffix}")
    assert "not a whole number from 0 on" in refused(path, columns=Columns(key="k", count="n"))


JSON_LINES: dict[str, tuple[str, list[Any]]] = {
    "text": ('{"k": "a"}\n{"k": "2020-01-01"}\n', ["a", "2020-01-01"]),
    "numbers, and null before the first": ('{"k": null}\n{"k": 7}\n{"b": 1}\n', [None, "7", None]),
    "escapes": ('{"k": "\\u00e9\\ud83d\\ude00\\u0000"}\n', ["é😀\x00"]),
    "byte-order mark, blank lines, CRLF, no line end": ('\ufeff\n{"k": "a"}\r\n\r\n{"k": 1}', ["a", "1"]),
    "numbers and texts are one text": ('{"k": 1}\n{"k": "1"}\n{"k": true}\n', ["1", "1", "true"]),
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


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_columns_are_found_by_their_exact_name(suffix: str, tmp_path: Path) -> None:
    names = ["k", "a.b", 'q"t', "a'b", "a/b", "~1", "a\\b", "*", "$.k", "[0]", "0", "#", " b ", "column_0"]
    record = {name: f"value {i}" for i, name in enumerate([*names, *(["K", "", "a\nb"] if suffix != "csv" else [])])}
    (tmp_path / "k=5").mkdir()
    path = tmp_path / "k=5" / f"odd [1]*?'.{suffix}"
    if suffix.startswith("json"):
        path.write_text(json.dumps([record] if suffix == "json" else record), encoding="utf-8")
    else:
        write(pa.table({name: [value] for name, value in record.items()}), path)
    for name, value in record.items():
        assert records(path, columns=Columns(key=name)) == [(value,)]


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
