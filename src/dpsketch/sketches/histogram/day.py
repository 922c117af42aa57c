"""A day's exact counts by name, with users bounded as they come: what a stream of histograms counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.entries import COUNTS
from dpsketch.laws.names import stored_names
from dpsketch.privacy import Budget
from dpsketch.sketches.histogram.named import name_order, named_column, of_one_type, read_names
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.partials import integer_array
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.store import one_array, plain_column

__all__ = ["NamedDay"]


def _key_column(keys: Any, key_type: KeyType | None) -> pa.Array:
    """Return keys in one form: integers of 64 bits, or the bytes of texts. Missing ones stay missing."""
    column, _, _ = named_column(keys, key_type)
    return one_array(plain_column(column))


class NamedDay(Sketch[HistogramSpec, Any]):
    """The exact counts of one day, by name. Sensitive.

    Names are compared exactly, so that nothing rests on a hash; which keys of a user count, where there are too many,
    follows from a hash of user and key alone. Keys that are not on a public list count for nothing: a user has at most
    ``max_keys`` listed keys a day, and no more than the list has.
    """

    kind: ClassVar[str] = "histogram"
    spec_type: ClassVar[Any] = HistogramSpec

    # The public list, each key once, texts as bytes; None if keys are found.
    listed: list[Any] | None = None
    _looked_up: pa.Array

    @classmethod
    def of_keys(cls, spec: HistogramSpec, keys: Any) -> Self:
        """Start a day of a histogram with a public list, on which a key counts once, or with None, without one."""
        if keys is None:
            return cls.from_spec(spec.daily())
        column = _key_column(keys, spec.key_type)
        if not len(column) or column.null_count:
            raise InvalidInput("keys= is a list of at least one key, without nulls.")
        key_type: KeyType = "int" if pa.types.is_integer(column.type) else "text"
        day = cls.from_spec(replace(spec, key_type=key_type).daily())
        day._list(list(dict.fromkeys(column.to_pylist())))
        return day

    def _list(self, keys: list[Any]) -> None:
        """Count these keys only."""
        self.listed = keys
        self._looked_up = pa.array(keys, pa.int64() if self._spec.key_type == "int" else pa.large_binary())

    def _start(self, spec: HistogramSpec) -> None:
        super()._start(spec)
        self._units: dict[Any, int] = {}

    def empty_like(self) -> Self:
        """Start an empty day of the same list."""
        day = super().empty_like()
        if self.listed is not None:
            day.listed, day._looked_up = self.listed, self._looked_up
        return day

    def lists(self, keys: Any) -> bool:
        """Say whether this is the public list, whatever its order."""
        return set(_key_column(keys, self._spec.key_type).to_pylist()) == set(self.listed or ())

    def _exact(self) -> dict[Any, Any]:
        """Return the counts of listed keys as one table, or what was counted of each key. Sensitive."""
        if self.listed is None:
            return self._units
        return {COUNTS: np.array([self._units.get(key, 0) for key in self.listed], np.int64)}

    def _parse(self, records: Any) -> Parsed:
        column = _key_column(records, self._spec.key_type)
        if self.listed is not None:
            column = pc.if_else(pc.is_in(column, self._looked_up), column, None)
        return Parsed(fingerprint(column, self._spec.key_type), column)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        return partial(self._add_sums, _sums(entries.values, entries.amounts))

    def _add_sums(self, sums: Iterable[tuple[Any, int]]) -> None:
        for key, amount in sums:
            self._units[key] = self._units.get(key, 0) + amount

    def _release(self, budget: Budget, account: Account, **options: Any) -> Any:
        """Refuse: a day is published by its stream, which was charged for it."""
        raise ReleaseRefused("this sketch is a day of a stream: merge it into the stream, which publishes it.")

    def _absorb(self, other: Self) -> None:
        self._add_sums(other._units.items())

    def _stored_arrays(self) -> dict[str, files.Array]:
        order = sorted(self._units, key=name_order)
        arrays: dict[str, files.Array] = {
            "names": stored_names(order), "units": np.array([self._units[key] for key in order], np.int64)
        }  # fmt: skip
        return arrays if self.listed is None else {**arrays, "listed": stored_names(self.listed)}

    def _restore(self, document: files.Document) -> None:
        names = _stored_keys(document, "names", self._spec)
        units = integer_array(document, "units", (len(names),))
        if np.any(units < 1):
            raise FileRefused("the file's counts by name are not those that dpsketch writes.")
        if "listed" in document.arrays:
            self._list(_stored_keys(document, "listed", self._spec))
        self._units = dict(zip(names, units.tolist(), strict=True))


def _stored_keys(document: files.Document, array: str, spec: HistogramSpec) -> list[Any]:
    """Return the keys of a file, each once, as they are counted here: integers, or the bytes of texts."""
    names = read_names(document.arrays.get(array), spec)
    keys = [name.encode() if isinstance(name, str) else name for name in names]
    if len(set(keys)) < len(keys) or not of_one_type(names, spec.key_type):
        raise FileRefused("the file's keys are not those that dpsketch writes.")
    return keys


def _sums(column: pa.Array, units: npt.NDArray[np.int64]) -> list[tuple[Any, int]]:
    """Return how much each key of a column has; keys that add nothing are left out."""
    encoded = column.dictionary_encode()
    sums = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(sums, encoded.indices.to_numpy(zero_copy_only=False), units)
    pairs = zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True)
    return [(key, amount) for key, amount in pairs if amount]
