"""Read a column of users by exact value, group a batch by user, and keep of each so many keys of so much weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch import threads
from dpsketch._compiled import bounding as kernels
from dpsketch.columns import UserType, as_column, has_schema, user_type_of
from dpsketch.errors import InvalidInput
from dpsketch.hashing import TEXT_FINGERPRINTS, KeyBatch, fingerprint, key_type_of, row_keys, to_arrow

__all__ = ["Bounded", "Prints", "UserColumn", "bound", "codes_of", "point_fingerprints", "read_users", "user_parts"]

Prints = npt.NDArray[np.uint64]
_Integers = npt.NDArray[np.int64]

_SMALLEST_PART = 1 << 18  # records that are worth a thread


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UserColumn:
    """Users in their canonical form, with the type of the column they came in. Sensitive.

    Attributes
    ----------
    column : pyarrow.ChunkedArray
        Whole numbers as 64-bit patterns, or text. Within one user type, unequal users have unequal values.
    user_type : UserType or None
        The type that the column had; None if it holds nulls alone.
    """

    column: pa.ChunkedArray
    user_type: UserType | None

    def __repr__(self) -> str:
        return "<UserColumn; sensitive, content not shown>"


def read_users(users: Any, n: int | None = None) -> UserColumn:
    """Read any accepted container of users, ``n`` of them if that is stated; all kinds and streams read users here."""
    if isinstance(users, UserColumn):
        read = users
    else:
        try:
            read = _read(users)
        except InvalidInput as refusal:
            wrong = str(refusal)
        else:
            wrong = ""
        if wrong:
            raise InvalidInput(f"users are read as keys are, and these were refused: {wrong}")
    if n is not None and len(read.column) != n:
        raise InvalidInput("users must have one entry a key; this column has another length.")
    return read


def _read(users: Any) -> UserColumn:
    given, declared = as_column(users), has_schema(users)
    if given.type == TEXT_FINGERPRINTS:
        raise InvalidInput("users are told apart exactly, and these are fingerprints. Give the users themselves.")
    column = to_arrow(given, None if declared else "text")
    if pa.types.is_uint64(column.type) and not declared and any(user is not None and user < 0 for user in users):
        raise InvalidInput(
            "the users hold negative integers and integers of 2**63 and more, and no 64-bit column holds both. "
            "Pass them as text."
        )
    return UserColumn(column, user_type_of(given.type, declared=declared))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bounded:
    """A batch after bounding: one run of keys for each user. Sensitive.

    Attributes
    ----------
    users : numpy.ndarray of uint64
        The fingerprint of each run's user. Two users may share one.
    user_type : UserType or None
        The type of the users' column; None if the batch does not say.
    starts : numpy.ndarray of int64
        Run u has the keys ``starts[u]`` to ``starts[u + 1]``, in the order in which they are to be inserted.
    fingerprints : numpy.ndarray of uint64
        The keys.
    rows : numpy.ndarray of int64
        For each key, the place in the batch of a record that has it.
    units : numpy.ndarray of int64
        For each key, the sum of the units of its records, clipped; at least 1.
    skipped : int
        How many records had a null key or a null user.
    present : numpy.ndarray of bool
        Which records had both.
    left_out : int
        How many of those have a key that is not among their user's first ``max_keys``.
    """

    users: Prints
    user_type: UserType | None
    starts: npt.NDArray[np.int64]
    fingerprints: Prints
    rows: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]
    skipped: int
    present: npt.NDArray[np.bool_]
    left_out: int


def bound(
    users: Any,
    keys: KeyBatch,
    units: npt.NDArray[np.int64] | int,
    *,
    max_keys: int,
    max_units: int,
    seed: int,
) -> Bounded:
    """Group a batch by user, and keep of each user at most ``max_keys`` keys of at most ``max_units`` each.

    Parameters
    ----------
    users : list, NumPy, Arrow, pandas or polars column
        Who each record belongs to: integers or text, one a record. Records of null users are left out.
    keys : KeyBatch
        The fingerprints of the records' keys.
    units : numpy.ndarray of int64, or int
        What each record adds, one a record (also for null keys) or the same for all. Records that add 0 are left out.
    max_keys, max_units : int
        The bounds.
    seed : int
        The spec's seed; it orders a user's keys.

    Privacy
    -------
    A run depends on its user's records and on nothing else, has at most ``max_keys`` keys, different from each other,
    and at most ``max_units`` on each. It is the same in whatever order the records come.

    Examples
    --------
    >>> batch = fingerprint(["tea", "milk", "tea", "rye"])
    >>> kept = bound(["ann", "bob", "ann", "bob"], batch, 1, max_keys=1, max_units=9, seed=1)
    >>> kept.starts.tolist(), kept.rows.tolist(), kept.units.tolist()
    ([0, 1, 2], [0, 3], [2, 1])
    """
    n = len(keys.fingerprints) + keys.skipped
    codes, known, found_type = _encode(users, n)
    amounts = np.array([units], np.int64) if isinstance(units, int) else units
    prints = keys.fingerprints
    present = codes >= 0
    if keys.kept is not None:
        present &= keys.kept
    places: npt.NDArray[np.int64] | None = None
    if not present.all():
        places = np.flatnonzero(present)
        codes = codes[places]
        prints = (prints if keys.kept is None else _spread(prints, keys.kept))[places]
        amounts = amounts if isinstance(units, int) else amounts[places]
    starts, order = np.empty(len(known) + 1, np.int64), np.empty(len(codes), np.int64)
    kernels.group(codes, starts, order)
    seed_key = row_keys(seed, 1, "bounding")[0]

    def keep_first(part: slice) -> _Kept:
        own = starts[part.start : part.stop + 1]
        most = int(np.minimum(np.diff(own), max_keys).sum())
        ends, kept_rows, kept_units = (np.empty(size, np.int64) for size in (len(own), most, most))
        records, bounds = order[own[0] : own[-1]], (seed_key, max_keys, max_units)
        left_out = kernels.keep_first(
            own - own[0], records, known[part], prints, amounts, *bounds, ends, kept_rows, kept_units
        )
        return _Kept(np.diff(ends), kept_rows[: ends[-1]], kept_units[: ends[-1]], int(left_out))

    kept = _joined(threads.run([partial(keep_first, part) for part in user_parts(starts, _SMALLEST_PART)]))
    held = kept.sizes > 0
    rows = kept.rows
    return Bounded(
        users=known[held],
        user_type=found_type,
        starts=np.append(0, np.cumsum(kept.sizes[held])),
        fingerprints=prints[rows],
        rows=rows if places is None else places[rows],
        units=kept.units,
        skipped=n - len(codes),
        present=present,
        left_out=kept.left_out,
    )


class _Kept(NamedTuple):
    """What counts of some users: how many keys each has, and of every key a row and its units."""

    sizes: _Integers
    rows: _Integers
    units: _Integers
    left_out: int


def _joined(parts: list[_Kept]) -> _Kept:
    """Put users together who were bounded apart: no user depends on another."""
    if len(parts) == 1:
        return parts[0]
    sizes, rows, units, left_out = zip(*parts, strict=True)
    return _Kept(np.concatenate(sizes), np.concatenate(rows), np.concatenate(units), sum(left_out))


def user_parts(starts: _Integers, smallest: int) -> list[slice]:
    """Cut users into parts of about as many records, one a thread, if each thread then has about ``smallest``.

    User u has the records ``starts[u]`` to ``starts[u + 1]``, and is in one part.
    """
    pieces = threads.parts(int(starts[-1]), smallest)
    inner = np.searchsorted(starts, [piece.start for piece in pieces[1:]]).tolist()
    edges = sorted({0, *inner, len(starts) - 1})
    return [slice(low, high) for low, high in pairwise(edges)] or [slice(0, 0)]


def _spread(prints: Prints, kept: npt.NDArray[np.bool_]) -> Prints:
    """Return fingerprints at the places their keys had in the batch, null keys included."""
    spread = np.zeros(len(kept), np.uint64)
    spread[kept] = prints
    return spread


def _encode(users: Any, n: int) -> tuple[npt.NDArray[np.int32], Prints, UserType | None]:
    """Give each distinct user, by exact value, a number: return each record's (−1 for null), and each user's print."""
    read = read_users(users, n)
    column, stored = read.column, key_type_of(read.column.type)
    if stored is None:
        return np.full(n, -1, np.int32), np.empty(0, np.uint64), read.user_type
    column = _plain(column, pa.large_binary() if stored == "text" else None)
    encoded = column.dictionary_encode()
    codes = np.concatenate([np.empty(0, np.int32), *(codes_of(chunk.indices) for chunk in encoded.chunks)])
    distinct = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], column.type)
    return codes, fingerprint(distinct).fingerprints, read.user_type


# pa.scalar, fill_null and to_numpy would import pandas.
_NOBODY = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.full(1, -1, np.int32))])[0]


def codes_of(indices: pa.Array) -> npt.NDArray[np.int32]:
    """Return a dictionary's indices, −1 for nulls."""
    filled = indices if indices.null_count == 0 else pc.coalesce(indices, _NOBODY)
    return np.frombuffer(filled.buffers()[1] or b"", np.int32, len(filled), 4 * filled.offset)


def _plain(column: pa.ChunkedArray, kind: pa.DataType | None) -> pa.ChunkedArray:
    """Return a column as one type and without a dictionary: its values need not be distinct."""
    if pa.types.is_dictionary(column.type):
        kind = kind or column.type.value_type
        decoded = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind)).dictionary_decode()
            for chunk in column.chunks
        ]
        return pa.chunked_array(decoded, kind)
    return column if kind is None else column.cast(kind)


def point_fingerprints(points: Sequence[Any]) -> KeyBatch:
    """Return the fingerprints of points, given by coordinate: a point is a key whose bytes are its coordinates."""
    # Adding 0.0 turns −0.0 into 0.0, which compares equal to it.
    table = np.column_stack([np.asarray(column, np.float64) for column in points]) + 0.0
    n, dimensions = table.shape
    column = pa.Array.from_buffers(pa.binary(8 * dimensions), n, [None, pa.py_buffer(np.ascontiguousarray(table))])
    return fingerprint(column)
