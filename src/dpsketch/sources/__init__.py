"""Read records from files, pipes and databases as Arrow batches, in memory that does not grow with the source.

A source is one of

- a file: CSV (``.csv``), TSV (``.tsv``, ``.tab``), JSON lines or one array of objects (``.jsonl``, ``.ndjson``,
  ``.json``), Parquet (``.parquet``, ``.pq``) or Arrow (``.arrow``, ``.feather``, ``.ipc``, ``.arrows``); CSV, TSV and
  JSON also compressed, with ``.gz``, ``.bz2`` or ``.zst`` behind the name, or several of them in a ``.zip``;
- a folder: all files below it, but for hidden ones; folders named ``column=value`` in it are columns of text;
- a glob, such as ``logs/*.parquet``;
- a file, folder or glob of an object store: ``s3://bucket/logs/``, ``gs://bucket/logs/*.parquet``;
- ``-``, standard input, in the format that ``stdin_format`` names;
- a database: ``sqlite:///path.db?table=NAME``, ``postgresql://user@host/base?table=NAME`` (or ``SCHEMA.NAME``), or
  ``…?query=SELECT …``. The query is the rest of the string as it stands; one without any space is percent-decoded.

All of them give the same keys, by :mod:`dpsketch.columns`. CSV, TSV, JSON and SQLite's queries declare no types. A
key or a user of theirs is text, unless its type is asked for.

The rules of CSV and TSV, for files and pipes alike: UTF-8, with or without a byte-order mark; a header row; fields
quoted with ``"``, doubled inside; quoted fields may hold separators and line ends; blank lines are skipped. An unquoted
empty field is missing. ``""`` is the empty text, which for a number is missing as well. Spaces belong to text, and are
ignored around numbers.

Errors never quote a record: every reader's own message is replaced, and none is kept as cause or context.
"""

from dpsketch.sources.expressions import RowExpression, RowQuery, parse_expression, parse_query
from dpsketch.sources.grouping import GroupQuery, parse_group_query
from dpsketch.sources.locations import Format
from dpsketch.sources.source import open_source, read_tables
from dpsketch.sources.values import Batch, Columns, Progress

__all__ = [
    "Batch", "Columns", "Format", "GroupQuery", "Progress", "RowExpression", "RowQuery", "open_source",
    "parse_expression", "parse_group_query", "parse_query", "read_tables",
]  # fmt: skip
