"""Histograms over time: a stream of exact counts of the keys of a public list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Portion, Window
from dpsketch.sketches.histogram.day import NamedDay, key_column, named
from dpsketch.sketches.histogram.mechanism import ENTRIES
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.window import PrivateDailyHistogram

__all__ = ["DailyHistogram"]


class DailyHistogram(Adapter):
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
    w each a day: w·√m in L2.
    """

    kind: ClassVar[str] = "histogram"

    def __init__(self, spec: HistogramSpec, keys: list[Any]) -> None:
        super().__init__(spec)
        self.keys = keys
        self._listed = pa.array(keys, pa.int64() if spec.key_type == "int" else pa.large_binary())

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> Self:
        """Return the adapter of an empty histogram and a public list, on which a key counts once."""
        spec: HistogramSpec = sketch.spec
        if spec.key_columns:
            raise InvalidInput("a stream counts keys of one column. Join several in one.")
        if keys is None:
            raise InvalidInput("say keys=, the public list of the keys that are counted each day.")
        column = key_column(keys, spec.key_type)
        if not len(column) or column.null_count:
            raise InvalidInput("keys= is a list of at least one key, without nulls.")
        key_type: KeyType = "int" if pa.types.is_integer(column.type) else "text"
        return cls(replace(spec, key_type=key_type), list(dict.fromkeys(column.to_pylist())))

    @classmethod
    def stored(cls, spec: dict[str, Any], options: Any) -> Self:
        """Rebuild an adapter from a file."""
        held = cls.read_spec(spec)
        numbers = held.key_type == "int"
        good = isinstance(options, list) and bool(options) and held.key_type is not None
        if not good or not all(isinstance(each, int if numbers else str) for each in options):
            raise FileRefused("the file's list of keys is not one that dpsketch writes.")
        keys = options if numbers else [bytes.fromhex(each) for each in options]
        if len(set(keys)) < len(keys):
            raise FileRefused("the file's list of keys has one of them twice.")
        return cls(held, keys)

    @staticmethod
    def read_spec(value: dict[str, Any]) -> HistogramSpec:
        """Rebuild the spec from a file."""
        return HistogramSpec.from_json(value)

    def options(self) -> list[Any]:
        """Return the list, texts as hexadecimal digits: they need not be UTF-8."""
        return [key.hex() if isinstance(key, bytes) else key for key in self.keys]

    def counts_keys(self, keys: Any) -> bool:
        """Say whether this is the public list, whatever its order."""
        return set(key_column(keys, self.spec.key_type).to_pylist()) == set(self.keys)

    def start(self) -> NamedDay:
        """Return an empty sketch for a day's records."""
        return NamedDay.from_spec(self.spec)

    def records(self, records: Any) -> pa.Array:
        """Return keys without those that are not on the list, which count for nothing."""
        column = key_column(records, self.spec.key_type)
        return pc.if_else(pc.is_in(column, self._listed), column, None)

    def portions(self) -> tuple[Portion, ...]:
        """Return the counts, and how far one unit, added on one day, moves them."""
        weight, keys = self.spec.weight_grid.max_units, self.spec.unit.max_keys
        return (Portion(ENTRIES, (len(self.keys),), keys * weight, keys * weight**2, keys),)

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact counts of a day. Sensitive."""
        return {ENTRIES: np.array([today.units.get(key, 0) for key in self.keys], np.int64)}

    def release(self, window: Window) -> PrivateDailyHistogram:
        """Return the release of a window."""
        names = [named(key) for key in self.keys]
        stated = window.guarantee, window.charge
        return PrivateDailyHistogram(
            self.spec, names, window.tables[ENTRIES], window.stretch, *stated, signed=window.signed
        )
