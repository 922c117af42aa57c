"""What people hold: one set of keys a person, from whatever container it comes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.bounding import read_users
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType, fingerprint

__all__ = ["Holders", "People", "group_by_person", "list_column", "offsets_of", "read_people", "read_single_items"]


def offsets_of(sizes: Any) -> npt.NDArray[np.int64]:
    """Return where each of some runs begins when they lie one after the other, and where the last one ends.

    Of a mask, it is how many entries before each are kept.
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """People who hold some things each: person i those from ``offsets[i]`` up to ``offsets[i + 1]``. Sensitive."""

    offsets: npt.NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class People(Holders):
    """Everyone's keys, as fingerprints. Sensitive."""

    prints: npt.NDArray[np.uint64] = field(repr=False)

    def take(self, chosen: npt.NDArray[Any]) -> People:
        """Return the chosen people (indices or a mask), in order."""
        starts, ends = self.offsets[:-1][chosen], self.offsets[1:][chosen]
        sizes = ends - starts
        offsets = offsets_of(sizes)
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, sizes)
        return People(offsets, self.prints[places])

    def only(self, kept: npt.NDArray[np.bool_]) -> People:
        """Return the same people with the keys that a mask keeps."""
        return People(offsets_of(kept)[self.offsets], self.prints[kept])

    def distinct(self) -> People:
        """Return the same people, everyone's keys sorted and each but once."""
        owners = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        order = np.lexsort((self.prints, owners))
        prints, owners = self.prints[order], owners[order]
        first = np.ones(len(prints), np.bool_)
        first[1:] = (prints[1:] != prints[:-1]) | (owners[1:] != owners[:-1])
        return People(self.offsets, prints).only(first)


def read_people(sets: Any, key_type: KeyType | None = None) -> People:
    """Read one set a person.

    Parameters
    ----------
    sets : Arrow list array, list of lists, (offsets, values), or People
        An Arrow (large) list array or chunked array; a pandas or polars Series of lists; a sequence of sequences of
        keys; or a pair of an integer array of n + 1 offsets and a flat column of values. Keys are integers or text. A
        null set is empty, a null key is left out, and a key that a person holds twice counts once.
    key_type : {"int", "text"}, optional
        What the keys must be.

    Examples
    --------
    >>> read_people([["a", "b"], [], ["a"]]).offsets.tolist()
    [0, 2, 2, 3]
    """
    if isinstance(sets, People):
        return sets
    offsets, values = list_column(sets)
    batch = fingerprint(values, key_type)
    if batch.kept is not None:
        offsets = offsets_of(batch.kept)[offsets]
    return People(offsets, batch.fingerprints)


def read_single_items(items: Any, key_type: KeyType | None = None) -> People:
    """Read one key a person from a flat column; nulls are refused, because everyone who reports has an item."""
    if isinstance(items, People):
        if not bool(np.all(np.diff(items.offsets) == 1)):
            raise InvalidInput("this protocol reports exactly one item a person.")
        return items
    batch = fingerprint(items, key_type)
    if batch.skipped:
        raise InvalidInput("an item is null, and this protocol reports exactly one a person. Leave such people out.")
    return People(np.arange(len(batch.fingerprints) + 1, dtype=np.int64), batch.fingerprints)


def list_column(sets: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Take a column of lists apart into offsets and a flat column of values."""
    if isinstance(sets, tuple) and len(sets) == 2 and isinstance(sets[0], np.ndarray):
        return _checked_offsets(sets[0], len(sets[1])), sets[1]
    if hasattr(sets, "to_arrow"):
        sets = sets.to_arrow()
    if isinstance(sets, pa.ChunkedArray):
        sets = sets.combine_chunks()
        if isinstance(sets, pa.ChunkedArray):  # no chunk at all
            sets = pa.concat_arrays(sets.chunks) if sets.num_chunks else pa.array([], sets.type)
    if isinstance(sets, pa.Array):
        return _from_arrow(sets)
    if isinstance(sets, str | bytes) or not (isinstance(sets, Sequence) or hasattr(sets, "tolist")):
        raise InvalidInput("sets must be an Arrow list array, a list of lists, or (offsets, values).")
    return _from_sequences(sets if isinstance(sets, Sequence) else sets.tolist())


def _from_sequences(people: Sequence[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    held = [() if one is None else one for one in people]
    if any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in held):
        raise InvalidInput("sets must hold one list (or set) of keys a person; something else was found among them.")
    return offsets_of([len(one) for one in held]), list(chain.from_iterable(held))


def _from_arrow(column: pa.Array) -> tuple[npt.NDArray[np.int64], Any]:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column) + 1, np.int64), pa.nulls(0)
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.large_list(kind.value_type))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise InvalidInput("sets must be an Arrow *list* array: one list of keys a person.")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return offsets_of(lengths), column.flatten()  # flatten leaves out what null lists and a slice's neighbours cover


def _checked_offsets(offsets: npt.NDArray[Any], values: int) -> npt.NDArray[np.int64]:
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) == 0:
        raise InvalidInput("offsets must be a flat array of n + 1 whole numbers.")
    whole = offsets.astype(np.int64)
    if whole[0] != 0 or whole[-1] != values or bool(np.any(whole[1:] < whole[:-1])):
        raise InvalidInput("offsets must start at 0, never fall, and end at the number of values.")
    return whole


def group_by_person(users: Any, keys: Any) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Gather records of (user, key) into one set a user, as the pair that ``report`` takes.

    Users are read and told apart as those of a sketch are, and come out in no stated order. Records without a user are
    left out.

    Examples
    --------
    >>> offsets, values = group_by_person(["u", "v", "u"], ["a", "b", "c"])
    >>> sorted(map(tuple, (values[a:b].to_pylist() for a, b in zip(offsets[:-1], offsets[1:]))))
    [('a', 'c'), ('b',)]
    """
    items = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
    records = pa.table({"user": read_users(users, len(items)).column, "key": items})
    records = records.filter(records["user"].is_valid())
    grouped = records.group_by("user").aggregate([("key", "list")])
    return list_column(grouped["key_list"])
