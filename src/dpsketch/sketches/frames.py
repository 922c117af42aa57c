"""From the arguments of ``update`` to columns: records are given column by column, or as a frame with column names.

A frame is a pandas or polars frame, an Arrow table, record batch or reader, a DuckDB relation, or anything else with
Arrow's stream interface. An iterator of frames is one change. Each frame is read once, so that a key and its user come
from one row. Records without a weight are left out and counted, like records without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.columns import is_of
from dpsketch.compound import compound_column, join_parts
from dpsketch.errors import InvalidInput, SourceError

__all__ = ["RecordColumns", "frame_columns", "read_columns"]

# The argument that names a column of a frame, and the argument that takes the column itself.
_COLUMNS = {"key": "records", "points": "records", "user": "users", "weight": "weights", "count": "counts"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordColumns:
    """One batch of records as columns. Sensitive.

    Attributes
    ----------
    records : column, or table of points
        The keys, or the points.
    users, weights, counts : column or None
        The other columns of ``update``.
    skipped : int
        Records that were left out because their weight is missing.
    """

    records: Any
    users: Any = None
    weights: Any = None
    counts: Any = None
    skipped: int = 0


def read_columns(
    records: Any,
    names: Mapping[str, Any],
    columns: Mapping[str, Any],
    *,
    kind: str,
    takes: Sequence[str],
    role: str = "key",
    key_columns: tuple[str, ...] = (),
) -> Iterator[RecordColumns]:
    """Yield the batches that the arguments of ``update`` describe.

    Parameters
    ----------
    records : column, frame or iterator of frames
        The first argument.
    names : mapping
        The names of a frame's columns by role: ``key`` or ``points``, ``user``, ``weight``, ``count``; None if absent.
    columns : mapping
        The columns ``users``, ``weights`` and ``counts``; None if absent.
    kind : str
        The sketch's class, for error messages.
    takes : sequence of str
        Which of ``users``, ``weights`` and ``counts`` the kind takes.
    role : {"key", "points"}
        What the kind's records are.
    key_columns : tuple of str
        The columns of the sketch's compound keys.
    """
    named = {name: each for name, each in names.items() if each is not None}
    given = {name: each for name, each in columns.items() if each is not None}
    for each in (*given, *(_COLUMNS[name] for name in named)):
        if each != "records" and each not in takes:
            raise InvalidInput(f"a {kind} takes no {each}. Leave them out.")
    if named:
        _check(named, given, kind, role)
        for piece in _frames(records):
            yield _weighed(_read(piece, named))
        return
    if key_columns:
        records = compound_column(records, key_columns)
    elif role == "key" and _is_frame(records):
        raise InvalidInput("this is a frame: say which column holds the keys, as in update(frame, key='url').")
    yield _weighed(RecordColumns(records, **given))


def frame_columns(frames: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the named columns of a frame, or of each frame of an iterator."""
    for frame in _frames(frames):
        table = _in_memory(frame, list(names), whole=False)
        yield {name: _chosen(table, name) for name in names}


def _weighed(columns: RecordColumns) -> RecordColumns:
    """Return columns without the records whose weight is missing."""
    missing = _missing(columns.weights)
    if missing is None:
        return columns
    given = {field.name: getattr(columns, field.name) for field in fields(columns) if field.name != "skipped"}
    kept = {name: _without(column, missing) for name, column in given.items() if column is not None}
    return replace(columns, **kept, skipped=int(np.count_nonzero(missing)))


def _frames(frame: Any) -> Iterator[Any]:
    """Go through the frames of an iterator, or the one frame that this is."""
    if not isinstance(frame, Iterator) or hasattr(frame, "__arrow_c_stream__"):
        yield frame
        return
    piece = None
    for piece in frame:
        yield piece
    if piece is None:
        raise InvalidInput(
            "the iterator gave no frame. Give one, without rows where there are no records: it has types."
        )


def _missing(weights: Any) -> npt.NDArray[np.bool_] | None:
    """Say which weights are missing, None if none is: nulls, None in a list, and pandas' NaN, which is its null."""
    found: Any = None
    if isinstance(weights, pa.Array | pa.ChunkedArray):
        found = np.asarray(weights.is_null()) if weights.null_count else None
    elif is_of(weights, "pandas", "Series"):
        found = weights.isna().to_numpy(bool)
    elif is_of(weights, "polars", "Series"):
        found = weights.is_null().to_numpy()
    elif isinstance(weights, list | tuple):
        found = np.array([weight is None for weight in weights], bool)
    return found if found is not None and found.any() else None


def _without(column: Any, missing: npt.NDArray[np.bool_]) -> Any:
    """Return a column of whatever library without some of its rows."""
    column = list(column) if isinstance(column, Iterator) else column
    if len(column) != len(missing):
        raise InvalidInput("the columns have different lengths; each needs one entry a record.")
    if isinstance(column, list | tuple):
        return [value for value, gone in zip(column, missing, strict=True) if not gone]
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.filter(pa.array(~missing))
    return column.filter(~missing) if is_of(column, "polars", "Series") else column[~missing]


def _check(named: Mapping[str, Any], given: Mapping[str, Any], kind: str, role: str) -> None:
    """Refuse names that are no names of columns, or that come beside columns."""
    for each, name in named.items():
        if each in ("key", "points") and each != role:
            raise InvalidInput(f"a {kind} takes no {_argument(each)}: {each}= means nothing here; say {role}= instead.")
        if isinstance(name, str):
            continue
        if each not in ("key", "points") and isinstance(name, list | tuple):
            raise InvalidInput(
                f"{each}= names one column; several as one {each} are not supported. Join them into one column first."
            )
        texts = isinstance(name, list | tuple) and all(isinstance(one, str) for one in name)
        if not texts or len(name) < (1 if each == "points" else 2) or len(set(name)) < len(name):
            wanted = "the name of a column" + (", or several different names" if each in ("points", "key") else "")
            raise InvalidInput(f"{each}= is {wanted}, as text. For a column itself say {_argument(each)}=.")
    if given:
        raise InvalidInput(
            f"{next(iter(given))}= is a column, and {next(iter(named))}= the name of one. Give all by name, or all as "
            "columns."
        )
    if role == "key" and "key" not in named:
        first = next(iter(named))
        raise InvalidInput(
            f"{first}= names a column of a frame: say key= as well. For columns themselves say {_argument(first)}=."
        )


def _argument(role: str) -> str:
    """Return the argument that takes a column itself."""
    return {"key": "keys", "points": "points"}.get(role, _COLUMNS[role])


def _read(frame: Any, named: Mapping[str, Any]) -> RecordColumns:
    """Return the named columns of a frame; without ``points=``, all of its columns are coordinates."""
    wanted = [each for name in named.values() for each in ([name] if isinstance(name, str) else name)]
    whole = "key" not in named and "points" not in named
    table = _in_memory(frame, wanted, whole=whole)
    columns = {_COLUMNS[role]: _chosen(table, name) for role, name in named.items()}
    columns |= {role: _plain(columns[role], frame) for role in ("weights", "counts") if role in columns}
    if "key" in named and not isinstance(named["key"], str):
        columns["records"] = join_parts([_chosen(table, name) for name in named["key"]])
    return RecordColumns(**({"records": table} | columns))


def _chosen(table: Any, name: str | Sequence[str]) -> Any:
    if not isinstance(name, str):
        return table.select(list(name)) if isinstance(table, pa.Table) else table[list(name)]
    return table.column(name) if isinstance(table, pa.Table) else table[name]


def _plain(numbers: Any, frame: Any) -> Any:
    """Return decimals, which a database's sums are, as numbers of 64 bits, and all else as it is."""
    if not (isinstance(numbers, pa.ChunkedArray) and pa.types.is_decimal(numbers.type)):
        return numbers
    kind = pa.float64() if numbers.type.scale else pa.int64()
    return _guarded(lambda: numbers.cast(kind), frame)


def _in_memory(frame: Any, wanted: list[str], *, whole: bool) -> Any:
    """Return a pandas or polars frame as it is, anything else as an Arrow table of the columns wanted, or of all.

    A stream, or a relation that is computed when it is read, is read once, and not before its columns' names are known.
    """
    if is_of(frame, "pandas", "DataFrame") or is_of(frame, "polars", "DataFrame"):
        _check_labels(list(frame.columns), wanted)
        return frame
    if not (hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")):
        raise InvalidInput(
            "the names of columns go with a frame: pandas, polars, an Arrow table or a DuckDB relation, not "
            f"{'nothing' if frame is None else f'a {type(frame).__name__}'}. Collect or convert it."
        )

    def opened() -> Any:
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(frame)
        batch = pa.record_batch(frame)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])

    with _guarded(opened, frame) as reader:  # closed also when refused: it holds a database's connection
        schema = reader.schema
        _check_labels(schema.names, wanted)
        places = [i for i, name in enumerate(schema.names) if whole or name in wanted]
        kept = pa.schema([schema.field(i) for i in places])

        def read() -> pa.Table:
            # Piece by piece, so that columns nobody asked for are let go.
            pieces = [pa.record_batch([piece.column(i) for i in places], schema=kept) for piece in reader]
            return pa.Table.from_batches(pieces, kept)

        return _guarded(read, frame)


def _check_labels(labels: list[Any], wanted: list[str]) -> None:
    # Its other names are not listed: those of a pivoted frame are keys.
    for name in wanted:
        if name not in labels:
            raise InvalidInput(f"the frame has no column {name!r}. Check how the name is written.")
        if labels.count(name) > 1:
            raise InvalidInput(f"the frame has two columns {name!r}. Give each its own name.")


def _guarded(read: Callable[[], Any], frame: Any) -> Any:
    """Run a step of a reader, whose errors quote what they could not read."""
    from dpsketch.sources.failures import guarded  # the package loads readers that a sketch has no use for

    def explain(error: Exception) -> SourceError:
        return SourceError(
            f"the {type(frame).__name__} could not be read as a frame ({type(error).__name__}): it has no named "
            "columns, a number passes 64 bits, or computing it failed. Turn it into an Arrow table first to see why."
        )

    return guarded(read, explain)


def _is_frame(records: Any) -> bool:
    kind = type(records)  # a pandas Series has its index's labels as attributes
    named = any(hasattr(kind, name) for name in ("columns", "column_names", "schema"))
    return named and any(hasattr(kind, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))
