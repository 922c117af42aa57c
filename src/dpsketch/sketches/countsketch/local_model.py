"""CountSketch in the local model: everyone adds noise to their own sketch, and the collector adds the sketches up.

A person's keys are bounded and their sketch is clipped to the L2 norm c, as for a user of an ordinary CountSketch. What
leaves the device is that sketch with noise. Nobody is trusted, so any two inputs of one person must be hard to tell
apart: two sketches of norm c may point in opposite directions, hence a distance of 2c and noise of σ = 2c/μ.

References
----------
Pagh and Thorup (2022), Section 3.4, after Zhou, Wang, Chan, Fanti and Shi (2022). The paper clips to the norm 2√(kt)
and scales the noise by 2√(kt). Read literally that is the norm, half of the diameter: μ doubles, and the
zero-concentrated budget ρ = μ²/2 is four times what was meant. Changed here: the noise is scaled by the diameter, and
the norm is clipped to a smaller c (see :mod:`~dpsketch.sketches.countsketch.clipping`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.bounding import bound
from dpsketch.changes import Changeable
from dpsketch.errors import CounterOverflow, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.noise import Noise, RoundedGaussian, noise_is_for_tests, random_words
from dpsketch.numbers import hold_real
from dpsketch.privacy import Budget, Guarantee, per_user
from dpsketch.sketches.countsketch.addition import largest_size
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.permit import Calibration
from dpsketch.sketches.specs import refuse_choice
from dpsketch.sketches.weights import COUNTER_LIMIT

__all__ = ["LocalCountSketch", "LocalCountSketchCollector"]

Table = npt.NDArray[np.int64]

_CAVEAT = (
    "It is local: it holds for one report against everyone, the collector included. Every further report of the same "
    "person adds its cost."
)


@dataclass(frozen=True)
class LocalCountSketch:
    """A CountSketch whose reports are private before they leave the device: public, shared by people and collector.

    Parameters
    ----------
    rows, width : int
        Size of the table, which is also that of a report; rows must be odd.
    max_keys : int
        At most so many keys of a person count; of more, some are left out at random.
    key_type : {"int", "text"}
        What the keys are.
    max_weight : float
        At most this weight on one key.
    epsilon, delta, rho : float
        The guarantee of one report; δ = 0 gives Laplace noise.
    seed : int
        Seed of the hash functions.
    grid : float
        Step to which weights are rounded.

    Privacy
    -------
    One report is (ε, δ)-private for its sender under replacement of everything they hold, whatever the collector does.
    The noise is calibrated to the diameter 2c of all clipped sketches.

    Accuracy
    --------
    The noise of n reports adds up: a counter's standard deviation is σ·√n, beside the collisions.

    Examples
    --------
    >>> protocol = LocalCountSketch(rows=5, width=16, max_keys=2, key_type="text", epsilon=4.0, delta=1e-6)
    >>> collector = protocol.collector()
    >>> for _ in range(2000):
    ...     collector.add(protocol.report(["tea", "milk"]))
    >>> bool(collector.collected().estimate(["tea"]).value[0] > 1000)
    True
    """

    rows: int
    width: int
    max_keys: int
    key_type: KeyType
    max_weight: float = 1
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    seed: int = DEFAULT_SEED
    grid: float = 1

    def __post_init__(self) -> None:
        if self.key_type not in ("int", "text"):
            raise InvalidInput("key_type is 'int' or 'text': people and collector must agree on it beforehand.")
        spec = self.spec  # refuses a bad shape now, not at the first report, and has Python's numbers
        spec.weight_grid.refuse_without_one()
        for part, names in ((spec, ("rows", "width", "seed", "grid")), (spec.unit, ("max_keys", "max_weight"))):
            for name in names:
                object.__setattr__(self, name, getattr(part, name))
        hold_real(self, "epsilon", "delta", "rho", optional=True)
        _ = self.guarantee  # refuses a bad budget

    @cached_property
    def spec(self) -> CountSketchSpec:
        """The spec of everyone's sketch: its unit is a person, replaced."""
        unit = per_user(self.max_keys, max_weight=self.max_weight, neighbours="replace")
        refuse_choice(unit)
        return CountSketchSpec(self.rows, self.width, unit, self.seed, self.grid, self.key_type)

    @cached_property
    def _calibrated(self) -> Calibration:
        return self.spec.calibrate(Budget(self.epsilon, self.delta, self.rho))

    @property
    def noise(self) -> Noise:
        """The noise that one report adds to each counter."""
        return self._calibrated.law(COUNTERS)

    @property
    def noise_as_published(self) -> RoundedGaussian:
        """The noise that the paper's text asks for, read literally: half as much, and four times the budget in ρ.

        For comparison only; no report is made with it.
        """
        if not isinstance(self.noise, RoundedGaussian):
            raise InvalidInput("the paper's local variant has Gaussian noise: give delta= above 0, or rho=.")
        return RoundedGaussian(self.noise.sigma / 2)

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises its sender."""
        return self._calibrated.guarantee(self.spec.unit, caveat=_CAVEAT)

    def report(self, keys: Any, *, weights: Any = None) -> Table:
        """Return one person's sketch with noise: a table of integers that may leave the device.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            All that the person holds. Equal keys add up; nulls are left out.
        weights : numbers, optional
            One a key; default 1.
        """
        table = self._own_sketch(keys, weights)
        return table + self.noise.sample(table.size).reshape(table.shape)

    def _own_sketch(self, keys: Any, weights: Any) -> Table:
        batch = fingerprint(keys, self.key_type)
        n = len(batch.fingerprints) + batch.skipped
        grid, clip = self.spec.weight_grid, self.spec.clip
        assert clip is not None
        units = grid.one if weights is None else grid.units(weights, n)
        # Bounding orders keys by a hash of user and key: with a random user, by chance.
        person = np.repeat(random_words(1), n)
        bounded = bound(person, batch, units, max_keys=clip.max_keys, max_units=clip.max_units, seed=self.seed)
        table = np.zeros((self.rows, self.width), np.int64)
        clip.add(table, bounded, row_keys(self.seed, self.rows))
        return table

    def collector(self) -> LocalCountSketchCollector:
        """Start a collector of reports."""
        return LocalCountSketchCollector(self)


class LocalCountSketchCollector(Changeable):
    """Adds up the reports of one :class:`LocalCountSketch`. Everything in it is private already.

    Parameters
    ----------
    protocol : LocalCountSketch
        Whose reports it takes.
    """

    def __init__(self, protocol: LocalCountSketch) -> None:
        self._protocol = protocol
        self._table = np.zeros((protocol.rows, protocol.width), np.int64)
        self._reports = 0
        self._for_tests = False

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return self._reports

    def add(self, report: Table) -> None:
        """Add one report. It is the caller's to see that nobody is added twice."""
        shape = self._table.shape
        if not isinstance(report, np.ndarray) or report.shape != shape or report.dtype.kind != "i":
            raise InvalidInput(f"a report is a table of integers, {shape[0]} × {shape[1]}.")
        self._add(report.astype(np.int64), 1)

    def merge(self, other: LocalCountSketchCollector) -> None:
        """Add all reports of another collector of the same protocol."""
        if not isinstance(other, LocalCountSketchCollector) or self._protocol != other._protocol:
            raise SpecMismatch("cannot merge: the collectors' protocols differ.")
        other._refuse_broken()
        self._add(other._table, other._reports)
        self._for_tests |= other._for_tests

    def _add(self, table: Table, reports: int) -> None:
        if largest_size(self._table) + largest_size(table) > COUNTER_LIMIT:
            raise CounterOverflow("this report would carry a counter past 2**62; nothing was added.")
        self._begin_change()
        self._table += table
        self._reports += reports
        self._for_tests |= noise_is_for_tests()

    def collected(self) -> PrivateCountSketch:
        """Return the sum of all reports as a CountSketch, to be queried like any other."""
        if self._reports == 0:
            raise InvalidInput("no report was added yet.")
        promise = self._protocol.guarantee
        words = f"the sum of {self._reports} reports, each with {promise.mechanism}"
        # The sum of that many laws has their variances' sum; its own rounding is one of theirs.
        law = RoundedGaussian(math.sqrt(max(1e-6, self._reports * self._protocol.noise.variance - 1 / 12)))
        stated = replace(promise, mechanism=words, holds=promise.holds and not self._for_tests)
        return PrivateCountSketch(self._protocol.spec, self._table.copy(), (law,), guarantee=stated)
