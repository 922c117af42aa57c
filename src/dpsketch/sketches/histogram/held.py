"""What a histogram holds in memory: keys with their units, or who has which key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.content import Content, Pairs, Records
from dpsketch.sketches.histogram.keytable import KeyTable
from dpsketch.sketches.histogram.pairs import PairTable, check_room
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.specs import check_key_type
from dpsketch.sketches.weights import checked_total

__all__ = ["Held", "Opened"]


class Opened(NamedTuple):
    """Records in the order of their keys, for one release.

    Attributes
    ----------
    content : Content
        What a mechanism asks.
    places : callable
        Takes names of keys, all of one type, and returns where each is in that order; −1 for one that nobody has.
    names : callable
        Takes places, which increase, and returns the keys.
    """

    content: Content
    places: Callable[[list[Any]], Integers]
    names: Callable[[Integers], list[Any]]


class Held:
    """Keys with their units where the unit is a record, else pairs of users and keys. Sensitive.

    Parameters
    ----------
    spec : HistogramSpec
        Whose unit and grid these follow.
    like : Held, optional
        One whose secret hashes to share.
    """

    def __init__(self, spec: HistogramSpec, like: Held | None = None) -> None:
        self._spec = spec
        self.by_user = spec.unit.level == "user"
        self.most = spec.weight_grid.max_units
        self.keys: KeyTable = KeyTable(spec.key_type, None if like is None else like.keys.secret)
        self.users: KeyTable = KeyTable(None, None if like is None else like.users.secret)
        self.pairs = PairTable(self.most)

    @property
    def nbytes(self) -> int:
        """About how much memory this takes."""
        return self.keys.nbytes + self.users.nbytes + self.pairs.nbytes

    @property
    def mass(self) -> int:
        """All units together."""
        units = self.pairs.arrays()[2] if self.by_user else self.keys.units
        return checked_total(0, units, 1, len(units))

    def emptied(self) -> Held:
        """Return an empty one with the same secret hashes, which takes keys and users of the same types."""
        empty = Held(self._spec, self)
        empty.keys.key_type, empty.users.key_type = self.keys.key_type, self.users.key_type
        return empty

    def counted(self, max_keys: int) -> tuple[int, int, int]:
        """Return how many pairs there are, how many of them are too many, and what counts of all units in the mean."""
        users, _, units = self.pairs.arrays()
        held = np.maximum(np.bincount(users), 1)  # every user has a pair
        kept = np.minimum(held, max_keys)
        own = np.zeros(len(held), np.int64)
        np.add.at(own, users, units)
        counted = own // held * kept + own % held * kept // held  # own * kept may pass 64 bits
        return len(users), int((held - kept).sum()), int(counted.sum())

    def add_pairs(self, owners: pa.ChunkedArray, keys: pa.ChunkedArray, units: Integers) -> None:
        """Add records of users; none has a null, and each has a unit at least."""
        self.pairs.add(self.users.numbers(owners, verified=True), self.keys.numbers(keys), units)

    def check_absorb(self, other: Held) -> None:
        """Refuse what cannot be added to this."""
        check_room(len(self.users) + len(other.users), len(self.keys) + len(other.keys))

    def absorb(self, other: Held) -> None:
        """Add all that another one holds."""
        keys = self.keys.absorb(other.keys)
        if self.by_user:
            owners = self.users.absorb(other.users, verified=True)
            users, held, units = other.pairs.arrays()
            self.pairs.add(owners[users], keys[held], units)

    def opened(self) -> Opened:
        """Return all in the order of the keys."""
        order = self.keys.order()
        ranks = _inverse(order)

        def places(names: list[Any]) -> Integers:
            if not names:
                return np.empty(0, np.int64)
            numbers = self.keys.find(names)
            found = np.where(numbers >= 0, ranks[numbers] if len(ranks) else -1, -1)
            # Should two names meet in the hash, one of them gets what both have, so that a record counts once.
            firsts = np.unique(found, return_index=True)[1]
            alone = np.full(len(names), -1, np.int64)
            alone[firsts] = found[firsts]
            return alone

        return Opened(self._content(order, ranks), places, lambda chosen: self.keys.names(order[chosen]))

    def _content(self, order: Integers, ranks: Integers) -> Content:
        if not self.by_user:
            return Records(self.keys.units[order])
        users, keys, units = self.pairs.renumbered(_inverse(self.users.order()), ranks)
        people, names = (_Prints(table) for table in (self.users, self.keys))
        return Pairs(
            len(order), users, keys, None if self.most == 1 else units,
            lambda rows: people.of(users[rows]) ^ names.of(keys[rows]),
        )  # fmt: skip

    def to_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return the fields of a header, and arrays, in an order that says nothing of how records came."""
        order = self.keys.order()
        header: dict[str, Any] = {"key_type": self.keys.key_type if len(order) else None}
        arrays: dict[str, files.Array] = {f"key_{name}": array for name, array in self.keys.to_arrays(order).items()}
        if self.by_user:
            content = self._content(order, _inverse(order))
            assert isinstance(content, Pairs)
            users = self.users.order()
            header["user_type"] = self.users.key_type if len(users) else None
            arrays |= {f"user_{name}": array for name, array in self.users.to_arrays(users).items()}
            arrays |= {"pair_users": content.users, "pair_keys": content.keys}
            if content.units is not None:
                arrays["pair_units"] = content.units
        return header, arrays

    @classmethod
    def from_document(cls, spec: HistogramSpec, header: dict[str, Any], arrays: dict[str, files.Array]) -> Self:
        """Rebuild from :meth:`to_document`; a file may have been written by anyone."""
        held = cls(spec)
        held.keys = KeyTable.from_arrays(_type(header["key_type"]), _prefixed(arrays, "key_"))
        if held.keys.key_type not in (None, spec.key_type or held.keys.key_type):
            raise FileRefused("the file's keys are of another type than its spec states.")
        if held.by_user:
            held.users = KeyTable.from_arrays(_type(header["user_type"]), _prefixed(arrays, "user_"))
            users, keys, units = (arrays.get(f"pair_{name}") for name in ("users", "keys", "units"))
            units = units if held.most > 1 or not isinstance(users, np.ndarray) else np.ones(users.shape, np.int64)
            _check_pairs(users, keys, units, len(held.users), len(held.keys), held.most)
            held.pairs.add(np.asarray(users), np.asarray(keys), np.asarray(units))
        return held


class _Prints:
    """The fingerprints of a table's keys in their order, worked out when they are first needed."""

    def __init__(self, table: KeyTable) -> None:
        self._table = table
        self._prints: npt.NDArray[np.uint64] | None = None

    def of(self, places: Integers) -> npt.NDArray[np.uint64]:
        if self._prints is None:
            self._prints = fingerprint(self._table.column(self._table.order())).fingerprints
        return self._prints[places]


def _inverse(order: Integers) -> Integers:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _type(value: Any) -> KeyType | None:
    check_key_type(value)
    found: KeyType | None = value
    return found


def _prefixed(arrays: dict[str, files.Array], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _check_pairs(users: Any, keys: Any, units: Any, people: int, names: int, most: int) -> None:
    """Refuse pairs that no histogram writes; a file may have been written by anyone."""
    given = (users, keys, units)
    good = all(isinstance(each, np.ndarray) and each.ndim == 1 and each.dtype.kind in "iu" for each in given)
    good = good and len(users) == len(keys) == len(units)
    if good and len(users):
        bounds = ((users, 0, people - 1), (keys, 0, names - 1), (units, 1, most))
        good = all(low <= int(each.min()) and int(each.max()) <= high for each, low, high in bounds)
    if not good:
        raise FileRefused("the file's pairs of users and keys are not ones that dpsketch writes.")
