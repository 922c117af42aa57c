"""What releases share that hold the names of keys with counts: how they are asked, and how names are written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch import plots
from dpsketch.arrays import Integers
from dpsketch.columns import LARGE_NAME
from dpsketch.compound import CompoundKey, compound_keys
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import TEXT_FINGERPRINTS, KeyType, typed_column
from dpsketch.laws.names import text_or_bytes
from dpsketch.numbers import probability, whole_number
from dpsketch.release import KeyedRelease
from dpsketch.results import Estimates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "NamedCounts",
    "name_of",
    "name_order",
    "named",
    "named_column",
    "names_of",
    "of_one_type",
    "places_of",
    "read_names",
]


class TypedSpec(Protocol):
    """A spec that may say what keys are."""

    @property
    def key_type(self) -> KeyType | None:
        """What the keys are, where it is stated."""


class NamedCounts(KeyedRelease):
    """A release of names with counts."""

    __slots__ = ()

    _places: dict[Any, int]

    if TYPE_CHECKING:

        @property
        def spec(self) -> TypedSpec:
            """The public spec."""

    @property
    @abstractmethod
    def keys(self) -> list[Any]:
        """All keys of the release, in an order that says nothing."""

    @abstractmethod
    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        """Return the counts of keys by their places among :attr:`keys`, −1 for none; intervals miss with ``tail``."""

    def estimate(self, keys: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate the counts of keys.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up. Nulls are refused. A key that the release does not have reads 0 where it could have
            been found, with an interval that reaches to what may have stayed below the threshold; where only a list
            was published, or buckets of bounded memory were, it is refused.
        confidence : float
            The probability with which each interval covers the count; of a single release also given that the key was
            found: a key that just passed did so by its noise, and its interval reaches down accordingly. Of a stream
            it is over all keys, found or not.

        Accuracy
        --------
        Counts are of what was counted, after users were bounded.
        """
        confidence = probability("confidence", confidence)
        asked = self._asked(keys)
        places = np.array([self._places.get(key, -1) for key in asked], np.int64)
        return self._read(asked, places, confidence, 1 - confidence)

    def top(self, n: int, *, candidates: Any = None, confidence: float = 0.95) -> Estimates:
        """Return the ``n`` keys with the largest noisy counts, largest first.

        Parameters
        ----------
        n : int
            How many.
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to choose from; by default all of the release.
        confidence : float
            The probability with which all intervals hold at once, although the keys were selected by the noise they
            are about: each is widened for the number of keys chosen from (Bonferroni).
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        if candidates is None:
            asked = self.keys
        else:
            asked = list(dict.fromkeys(self._asked(candidates)))
            if not asked:
                raise InvalidInput("top needs at least one candidate key.")
        places = np.array([self._places.get(key, -1) for key in asked], np.int64)
        read = self._read(asked, places, confidence, (1 - confidence) / max(1, len(asked)))
        # The names are in an order of their own, so that equal counts stay in it.
        order = np.argsort(-read.value, kind="stable")[:n]
        note = "" if asked else "No key passed the threshold: none is frequent enough for this budget."
        return Estimates(
            [read.key[i] for i in order], read.value[order], read.low[order], read.high[order], confidence,
            read.counts, note,
        )  # fmt: skip

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Estimate the counts of keys."""
        if estimator is not None:
            raise InvalidInput("a histogram's counts have one estimate: leave the estimator out.")
        return super().answer(asked, confidence=confidence, estimator=None, key_type=key_type)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest keys with intervals."""
        return plots.bars(self.top(n, candidates=candidates), self.title("histogram"))

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the ``n`` largest keys, or those of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def _asked(self, keys: Any) -> list[Any]:
        return names_of(keys, self.spec)


def places_of(keys: list[Any]) -> dict[Any, int]:
    """Return where each key is in a list."""
    return {key: i for i, key in enumerate(keys)}


def names_of(keys: Any, spec: TypedSpec) -> list[Any]:
    """Return keys as releases write them: integers below 2⁶³, text, and bytes where they are no text.

    Compound keys are tuples, which are written as their rows.
    """
    if columns := _columns(spec):
        return list(compound_keys(keys, columns))
    column, _, _ = named_column(keys, spec.key_type)
    names = column.to_pylist()  # a null may also hide in a dictionary
    if None in names:
        raise InvalidInput("a null is not a key that can be looked up or listed.")
    return [name_of(key) for key in names]


def named_column(keys: Any, key_type: KeyType | None) -> tuple[pa.ChunkedArray, KeyType | None, KeyType | None]:
    """Return what :func:`~dpsketch.hashing.typed_column` does of keys whose names can be published.

    Integers are kept as patterns of 64 bits. One of 2⁶³ or more would come out as a negative one, which nobody had.
    """
    column, found, declared = typed_column(keys, key_type)
    held = getattr(column.type, "value_type", column.type)
    if held == TEXT_FINGERPRINTS:
        raise InvalidInput("a histogram has the names of keys, and these are their fingerprints: give the keys.")
    if held == pa.uint64() and any(_largest(chunk) >= 2**63 for chunk in column.chunks):
        raise InvalidInput(LARGE_NAME)
    return column, found, declared


def _largest(array: pa.Array) -> int:
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    largest: int | None = pc.max(values).as_py()
    return 0 if largest is None else largest


def named(texts: list[Any], spec: TypedSpec) -> list[Any]:
    """Return what was counted as a release names it; None for a text that is no key of the spec's columns."""
    parts = len(_columns(spec))
    return [CompoundKey.stored(text, parts) for text in texts] if parts else texts


def _columns(spec: TypedSpec) -> tuple[str, ...]:
    """Return the columns that a key is made of, where it is made of several."""
    columns: tuple[str, ...] = getattr(spec, "key_columns", ())
    return columns


def of_one_type(names: list[Any], key_type: KeyType | None) -> bool:
    """Say whether names are all integers or all texts, and what is stated."""
    stated = set() if key_type is None else {key_type == "int"}
    return len({isinstance(name, int) for name in names} | stated) <= 1


def name_of(key: Any) -> Any:
    """Return a key as releases write it."""
    return text_or_bytes(key) if isinstance(key, bytes) else key


def name_order(name: Any) -> Any:
    """Return what names are sorted by: integers by value, texts by their bytes."""
    return str(name).encode() if isinstance(name, str | CompoundKey) else name


def read_names(array: Any, spec: TypedSpec) -> list[Any]:
    """Return the names of :func:`~dpsketch.laws.names.stored_names`; a file may have been written by anyone."""
    names: list[Any]
    if isinstance(array, list) and all(isinstance(each, bytes) for each in array):
        names = named([text_or_bytes(each) for each in array], spec)
        if None in names:
            raise FileRefused("the file's names of keys are not rows of the columns that it says they have.")
        return names
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu":
        if any(name >= 2**63 for name in array.tolist()):
            raise FileRefused("the file's names of keys are not ones that dpsketch writes.")
        names = array.tolist()
        return names
    raise FileRefused("the file's names of keys are not ones that dpsketch writes.")
