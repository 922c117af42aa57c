"""The sensitive sketch of named quantiles: exact counts on a public grid."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpsketch._compiled.heavy import add_units
from dpsketch.core.contributions import Cells
from dpsketch.privacy import Unit
from dpsketch.sketches.quantiles.private import PrivateQuantiles
from dpsketch.sketches.quantiles.spec import COUNTS, QuantileSpec
from dpsketch.sketches.ranges.domain import Outside
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED

__all__ = ["QuantileSketch"]


class QuantileSketch(Sketch[QuantileSpec, PrivateQuantiles]):
    """The sensitive sketch of named quantiles: exact counts on a public grid.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, where a user's keys are their different values.
    quantiles : list of numbers
        The quantiles that a release answers, strictly between 0 and 1: 0.5 is the median. A float is the decimal that
        it is written as; ``Fraction(1, 3)`` is taken as well. As their number doubles, all pay for one more level.
    bits : int
        Values are the 2^bits whole numbers from ``start`` on. Up to 20 bits every value has a counter of its own.
        Beyond, counters are for values that differ by less than 1% of their distance from 0 (or from the end of the
        domain nearest to 0); an answer is then the middle of such a stretch.
    start : int, optional
        The smallest value; may be negative.
    outside : {"refuse", "clamp"}, optional
        A value outside the domain has its batch refused, or counts as the nearest end. The domain must come from public
        knowledge, never from the data.
    interval_share : float, optional
        The part of the budget that goes to the ends of 95% intervals. 0 by default: the answers get all, and come with
        a bound on the error of their rank. With 0.5 they are twice as far off, and each has an interval of values.
    seed : int, optional
        Chooses which of a user's values count. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.

    Privacy
    -------
    All quantiles and the ends of their intervals together cost one budget: see
    :mod:`~dpsketch.laws.recursion` for the proof, and :meth:`QuantileSpec.laws` for the split. The
    draws are exact. δ = 0: pure. δ > 0: the better of pure and ρ, which for up to seven quantiles is pure.

    Examples
    --------
    >>> import dpsketch as dps
    >>> ages = dps.QuantileSketch(unit=dps.per_record(), bits=7, quantiles=[0.5, 0.9])
    >>> ages.update(list(range(20, 60)) * 500)
    >>> private = ages.release(epsilon=1.0, delta=0)
    >>> private.quantile(0.5).value in (39, 40)
    True
    """

    kind: ClassVar[str] = "quantiles"
    spec_type: ClassVar[Any] = QuantileSpec
    release_type: ClassVar[Any] = PrivateQuantiles

    def __init__(
        self,
        *,
        unit: Unit,
        quantiles: Any,
        bits: int = 32,
        start: int = 0,
        outside: Outside = "refuse",
        interval_share: float = 0.0,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
    ) -> None:
        self._start(QuantileSpec(bits, unit, tuple(quantiles), start, outside, interval_share, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _parse(self, records: Any) -> Parsed:
        return self._spec.parse(records)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        self._check_sample(entries)
        return partial(add_units, self._arrays[COUNTS], self._spec.cells.of(entries.values), entries.amounts)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        cells = self._spec.cells.of(entries.values)[:, np.newaxis]
        return {COUNTS: Cells.of(cells, entries.amounts, entries.starts)}
