"""Histograms over time: a stream of exact counts, of the keys of a public list or of those that are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.core.move import Table
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.designs import Design
from dpsketch.laws.entries import COUNTS
from dpsketch.laws.streams import Found, Published
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.names import NamedStream
from dpsketch.sketches.continual.portions import Layout, Window
from dpsketch.sketches.continual.stream import Stream
from dpsketch.sketches.histogram.day import NamedDay, key_column
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.window import PrivateDailyHistogram

__all__ = ["DailyHistogram"]


class _Named(Adapter):
    """A histogram in a stream, counted by name."""

    kind: ClassVar[str] = "histogram"

    def start(self) -> NamedDay:
        """Return an empty sketch for a day's records."""
        return NamedDay.from_spec(self.spec)


class DailyHistogram(_Named):
    """A histogram of a public list in a stream.

    Parameters
    ----------
    spec : HistogramSpec
        Its spec, which states a key type.
    keys : list
        The list, each key once: integers, or the bytes of texts.

    Privacy
    -------
    A record of a listed key adds at most w to one count, any other record nothing. A user has at most m listed keys of
    w each a day, and no more than the list has: w·√m in L2.
    """

    def __init__(self, spec: HistogramSpec, keys: list[Any]) -> None:
        super().__init__(spec)
        self.keys = keys
        self._listed = pa.array(keys, pa.int64() if spec.key_type == "int" else pa.large_binary())

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> Any:
        """Return the adapter of an empty histogram and a public list, on which a key counts once, or of no list."""
        spec: HistogramSpec = sketch.spec
        if spec.key_columns:
            raise InvalidInput("a stream counts keys of one column. Join several in one.")
        if keys is None:
            return FoundHistogram.of(sketch, None)
        column = key_column(keys, spec.key_type)
        if not len(column) or column.null_count:
            raise InvalidInput("keys= is a list of at least one key, without nulls.")
        key_type: KeyType = "int" if pa.types.is_integer(column.type) else "text"
        return cls(replace(spec, key_type=key_type), list(dict.fromkeys(column.to_pylist())))

    @classmethod
    def stored(cls, spec: dict[str, Any], options: Any) -> Any:
        """Rebuild an adapter from a file, which has a list or none."""
        if options is None:
            return FoundHistogram(cls.read_spec(spec))
        held = cls.read_spec(spec)
        numbers = held.key_type == "int"
        good = isinstance(options, list) and bool(options) and held.key_type is not None
        if not good or not all(isinstance(each, int if numbers else str) for each in options):
            raise FileRefused("the file's list of keys is not one that dpsketch writes.")
        keys = options if numbers else [bytes.fromhex(each) for each in options]
        if len(set(keys)) < len(keys):
            raise FileRefused("the file's list of keys has one of them twice.")
        return cls(held, keys)

    def options(self) -> list[Any]:
        """Return the list, texts as hexadecimal digits: they need not be UTF-8."""
        return [key.hex() if isinstance(key, bytes) else key for key in self.keys]

    def counts_keys(self, keys: Any) -> bool:
        """Say whether this is the public list, whatever its order."""
        return set(key_column(keys, self.spec.key_type).to_pylist()) == set(self.keys)

    def records(self, records: Any) -> pa.Array:
        """Return keys without those that are not on the list, which count for nothing."""
        column = key_column(records, self.spec.key_type)
        return pc.if_else(pc.is_in(column, self._listed), column, None)

    def shares(self) -> dict[Table, float]:
        """Return the counts, of which one unit moves no more than are listed."""
        counts, listed = self.spec.tables()[0], len(self.keys)
        return {Table(COUNTS, (listed,), counts.move.within(listed)): 1.0}

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact counts of a day. Sensitive."""
        return {COUNTS: np.array([today.units.get(key, 0) for key in self.keys], np.int64)}

    def release(self, window: Window) -> PrivateDailyHistogram:
        """Return the release of a window."""
        return PrivateDailyHistogram.of(self.spec, self.keys, window)


class FoundHistogram(_Named):
    """A histogram whose keys are found day by day (see :mod:`dpsketch.sketches.continual.names`)."""

    def __init__(self, spec: HistogramSpec) -> None:
        if spec.key_type is None:
            raise InvalidInput(
                "say key_type='text' or 'int' of a histogram whose keys are found day by day, or give a public list, "
                "keys=[…]: a day without records must not differ from others by its type."
            )
        super().__init__(spec)

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> Self:
        """Return the adapter of an empty histogram."""
        return cls(sketch.spec)

    def shares(self) -> dict[Table, float]:
        """Return the counts of all keys there are."""
        return {self.spec.tables()[0]: 1.0}

    def law_class(self, design: Design) -> type[Published]:
        """Return the law of publications whose keys are found."""
        return Found

    def stream(self, permit: Permit) -> Stream:
        """Return what publishes it."""
        return NamedStream(permit)

    def joined(self, layout: Layout, tables: Any) -> Any:
        """Return what a stream of names takes: how much each key has."""
        return tables

    def counted(self, today: Any) -> dict[Any, int]:
        """Return the exact counts of a day. Sensitive."""
        units: dict[Any, int] = today.units
        return units

    def release(self, window: Window) -> PrivateDailyHistogram:
        """Return the release of a window, of the keys that were found by now."""
        return PrivateDailyHistogram.of(self.spec, list(window.published.names or ()), window)
