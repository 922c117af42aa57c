"""What goes wrong in a source is said in one sentence, and none quotes a record."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.sources import Columns
from dpsketch.sources.formats import ByteStream
from dpsketch.sources.locations import StandardInput
from reading import SECRET, Pipe, refused, write

# Each case: the name and the bytes of a file with a secret in it, and what the message says.
BROKEN: dict[str, tuple[str, bytes, str]] = {
    "a short row": ("t.csv", f"k,b\n{SECRET},1\n{SECRET}\n".encode(), "more or fewer fields than its header"),
    "an open quote": ("t.csv", f'k,b\n"{SECRET},1\na,2\n'.encode(), "more or fewer fields than its header"),
    "bad UTF-8": ("t.csv", f"k,b\n{SECRET}".encode() + b"\xff,1\n", "not UTF-8"),
    "no header": ("t.csv", f"{SECRET},1\n{SECRET},2\n".encode(), "no column 'k'. It has 2 columns"),
    "semicolons": ("t.csv", f"k;{SECRET}\na;1\n".encode(), "It has 1 column, with ';' in its name"),
    "one name twice": ("t.csv", f"k,{SECRET},{SECRET}\na,1,2\n".encode(), "two columns of one name"),
    "another case": ("t.csv", f"K,b\n{SECRET},1\n".encode(), "It has 'K': write the name as it stands there"),
    "JSON in CSV": ("t.csv", f'{{"k": "{SECRET}"}}\n'.encode(), "holds JSON"),
    "an endless header": ("t.csv", b"k" * (2 << 20), "first row of more than a megabyte"),
    "a fraction in JSON": ("t.jsonl", f'{{"k": 1.5, "b": "{SECRET}"}}\n'.encode(), "holds a fraction"),
    "an object in JSON": ("t.jsonl", f'{{"k": {{"{SECRET}": 1}}}}\n'.encode(), "holds an object"),
    "a huge number in JSON": ("t.jsonl", f'{{"k": {2**64}, "b": "{SECRET}"}}\n'.encode(), "64 bits do not hold"),
    "broken JSON": ("t.jsonl", f'{{"k": "a"}}\n{{"k": "{SECRET}\n'.encode(), "not a JSON object"),
    "a tail behind a JSON array": ("t.json", f'[{{"k": "a"}}] {SECRET}'.encode(), "not a JSON object"),
    "bad UTF-8 in JSON": ("t.jsonl", f'{{"k": "{SECRET}'.encode() + b'\xff"}\n', "not UTF-8"),
    "an endless line of JSON": ("t.jsonl", f'{{"k": "{SECRET}'.encode() + b"x" * (5 << 20) + b'"}\n', "more than 2 MB"),
    "gzip cut short": ("t.csv.gz", gzip.compress(f"k,b\n{SECRET},1\n".encode())[:-6], "could not be read"),
    "gzip that is none": ("t.csv.gz", f"k,b\n{SECRET},1\n".encode(), "is not gzip: it looks like text"),
    "CSV that is gzip": ("t.csv", gzip.compress(f"k,b\n{SECRET},1\n".encode()), "it looks like gzip"),
    "an empty file": ("t.csv", b"", "is empty"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_get_one_clear_sentence(case: str, tmp_path: Path, pipe: Pipe) -> None:
    """And broken pipes the same."""
    name, data, words = BROKEN[case]
    path = tmp_path / name
    path.write_bytes(data)
    message = refused(path)
    assert words in message
    assert str(path) in message
    if name in ("t.csv", "t.jsonl"):
        pipe(data)
        message = refused("-", stdin_format=Path(name).suffix[1:])
        assert words in message
        assert "standard input" in message


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl", "t.txt"])
def test_the_value_of_a_folder_is_not_quoted(name: str, tmp_path: Path) -> None:
    """Hive's folders are columns, so that their values are data."""
    folder = tmp_path / "all" / f"user={SECRET}"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b'{"a": 1}\n')
    assert f"user=…/{name}" in refused(tmp_path / "all")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.arrow"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_no_file_passes_for_another_format(name: str, suffix: str, tmp_path: Path) -> None:
    if name.endswith(suffix):
        return
    path = write(pa.table({"k": [SECRET], "b": [1]}), tmp_path / f"as.{suffix}").rename(tmp_path / name)
    words = refused(path)
    assert any(said in words for said in ("not what its name says", "not a JSON object", "holds JSON"))


def test_columns_that_are_none_and_text_that_is_not_utf8_are_refused_in_every_format(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([SECRET.encode() + b"\xff"]).buffers())
    for suffix in ("parquet", "arrow", "arrows"):
        path = write(pa.table({"k": bad, "B c": [1]}), tmp_path / f"bad.{suffix}")
        assert "not UTF-8" in refused(path)
        assert refused(path, columns=Columns(key="c")).endswith("has no column 'c'. Its columns are 'k', 'B c'.")
        path = write(pa.table({"k": pa.array([b"\xff"])}), tmp_path / f"bytes.{suffix}")
        assert "not UTF-8" in refused(path, columns=Columns(key="k", key_type="int"))
        twice = write(pa.table([[1], [2]], names=["k", "k"]), tmp_path / f"twice.{suffix}")
        assert "two columns named 'k'" in refused(twice)
        for column in (pa.array([["a"], ["b"]]), pa.array([1, 2], pa.duration("s"))):
            path = write(pa.table({"k": column}), tmp_path / f"keys.{suffix}")
            assert "A user is a whole number, text, a date" in refused(path, columns=Columns(user="k"))


def test_names_that_cannot_be_read(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "no.csv")
    assert "a folder without files" in refused(tmp_path)
    assert "is not a source that can be read" in refused("https://example.org/table.parquet")
    for source in ("sqlite:///a.db", "sqlite:///a.db?table=", "sqlite:///a?table=t&query=SELECT 1"):
        assert "either one table or one query" in refused(source)


def test_a_stream_that_was_closed_takes_nothing_more_of_standard_input(pipe: Pipe) -> None:
    """Arrow's threads read ahead, and went on after a refusal: they took what the next reader should have had."""
    pipe(b"k\na\n")
    stream = ByteStream(StandardInput("csv"))
    assert stream.peek(1) == b"k"
    stream.close()
    assert stream.read(10) in (b"", b"k")
    assert os.read(sys.stdin.fileno(), 100) == b"\na\n"
