"""Write tables in every format, read them back, and look closely at refusals."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.errors import SourceError
from dpsketch.sources import Columns, open_source

SECRET = "s3cr3t"
Pipe = Callable[[bytes], None]
Records = list[tuple[Any, ...]]


def records(*sources: str | Path, columns: Columns, **options: Any) -> Records:
    """Read sources into tuples of key, user, weight and points, those that were asked for."""
    rows: Records = []
    for batch in open_source([str(source) for source in sources], columns, **options):
        held = [column for column in (batch.key, batch.user, batch.weight, *batch.points) if column is not None]
        assert all(len(column) == batch.rows for column in held)
        rows += zip(*(column.to_pylist() for column in held), strict=True)
    return rows


def keys(*sources: str | Path, key_type: Any = None, **options: Any) -> list[Any]:
    return [key for (key,) in records(*sources, columns=Columns(key="k", key_type=key_type), **options)]


def refused(*sources: str | Path, columns: Columns | None = None, **options: Any) -> str:
    """Return the message of a refusal, after making sure that nothing hangs on it."""
    with pytest.raises(SourceError) as caught:
        records(*sources, columns=columns or Columns(key="k"), **options)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    for text in (str(error), repr(error), *traceback.format_exception(error)):
        assert SECRET not in text
    assert len(str(error)) < 400
    assert str(error).endswith(".")
    return str(error)


def write(table: pa.Table, path: Path) -> Path:
    """Write a table by the ending of the name, text formats by hand."""
    inner = Path(path.stem).suffix if path.suffix in (".gz", ".bz2", ".zst") else path.suffix
    match inner:
        case ".parquet":
            pa.parquet.write_table(table, path)
        case ".arrow" | ".arrows":
            opener = pa.ipc.new_file if inner == ".arrow" else pa.ipc.new_stream
            with pa.OSFile(str(path), "wb") as target, opener(target, table.schema) as writer:
                writer.write_table(table)
        case ".feather":
            pa.feather.write_feather(table, str(path), compression="lz4")
        case _:
            path.write_bytes(_packed(text_of(table, inner), path.suffix))
    return path


def text_of(table: pa.Table, suffix: str) -> bytes:
    if suffix == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()).encode()
    target = io.StringIO(newline="")
    writer = csv.writer(target, delimiter="\t" if suffix == ".tsv" else ",")
    writer.writerow(table.column_names)
    writer.writerows(row.values() for row in table.to_pylist())
    return target.getvalue().encode()


def _packed(data: bytes, suffix: str) -> bytes:
    match suffix:
        case ".gz":  # of two members, as log rotation makes them
            return gzip.compress(data[:40]) + gzip.compress(data[40:])
        case ".bz2":
            return bz2.compress(data)
        case ".zst":
            return bytes(pa.compress(data, "zstd", asbytes=True))
        case _:
            return data


FILES = ["csv", "tsv", "jsonl", "parquet", "arrow", "arrows", "feather", "csv.gz", "csv.bz2", "tsv.zst", "jsonl.gz"]
