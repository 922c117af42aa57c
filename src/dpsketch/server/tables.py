"""Rows of a released table: added up, searched, sorted, and a page of them at a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from dpsketch.errors import InvalidInput
from dpsketch.release import Release
from dpsketch.server.answers import CSV, finite, reply
from dpsketch.server.models import AskTable
from dpsketch.sketches.table.private import PrivateTable
from dpsketch.sketches.table.rows import csv_of, plain

__all__ = ["rows_reply"]

_MOST_CELLS = 100_000  # of an answer: about 2 MB
_ADDED_UP = (
    "Groups that are not listed may belong to any row: the intervals of counts and sums reach as far as these may "
    "change it. Means and quantiles are those of the listed groups."
)
_PAIRS = " A row counts a user once for each of its groups."


def rows_reply(release: Release, asked: AskTable) -> Response:
    """Return the rows that were asked for, with the guarantee; as CSV, the rows alone."""
    if not isinstance(release, PrivateTable):
        raise InvalidInput("this release is not a table of groups.")
    by = release.spec.by if asked.by is None else tuple(asked.by)
    if len(set(by)) < len(by) or not set(by) <= set(release.spec.by):
        # A refusal repeats nothing of what was sent.
        raise InvalidInput(f"by names group columns, each once. This table has {', '.join(release.spec.by)}.")
    view = release.rollup(*by)
    if asked.sort not in (None, *view.columns):
        raise InvalidInput(f"sort names a column of the rows. They have {', '.join(view.columns)}.")
    rows = _with_words(view.to_arrow(confidence=asked.confidence), by, asked.search.casefold().split())
    if asked.sort is not None:
        keys = [(asked.sort, "descending" if asked.descending else "ascending")]
        rows = rows.take(pc.sort_indices(rows, keys))
    page = rows.slice(asked.offset, min(asked.limit, max(1, _MOST_CELLS // rows.num_columns)))
    if asked.format == "csv":
        headers = {"Content-Disposition": 'attachment; filename="table.csv"'}
        return Response(csv_of(page).encode(), media_type=CSV, headers=headers)
    others = release.others_at(asked.confidence)
    note = ""
    if len(by) < len(release.spec.by):
        note = _ADDED_UP + (_PAIRS if release.spec.unit.level == "user" else "")
    return reply(
        {
            "by": list(by),
            "columns": page.column_names,
            "rows": finite([[plain(each) for each in row.values()] for row in page.to_pylist()]),
            "total": rows.num_rows,
            "others": finite({name: others[name] for name in view.columns if name not in by}),
            "confidence": asked.confidence,
            "note": note,
            "guarantee": finite(release.guarantee.to_json()),
        }
    )


def _with_words(rows: pa.Table, by: tuple[str, ...], words: list[str]) -> pa.Table:
    """Return the rows in whose group columns all words occur."""
    if not words or not by:
        return rows
    names = zip(*(rows[name].to_pylist() for name in by), strict=True)
    texts = [" ".join(map(str, each)).casefold() for each in names]
    return rows.filter(pa.array([all(word in text for word in words) for text in texts], pa.bool_()))
