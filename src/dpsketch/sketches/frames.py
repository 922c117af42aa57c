"""Records by column name: a frame and the names of its columns, instead of the columns one by one.

A method that adds records takes columns. :func:`takes_frames` lets it also take a frame: pandas, polars, an Arrow
table, record batch or reader, a DuckDB relation, whatever has Arrow's stream interface; or an iterator of such frames,
which are one change together. A frame is read once, so that a key and its user come from one row. The method itself
sees columns in either case, without the records that lack a weight: they count as those do that lack a key.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.compound import compound_column, join_parts
from dpsketch.errors import InvalidInput, SourceError

__all__ = ["takes_frames"]

P = ParamSpec("P")
ResultT = TypeVar("ResultT", covariant=True)

# What names a column, and the argument that takes the column itself.
_BESIDE = ("users", "weights", "counts")
_COLUMNS = {"key": "keys", "points": "points", "user": "users", "weight": "weights", "count": "counts"}


class _Bound(Protocol[P, ResultT]):
    """A method that takes columns, or a frame with the names of its columns."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ResultT: ...

    @overload
    def __call__(
        self,
        frame: Any,
        /,
        *,
        key: str | Sequence[str],
        user: str | None = None,
        weight: str | None = None,
        count: str | None = None,
        disjoint_users: bool = False,
    ) -> ResultT: ...

    @overload
    def __call__(
        self,
        frame: Any,
        /,
        *,
        points: str | Sequence[str] | None = None,
        user: str | None = None,
        disjoint_users: bool = False,
    ) -> ResultT: ...


class _Method(Protocol[P, ResultT]):
    """Such a method in its class."""

    def __get__(self, instance: object, owner: type | None = None) -> _Bound[P, ResultT]: ...


def takes_frames(add: Callable[Concatenate[Any, P], ResultT]) -> _Method[P, ResultT]:
    """Let a method that adds records take a frame as well, with the names of its columns.

    The names are ``key`` (or ``points``), one or several, ``user``, ``weight`` and ``count``, as far as the method
    takes such columns. Several columns as one ``key`` are a compound key (:mod:`dpsketch.compound`). Of an iterator of
    frames, where the unit is a user, each user's records lie in one frame, unless the kind takes users in several
    updates.
    """
    _, records, *others = inspect.signature(add).parameters
    takes = {records, *others}

    def add_weighed(self: Any, *args: Any, **given: Any) -> Any:
        if foreign := [name for name in given if name not in takes]:
            # In the words of the class that was called: Python would name the base that has the method.
            raise TypeError(
                f"a {type(self).__name__} takes {', '.join(f'{name}=' for name in (records, *others))}; "
                f"{foreign[0]}= is none of them."
            )
        missing = _missing(given.get("weights")) if records == "keys" and (args or records in given) else None
        if missing is None:
            return add(self, *args, **given)
        keys, *more = args or (given.pop(records),)
        given |= {name: _without(given[name], missing) for name in _BESIDE if given.get(name) is not None}
        result = add(self, _without(keys, missing), *more, **given)
        if hasattr(self, "_skipped"):
            self._skipped += int(np.count_nonzero(missing))
        return result

    @wraps(add)
    def add_either(self: Any, *args: Any, **given: Any) -> Any:
        # Without a frame, points= is the argument of that name.
        roles = [role for role in _COLUMNS if role in given and (args or role != records)]
        named = {role: name for role in roles if (name := given.pop(role)) is not None}
        if named:
            kind = type(self).__name__
            _check(kind, named, given, takes, records, several=hasattr(self, "_note_columns"))
            frame, *more = args or (None,)
            parts = named.get("key", "")
            compound = () if isinstance(parts, str) else tuple(parts)
            if compound:
                self._check_columns(compound)
            elif getattr(self, "key_columns", ()):
                raise _not_one_column(self.key_columns)
            result: Any = None
            for piece in _frames(frame):
                columns = _read(piece, named)
                result = add_weighed(self, columns.pop(records), *more, **columns, **given)
            if compound:
                self._note_columns(compound)
            return result
        if compound := getattr(self, "key_columns", ()):
            keys, *more = args or (given.pop(records, None),)
            return add_weighed(self, compound_column(keys, compound), *more, **given)
        if records == "keys" and _is_frame(args[0] if args else given.get(records)):
            raise InvalidInput("this is a frame: say which column holds the keys, as in update(frame, key='url').")
        return add_weighed(self, *args, **given)

    return cast(_Method[P, ResultT], add_either)


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
    elif _is_instance(weights, "pandas", "Series"):
        found = weights.isna().to_numpy(bool)
    elif _is_instance(weights, "polars", "Series"):
        found = weights.is_null().to_numpy()
    elif isinstance(weights, list | tuple):
        found = np.array([weight is None for weight in weights], bool)
    return found if found is not None and found.any() else None


def _without(column: Any, missing: npt.NDArray[np.bool_]) -> Any:
    """Return a column of whatever library without some of its rows."""
    if len(column) != len(missing):
        raise InvalidInput("the columns have different lengths; each needs one entry a record.")
    if isinstance(column, list | tuple):
        return [value for value, gone in zip(column, missing, strict=True) if not gone]
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column.filter(pa.array(~missing))
    return column.filter(~missing) if _is_instance(column, "polars", "Series") else column[~missing]


def _check(
    kind: str, named: Mapping[str, Any], given: Mapping[str, Any], takes: set[str], records: str, *, several: bool
) -> None:
    """Refuse names that are none, that the kind has no use for, or that come beside columns."""
    role_of_records = "key" if records == "keys" else records
    for role, name in named.items():
        if _COLUMNS[role] not in takes:
            instead = f"say {role_of_records}= instead" if role in ("key", "points") else "leave it out"
            raise InvalidInput(f"a {kind} takes no {_COLUMNS[role]}: {role}= means nothing here; {instead}.")
        if isinstance(name, str):
            continue
        if role not in ("points", "key" if several else "points") and isinstance(name, list | tuple):
            raise InvalidInput(
                f"{role}= names one column; several as one {role} are not supported. Join them into one column first."
            )
        texts = isinstance(name, list | tuple) and all(isinstance(each, str) for each in name)
        if not texts or len(name) < (1 if role == "points" else 2) or len(set(name)) < len(name):
            wanted = "the name of a column" + (", or several different names" if role in ("points", "key") else "")
            raise InvalidInput(f"{role}= is {wanted}, as text. For a column itself say {_COLUMNS[role]}=.")
    for column in _COLUMNS.values():
        if given.get(column) is not None:
            raise InvalidInput(
                f"{column}= is a column, and {next(iter(named))}= the name of one. Give all by name, or all as columns."
            )
    if records == "keys" and "key" not in named:
        first = next(iter(named))
        raise InvalidInput(
            f"{first}= names a column of a frame: say key= as well. For columns themselves say {_COLUMNS[first]}=."
        )


def _read(frame: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that are named, under the names of their arguments."""
    wanted = [each for name in named.values() for each in ([name] if isinstance(name, str) else name)]
    whole = "key" not in named and "points" not in named  # of points without names, the sketch knows the columns
    table = _in_memory(frame, wanted, whole=whole)
    columns = {_COLUMNS[role]: _chosen(table, name) for role, name in named.items()}
    columns |= {role: _plain(columns[role], frame) for role in ("weights", "counts") if role in columns}
    if "key" in named and not isinstance(named["key"], str):
        columns["keys"] = join_parts([_chosen(table, name) for name in named["key"]])
    return {"points": table, **columns} if whole else columns


def _not_one_column(columns: Sequence[str]) -> InvalidInput:
    names = ", ".join(map(repr, columns))
    return InvalidInput(f"this sketch counts keys of several columns: say key=({names}).")


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
    if _is_instance(frame, "pandas", "DataFrame") or _is_instance(frame, "polars", "DataFrame"):
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


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Say whether a value is of a class of a library, without importing the library."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))
