"""Read points as they come (arrays, Arrow, frames, lists) and check them once; kernels then get plain arrays.

A record with a missing coordinate (null, NaN or infinite) is left out and counted: whether to keep a record depends on
that record alone. No message carries a coordinate.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.arrays import Floats
from dpsketch.bounding import point_fingerprints
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch


@dataclass(frozen=True, slots=True, eq=False)
class VectorBatch:
    """Points as an n × dim array of finite numbers.

    ``kept`` marks which records of the batch they are; None if all were complete.
    """

    values: Floats = field(repr=False)
    kept: npt.NDArray[np.bool_] | None = field(repr=False)
    skipped: int = field(repr=False)

    def keys(self) -> KeyBatch:
        """Return the points as keys, by which a user's points are bounded."""
        prints = point_fingerprints(list(self.values.T)).fingerprints
        return KeyBatch(prints, "text", self.kept, self.skipped)


def read_vectors(points: Any, dim: int, columns: tuple[str, ...] | None) -> VectorBatch:
    """Read points of ``dim`` coordinates.

    Parameters
    ----------
    points : array, list, Arrow, pandas or polars
        An n × dim array or nested list; a table or frame, of which ``columns`` are read by name, or all if there are
        ``dim`` of them; an Arrow array of lists. For one coordinate also a flat array, list or column.
    dim : int
        The number of coordinates.
    columns : tuple of str or None
        Names of a table's columns.
    """
    if hasattr(points, "column_names") or (hasattr(points, "columns") and hasattr(points, "__arrow_c_stream__")):
        values = _from_table(points, dim, columns)
    elif isinstance(points, np.ndarray):
        values = _from_numpy(points, dim)
    elif isinstance(points, pa.Array | pa.ChunkedArray):
        values = column_vectors(points, dim)
    elif hasattr(points, "__arrow_c_stream__") or hasattr(points, "__arrow_c_array__"):
        values = column_vectors(_to_arrow(points), dim)
    elif hasattr(points, "to_numpy") or hasattr(points, "__array__"):
        values = _from_numpy(np.asarray(points), dim)
    else:
        values = _from_list(points, dim)
    complete = np.asarray(np.isfinite(values).all(axis=1))
    if complete.all():
        return VectorBatch(np.ascontiguousarray(values), None, 0)
    return VectorBatch(np.ascontiguousarray(values[complete]), complete, int(np.count_nonzero(~complete)))


def _from_table(table: Any, dim: int, columns: tuple[str, ...] | None) -> Floats:
    present = list(table.column_names) if hasattr(table, "column_names") else list(table.columns)
    if columns is None:
        if len(present) != dim:
            raise InvalidInput(
                f"the table has {len(present)} columns and the kernel {dim} coordinates: select them, or say columns=."
            )
        columns = tuple(present)
    if missing := [name for name in columns if name not in present]:
        raise InvalidInput(f"the table has no column {', '.join(map(repr, missing))}.")
    chosen = table.select(list(columns)) if hasattr(table, "column_names") else table[list(columns)]
    if not isinstance(chosen, pa.Table | pa.RecordBatch):
        chosen = _quietly(lambda: pa.table(chosen), "a frame with columns of numbers")
    return np.column_stack([_numbers(chosen.column(name)) for name in columns]).reshape(chosen.num_rows, dim)


def _from_numpy(array: npt.NDArray[Any], dim: int) -> Floats:
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"coordinates must be numbers, not {array.dtype.name}.")
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    if array.ndim == 1 and dim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != dim:
        raise InvalidInput(f"points must be an array of n × {dim} numbers, not one of shape {array.shape}.")
    return array.astype(np.float64, copy=False)


def column_vectors(column: Any, dim: int) -> Floats:
    """Return an Arrow column of lists, or for one coordinate of numbers, as an n × dim array; NaN where it is null."""
    types = pa.types
    if types.is_fixed_size_list(column.type) or types.is_list(column.type) or types.is_large_list(column.type):
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        present = column.filter(pa.array(valid))
        sizes = np.asarray(present.value_lengths().to_numpy(zero_copy_only=False)) if len(present) else np.array([dim])
        if np.any(sizes != dim):
            raise InvalidInput(f"every point must have {dim} coordinates.")
        values = np.full((len(column), dim), np.nan)
        values[valid] = _numbers(present.flatten()).reshape(-1, dim)
        return values
    if dim != 1:
        raise InvalidInput(f"a column of numbers has one coordinate; the kernel has {dim}. Give a table, or lists.")
    return _numbers(column)[:, None]


def fixed_vectors(points: Any) -> Any:
    """Return an Arrow column of fixed-size lists, whose length its type says, as an array; all else as it is."""
    column = points
    if hasattr(points, "__arrow_c_stream__") and not hasattr(points, "columns") and not hasattr(points, "column_names"):
        column = _to_arrow(points)
    if isinstance(column, pa.Array | pa.ChunkedArray) and pa.types.is_fixed_size_list(column.type):
        return column_vectors(column, column.type.list_size)
    return points


def _from_list(points: Any, dim: int) -> Floats:
    if isinstance(points, str | bytes) or not hasattr(points, "__len__"):
        raise InvalidInput(f"points is a {type(points).__name__}; expected an array, a table, a frame or a list.")
    rows = [point if isinstance(point, list | tuple | np.ndarray) else (point,) for point in points]
    if any(len(row) != dim for row in rows):
        raise InvalidInput(f"every point must have {dim} coordinates.")
    kinds = {type(value) for row in rows for value in row}
    if any(kind is bool or not issubclass(kind, int | float | np.number | None.__class__) for kind in kinds):
        raise InvalidInput("coordinates must be numbers.")
    values = [[np.nan if value is None else value for value in row] for row in rows]
    try:
        return np.array(values, dtype=np.float64).reshape(len(rows), dim)
    except OverflowError:
        pass
    raise InvalidInput("a coordinate is too large for a 64-bit floating-point number.")


def _numbers(column: Any) -> Floats:
    """Return an Arrow column of numbers as floats, NaN where it is null."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        # What follows the name may describe the data (a decimal's digits, a dictionary's values).
        raise InvalidInput(f"coordinates must be numbers, not {str(column.type).split('<')[0].split('(')[0]}.")
    floats = column.cast(pa.float64(), safe=False)
    return np.asarray(
        floats.to_numpy() if isinstance(floats, pa.ChunkedArray) else floats.to_numpy(zero_copy_only=False)
    )


def _to_arrow(column: Any) -> Any:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    build = pa.chunked_array if hasattr(column, "__arrow_c_stream__") else pa.array
    return _quietly(lambda: build(column), "a column of numbers or lists")


def _quietly(build: Any, wanted: str) -> Any:
    """Run a conversion of Arrow's, whose errors quote what they could not convert."""
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        return build()
    raise InvalidInput(f"the records are not {wanted}.")
