"""Counts published day after day, at one price for all days: a stream of CountSketches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.bounding import CountedUsers
from dpsketch.hashing import KeyType
from dpsketch.privacy import Unit
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Window
from dpsketch.sketches.continual.sketch import ContinualSketch
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.sketch import CountSketch
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED, CountSketchSpec, stated_type, text_spec
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.partials import ids_array, stored_ids

__all__ = ["ContinualCountSketch", "DailyCounts"]

# The partials that were merged, today or before.
_MERGED = "merged"


class DailyCounts(Adapter):
    """A CountSketch in a stream."""

    kind: ClassVar[str] = "counts"

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> DailyCounts:
        """Return the adapter of an empty sketch, whose keys have a type."""
        stated_type(super().of(sketch, keys).spec.key_type, "ContinualSketch")
        return cls(text_spec(sketch.spec))

    @classmethod
    def read_spec(cls, value: dict[str, Any]) -> CountSketchSpec:
        """Rebuild the spec from a file; text where an older one has no type."""
        return text_spec(super().read_spec(value))

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact table of a day. Sensitive."""
        tables: dict[str, npt.NDArray[np.int64]] = today._exact()
        return tables

    def release(self, window: Window) -> PrivateCountSketch:
        """Return the release of a window, which may be added to and subtracted from others of its stream."""
        return PrivateCountSketch.of_stream(self.spec, window)


class ContinualCountSketch(ContinualSketch):
    """A CountSketch that is published every day, at one price for all days.

    Parameters
    ----------
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`. Where the unit is a user, its bounds are for each day.
    key_type : {"int", "text"}
        What the keys are. State it: a day without records must not differ from others by its type. Without it keys are
        text, with a warning; a later version will ask for it.
    **stream
        ``days``, ``epsilon``, ``delta``, ``rho``, ``objective``, ``user_days``, ``days_apart``, ``design``,
        ``first_day``, ``ledger``, ``dataset`` and ``part``, as for :class:`~dpsketch.ContinualSketch`, which says what
        is promised and how accurate it is.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["tea", "tea", "milk"])
    >>> monday = sketch.publish_day()
    >>> tuesday = sketch.day(["tea"] * 5)
    >>> change = sketch.between(2, 2) - sketch.between(1, 1)
    >>> sketch.days_published, sketch.design.name
    (2, 'recurrence')
    """

    kind: ClassVar[str] = "counts-continual"

    def __init__(
        self,
        *,
        rows: int,
        width: int,
        unit: Unit,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
        **stream: Any,
    ) -> None:
        spec = CountSketchSpec(rows, width, unit, seed, grid, stated_type(key_type, type(self).__name__))
        spec.weight_grid.refuse_without_one()
        super().__init__(CountSketch.from_spec(spec), **stream)

    def _carry(self, done: Any) -> None:
        """Take over the mass: counts of all days together stay below what 64 bits hold."""
        self._today._mass = done._mass

    def _today_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        today = self._today
        header: dict[str, Any] = {"mass": str(today._mass)}
        arrays: dict[str, files.Array] = {"today": today._table}
        if len(today._partials) > 1:
            arrays[_MERGED] = ids_array(today._partials)
        if self.spec.unit.level == "user":
            header["users"] = today._counted.to_json()
            arrays["users"] = today._counted.to_array()
        return header, arrays

    def _read_today(self, document: files.Document) -> None:
        today = self._today
        today._mass = int(document.header["mass"])
        today._table[:] = integer_array(document, "today", today._table.shape)
        self._refuse_large(today)
        if _MERGED in document.arrays:  # files of before have none
            today._partials = stored_ids(document, _MERGED)
        if self.spec.unit.level == "user":
            today._counted = CountedUsers.from_stored(document.arrays["users"], document.header["users"])

    @classmethod
    def _stored_adapter(cls, document: files.Document) -> Adapter:
        return DailyCounts(DailyCounts.read_spec(document.header["spec"]))
