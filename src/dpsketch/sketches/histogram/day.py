"""A day's exact counts by name, with users bounded as they come: what a stream of histograms counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.histogram.laws import COUNTS
from dpsketch.sketches.histogram.named import name_order, named_column, of_one_type, read_names, stored_names
from dpsketch.sketches.histogram.rows import decoded, taken
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.keyed import WeighedSketch
from dpsketch.sketches.weights import record_units

__all__ = ["NamedDay"]


def _key_column(keys: Any, key_type: KeyType | None) -> pa.Array:
    """Return keys in one form: integers of 64 bits, or the bytes of texts. Missing ones stay missing."""
    column, found, _ = named_column(keys, key_type)
    whole = column.combine_chunks()
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if pa.types.is_dictionary(whole.type):
        whole = decoded(whole)
    return whole.cast(pa.int64() if (found or key_type) == "int" else pa.large_binary())


class NamedDay(WeighedSketch[HistogramSpec]):
    """The exact counts of one day, by name. Sensitive.

    Names are compared exactly, so that nothing rests on a hash; which keys of a user count, where there are too many,
    follows from a hash of user and key alone. Keys that are not on a public list count for nothing: a user has at most
    ``max_keys`` listed keys a day, and no more than the list has.
    """

    kind: ClassVar[str] = "histogram"

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
        self._spec = spec
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

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        column = _key_column(keys, self._spec.key_type)
        if self.listed is not None:
            column = pc.if_else(pc.is_in(column, self._looked_up), column, None)
        batch = fingerprint(column, self._spec.key_type)
        if self._protects_users(users, disjoint_users, counts):
            bounded = self._bounded(batch, users, weights)
            found = _sums(column, bounded.rows, bounded.units)
            self._admit_users(bounded, weights, disjoint_users)
        else:
            units = record_units(self._spec.weight_grid, batch, weights, counts)
            found = _sums(column, np.arange(len(column)) if batch.kept is None else np.flatnonzero(batch.kept), units)
            self._admit_records(batch, units, weights, counts)
        for key, amount in found:
            self._units[key] = self._units.get(key, 0) + amount

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        for key, amount in other._units.items():
            self._units[key] = self._units.get(key, 0) + amount

    def _to_document(self) -> files.Document:
        order = sorted(self._units, key=name_order)
        arrays: dict[str, files.Array] = {
            "names": stored_names(order), "units": np.array([self._units[key] for key in order], np.int64)
        }  # fmt: skip
        if self.listed is not None:
            arrays["listed"] = stored_names(self.listed)
        return files.Document(self.kind, True, {"spec": self._spec.to_json(), "mass": str(self._mass)}, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(HistogramSpec.from_json(document.header["spec"]))
        names = _stored_keys(document, "names", sketch._spec)
        units = integer_array(document, "units", (len(names),))
        if np.any(units < 1):
            raise FileRefused("the file's counts by name are not those that dpsketch writes.")
        if "listed" in document.arrays:
            sketch._list(_stored_keys(document, "listed", sketch._spec))
        sketch._units = dict(zip(names, units.tolist(), strict=True))
        sketch._mass = int(document.header["mass"])
        return sketch


def _stored_keys(document: files.Document, array: str, spec: HistogramSpec) -> list[Any]:
    """Return the keys of a file, each once, as they are counted here: integers, or the bytes of texts."""
    names = read_names(document.arrays.get(array), spec)
    keys = [name.encode() if isinstance(name, str) else name for name in names]
    if len(set(keys)) < len(keys) or not of_one_type(names, spec.key_type):
        raise FileRefused("the file's keys are not those that dpsketch writes.")
    return keys


def _sums(column: pa.Array, rows: npt.NDArray[Any], units: npt.NDArray[np.int64]) -> list[tuple[Any, int]]:
    """Return how much each key has in some rows of a column; what counts for nothing is left out."""
    if not len(rows):
        return []
    chosen = taken(pa.chunked_array([column]), rows).combine_chunks()
    chosen = chosen if isinstance(chosen, pa.Array) else pa.concat_arrays(chosen.chunks)
    encoded = chosen.dictionary_encode()
    sums = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(sums, encoded.indices.to_numpy(zero_copy_only=False), units)
    pairs = zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True)
    return [(key, amount) for key, amount in pairs if amount]
