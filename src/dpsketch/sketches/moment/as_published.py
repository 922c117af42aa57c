"""The sub-sampled sketch as its paper has it, and why what it claims does not hold.

Kept for reproduction and comparison. Its releases say that they are not private, and cost no budget because no budget
describes them. The numbers that refute the claims are computed here from exact expressions; ``docs/moments.md`` shows
them.

References
----------
Wang, Pinelis and Song, *Differentially private fractional frequency moments estimation with polylogarithmic space*
(ICLR 2022): Algorithm 2, Theorems 1, 4 and 6, equation (4).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsketch.core.drawn import Drawn, Part
from dpsketch.errors import InvalidInput
from dpsketch.hashing import to_arrow
from dpsketch.laws.scales import ScaleEstimator
from dpsketch.laws.stable import Floor, significant
from dpsketch.noise import random_words
from dpsketch.numbers import real_number, whole_number
from dpsketch.privacy import Guarantee, MomentCost, Unit
from dpsketch.processes import OneProcess
from dpsketch.sketches.moment.sketch import MomentSketch, PrivateMoment
from dpsketch.sketches.weights import real_numbers


def theorem_1_ratio(p: float, *, records: int, keys: int, max_weight: float) -> float:
    """Return Theorem 1's bound on the ratio of F_p between streams with one record replaced. True, but loose."""
    spread = (keys - 1) ** ((p - 1) / p)
    return float(2 ** (2 - 2 * p) * ((records - 1 + max_weight) / (records - 1 + spread)) ** p)


def theorem_4_epsilon(p: float, *, size: int, rate: float, ratio: float) -> float:
    """Return Theorem 4's ε for Algorithm 2: rate·size/p·ln(ratio). False; see :func:`epsilon_of_pair`."""
    return rate * size / p * math.log(ratio)


def theorem_6_ratio(p: float, *, records: int, max_weight: float) -> float:
    """Return Theorem 6's bound on the ratio of F_p in the strict turnstile model.

    False: records that cancel make ``records`` large at no net weight. Let all others leave 17 on one key and M = 16;
    the last record is +16 or −16, so the streams are neighbours and F_1 is 33 or 1.
    """
    return float(2 ** (2 - 2 * p) * (1 + 2 * max_weight / (records - 1 - max_weight)) ** p)


def epsilon_of_pair(p: float, *, size: int, rate: float, records: int, max_weight: float) -> float:
    """Return the ε that one pair of neighbours forces on Algorithm 2, whatever its theorem claims.

    All records but one are (key 1, weight 1); the last is (key 2, M) or (key 1, 1). Given b of the others sampled, a
    coordinate is p-stable with scale b^p, and with the last one b^p + M^p or (b+1)^p. Far out, ``size`` coordinates
    that share their sample have a density proportional to the mean of scale^size, so the ratio of these means is a
    likelihood ratio that is approached.
    """
    b = np.arange(records, dtype=np.float64)
    log_law = _log_binomial(records - 1, rate)
    with np.errstate(divide="ignore"):
        without = p * np.log(b)
    heavy, light = np.log(b**p + max_weight**p), p * np.log1p(b)

    def log_mean(scale: Any) -> float:
        terms = np.concatenate([log_law + size * without + math.log1p(-rate), log_law + size * scale + math.log(rate)])
        largest = float(np.max(terms))
        return largest + math.log(float(np.sum(np.exp(terms - largest))))

    return log_mean(heavy) - log_mean(light)


def subsampled_share(p: float, *, count: int, rate: float) -> float:
    """Return E[b^p]/(rate·count)^p for b sampled of ``count`` records of one key. Equation (4) takes it to be 1.

    Examples
    --------
    >>> [round(subsampled_share(0.5, count=n, rate=0.02), 3) for n in (1, 10, 100, 1000)]
    [0.141, 0.425, 0.899, 0.994]
    """
    b = np.arange(count + 1, dtype=np.float64)
    return float(np.sum(np.exp(_log_binomial(count, rate)) * b**p) / (rate * count) ** p)


def _log_binomial(count: int, rate: float) -> Any:
    from scipy.special import gammaln

    b = np.arange(count + 1, dtype=np.float64)
    chosen = gammaln(count + 1) - gammaln(b + 1) - gammaln(count - b + 1)
    return chosen + b * math.log(rate) + (count - b) * math.log1p(-rate)


class MomentSketchAsPublished(OneProcess):
    """Algorithm 2: each record enters all coordinates with probability ``rate``, and no floor is added.

    Parameters
    ----------
    p, size, unit
        As for :class:`MomentSketch`; the unit is a record.
    records, keys : int
        The stream's length and the size of its key domain, which Theorem 1 takes to be public.
    rate : float
        The sampling rate q; the paper uses 0.02 with 50 coordinates.

    Privacy
    -------
    None is promised. The ε of Theorem 4 is stated beside a guarantee that says it does not hold.
    """

    def __init__(self, *, p: float, size: int, unit: Unit, records: int, keys: int, rate: float = 0.02) -> None:
        if unit.level != "record":
            raise InvalidInput("the published sketch protects records: use unit=dps.per_record(…).")
        rate = real_number("rate", rate)
        if not 0 < rate <= 1:
            raise InvalidInput(f"rate must lie in (0, 1], not {rate!r}.")
        records, keys = whole_number("records", records, low=2), whole_number("keys", keys, low=2)
        self._sketch = MomentSketch(p=p, size=size, unit=unit)
        self._records, self._keys, self._rate = records, keys, rate

    def __repr__(self) -> str:
        return f"<MomentSketchAsPublished p={self._sketch.spec.p:g}, size {self._sketch.spec.size}, sensitive>"

    def update(self, keys: Any, *, weights: Any = None) -> None:
        """Add records, each with one coin for all coordinates (Algorithm 2, line 4)."""
        column = to_arrow(keys)
        chosen = np.flatnonzero(random_words(len(column)) <= np.uint64(min(self._rate * 2**64, 2**64 - 1)))
        values = None if weights is None else real_numbers("weights", weights, len(column))[chosen]
        self._sketch.update(column.take(chosen), weights=values)

    def release_as_published(self, *, estimator: ScaleEstimator = "geometric") -> PrivateMoment:
        """Return the estimate divided by rate^p. Ends the sketch."""
        spec = self._sketch.spec
        law = Floor(spec.weights, spec.unit.neighbours, 0.0, estimator=estimator)
        self._sketch._refuse_broken()
        self._sketch._refuse_release()
        ratio = theorem_1_ratio(
            spec.p, records=self._records, keys=self._keys, max_weight=max(1.0, spec.largest_weight)
        )
        # No permit is paid for, since nobody may pay for a promise that does not hold: no law of this was drawn.
        scale = self._sketch._spend(lambda sums, _: significant(law.scale_of(sums[0]), law.digits)) / self._rate**spec.p
        claimed = Guarantee(
            epsilon=theorem_4_epsilon(spec.p, size=spec.size, rate=self._rate, ratio=ratio),
            delta=0.0,
            unit=spec.unit,
            costs=(MomentCost(spec.p, spec.size, ratio),),
            mechanism=f"{spec.size} sub-sampled sums of secret {spec.p:g}-stable variates, without a floor",
            caveat="the published ε does not hold: sub-sampling amplifies less than Theorem 4 says, and shrinks the "
            "stream that hides a record",
            holds=False,
        )
        return PrivateMoment(spec, Drawn((), {law.name: Part(law, {"scale": np.array([scale])})}, claimed))
