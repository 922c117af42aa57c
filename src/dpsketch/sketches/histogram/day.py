"""A day's exact counts by name, with users bounded as they come: what a stream of histograms counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.names import stored_names
from dpsketch.privacy import Budget
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.histogram.named import name_order, named_column, read_names
from dpsketch.sketches.histogram.rows import decoded
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.sketch import Entries, Parsed, Sketch

__all__ = ["NamedDay", "key_column", "spelled"]


def key_column(keys: Any, key_type: KeyType | None) -> pa.Array:
    """Return keys in one form: integers of 64 bits, or the bytes of texts. Missing ones stay missing."""
    column, found, _ = named_column(keys, key_type)
    whole = column.combine_chunks()
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if pa.types.is_dictionary(whole.type):
        whole = decoded(whole)
    return whole.cast(pa.int64() if (found or key_type) == "int" else pa.large_binary())


class NamedDay(Sketch[HistogramSpec, Any]):
    """The exact counts of one day, by name. Sensitive.

    Names are compared exactly, so that nothing rests on a hash; which keys of a user count, where there are too many,
    follows from a hash of user and key alone.
    """

    kind: ClassVar[str] = "histogram"
    spec_type: ClassVar[Any] = HistogramSpec

    def _start(self, spec: HistogramSpec) -> None:
        super()._start(spec)
        self._units: dict[Any, int] = {}

    @property
    def units(self) -> dict[Any, int]:
        """What was counted of each key, text as bytes. Sensitive."""
        return self._units

    def _parse(self, records: Any) -> Parsed:
        column = key_column(records, self._spec.key_type)
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
        return {"names": stored_names(order), "units": np.array([self._units[key] for key in order], np.int64)}

    def _restore(self, document: files.Document) -> None:
        names = [spelled(name) for name in read_names(document.arrays.get("names"), self._spec)]
        units = integer_array(document, "units", (len(names),))
        if len(set(names)) < len(names) or np.any(units < 1):
            raise FileRefused("the file's counts by name are not those that dpsketch writes.")
        self._units = dict(zip(names, units.tolist(), strict=True))


def spelled(name: Any) -> Any:
    """Return a key as it is counted here: an integer, or the bytes of a text."""
    return name.encode() if isinstance(name, str) else name


def _sums(column: pa.Array, units: npt.NDArray[np.int64]) -> list[tuple[Any, int]]:
    """Return how much each key of a column has; keys that add nothing are left out."""
    encoded = column.dictionary_encode()
    sums = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(sums, encoded.indices.to_numpy(zero_copy_only=False), units)
    pairs = zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True)
    return [(key, amount) for key, amount in pairs if amount]
