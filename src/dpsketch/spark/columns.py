"""From the columns of a DataFrame to the fixed ones that tasks read; text is hashed by Spark where that suffices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions, types

from dpsketch.errors import InvalidInput
from dpsketch.hashing import text_fingerprints
from dpsketch.kernels import Jaccard
from dpsketch.sketches.kinds import KINDS
from dpsketch.sources import Batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Selected", "select", "user_columns"]

_INTEGERS = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
# All decimals of so many digits are whole numbers of 64 bits.
_MOST_DIGITS = 18
_MOST_NAMES = 30


@dataclass(frozen=True, slots=True)
class Selected:
    """Records in their fixed columns.

    Attributes
    ----------
    frame : DataFrame
        The records.
    empty : Batch
        No records, in columns of the same types.
    width : int or None
        Bytes of a record where all columns have a fixed width, else None.
    """

    frame: DataFrame
    empty: Batch
    width: int | None


def user_columns(names: Sequence[str]) -> list[str]:
    """Return those of the fixed columns that say who a record belongs to."""
    return [name for name in names if name.startswith("user_")]


def select(
    frame: DataFrame,
    sketch: Any,
    *,
    key: str | tuple[str, ...] | None,
    user: str | None,
    weight: str | None,
    points: Sequence[str],
) -> Selected:
    """Choose the columns that a sketch needs, and check that their types are those of keys, users and numbers."""
    kind = KINDS[sketch.kind]
    if kind.reads == "points":
        if key is not None or weight is not None or not points:
            raise InvalidInput(
                f"a {kind.name} counts points: say points=['x', 'y'], their columns, or points=['vector'], one column "
                "of arrays; no key= and weight=."
            )
    elif key is None or points:
        raise InvalidInput("say which column holds the key, key='name'; points= belongs to densities.")
    if not kind.weighs and weight is not None:
        raise InvalidInput(f"a {kind.name} count has no weights: leave weight= out.")
    found: dict[str, Column] = {}
    empty: dict[str, Any] = {"key": None, "user": None, "weight": None}
    if key is not None:
        name, found_key, empty["key"] = _key(frame, key, hashed=kind.fingerprints)
        found[name] = found_key
    if user is not None:
        found_type = _type(frame, user)
        integer = isinstance(found_type, _INTEGERS)
        if not integer and not isinstance(found_type, types.StringType):
            raise _refused(user, found_type, "a user is a whole number or text")
        found["user_int" if integer else "user_text"] = _column(user).cast("long" if integer else "string")
        empty["user"] = pa.array([], pa.int64() if integer else pa.string())
    if weight is not None:
        found["weight"] = _number(frame, weight, "weights")
        empty["weight"] = pa.array([], pa.float64())
    coordinates: tuple[Any, ...] = ()
    if kind.reads == "points" and isinstance(getattr(sketch.spec, "kernel", None), Jaccard):
        found["key_set"], empty["key"] = _set(frame, points, user)
    elif len(points) == 1 and isinstance(_type(frame, points[0]), types.ArrayType):
        found["vector"] = _vector(frame, points[0])
        coordinates = tuple(pa.array([], pa.float64()) for _ in range(sketch.spec.dim))
    elif points:
        found |= {f"point_{i}": _number(frame, name, "coordinates") for i, name in enumerate(points)}
        coordinates = tuple(pa.array([], pa.float64()) for _ in points)
    fixed = not {"key_text", "key_typed", "key_set", "user_text", "vector"} & found.keys()
    return Selected(
        frame.select([column.alias(name) for name, column in found.items()]),
        Batch(empty["key"], empty["user"], empty["weight"], coordinates, 0),
        9 * len(found) if fixed else None,
    )


def _key(frame: DataFrame, name: str | tuple[str, ...], *, hashed: bool) -> tuple[str, Column, pa.Array]:
    if isinstance(name, tuple):
        column = _row([_text(frame, part) for part in name])
    else:
        kind = _type(frame, name)
        if isinstance(kind, _INTEGERS):
            return "key_int", _column(name).cast("long"), pa.array([], pa.int64())
        if (counted := _counted_as(kind)) is not None:
            return "key_typed", _column(name), pa.array([], counted)
        column = _column(name) if isinstance(kind, types.BinaryType) else _text(frame, name)
    if not hashed:
        return "key_text", column, pa.array([], pa.string())
    # Spark's hash of a null is its seed, which looks like a key.
    prints = functions.when(column.isNotNull(), functions.xxhash64(column))
    return "key_hash", prints, text_fingerprints(pa.array([], pa.int64()))


def _counted_as(kind: types.DataType) -> pa.DataType | None:
    """Return what keys of a type are that tasks bring into their canonical form; None for all other types."""
    if isinstance(kind, types.DecimalType):
        if kind.scale == 0 and kind.precision > _MOST_DIGITS:
            return None
        return pa.int64() if kind.scale == 0 else pa.string()
    if isinstance(kind, types.FloatType | types.DoubleType):
        return pa.int64()
    return pa.string() if isinstance(kind, types.TimestampType) else None


def _text(frame: DataFrame, name: str) -> Column:
    """Return a column's canonical text, where Spark writes it so: see :mod:`dpsketch.canonical`."""
    kind = _type(frame, name)
    if not isinstance(kind, (*_INTEGERS, types.StringType, types.DateType, types.BooleanType)):
        wanted = "a part of a key is a whole number, text, a date or a boolean"
        if _counted_as(kind) is None:
            wanted = (
                "a key is a whole number, a float, text, bytes, a date, a time stamp with a zone, a boolean or a "
                f"decimal (without digits after the point, of {_MOST_DIGITS} digits at most)"
            )
        raise _refused(name, kind, wanted)
    return _column(name).cast("string")  # without a collation, under which unequal texts would be equal


def _row(parts: list[Column]) -> Column:
    """Return the CSV row of a compound key (:mod:`dpsketch.compound`), null where any part is."""
    quote = functions.lit('"')
    fields = [
        functions.when(
            part.rlike('[",\\r\\n]'),
            functions.concat(quote, functions.replace(part, quote, functions.lit('""')), quote),
        ).otherwise(part)
        for part in parts
    ]
    between = [each for field in fields for each in (functions.lit(","), field)]
    return functions.concat(*between[1:])


def _set(frame: DataFrame, points: Sequence[str], user: str | None) -> tuple[Column, pa.Array]:
    if len(points) != 1 or user is not None:
        raise InvalidInput(
            "a Jaccard density counts sets, one column of arrays a record: points=['items']. Where the unit is a user, "
            "count them on one machine."
        )
    kind = _type(frame, points[0])
    element = kind.elementType if isinstance(kind, types.ArrayType) else None
    if not isinstance(element, (*_INTEGERS, types.StringType)):
        raise _refused(points[0], kind, "a set is an array of whole numbers or of text")
    integer = isinstance(element, _INTEGERS)
    wanted = "array<long>" if integer else "array<string>"
    return _column(points[0]).cast(wanted), pa.array([], pa.list_(pa.int64() if integer else pa.string()))


def _vector(frame: DataFrame, name: str) -> Column:
    kind = _type(frame, name)
    if not isinstance(kind, types.ArrayType) or not isinstance(kind.elementType, types.NumericType):
        raise _refused(name, kind, "a vector is an array of numbers")
    return _column(name).cast("array<double>")


def _number(frame: DataFrame, name: str, role: str) -> Column:
    kind = _type(frame, name)
    if not isinstance(kind, types.NumericType):
        alone = ", or all of them one array of numbers" if role == "coordinates" else ""
        raise _refused(name, kind, f"{role} are numbers{alone}")
    return _column(name).cast("double")


def _type(frame: DataFrame, name: str) -> types.DataType:
    names = frame.columns
    if names.count(name) > 1:
        raise InvalidInput(f"the DataFrame has two columns named {name!r}. Give each its own name.")
    if name not in names:
        listed = ", ".join(repr(each) for each in names[:_MOST_NAMES])
        raise InvalidInput(f"the DataFrame has no column {name!r}. Its columns are {listed}.")
    return frame.schema[name].dataType


def _column(name: str) -> Column:
    return functions.col("`" + name.replace("`", "``") + "`")


def _refused(name: str, kind: types.DataType, wanted: str) -> InvalidInput:
    return InvalidInput(f"column {name!r} has the type {kind.typeName()}, and {wanted}. Cast it, or choose another.")
