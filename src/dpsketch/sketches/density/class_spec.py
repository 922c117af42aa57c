"""The public spec of a classifier by class sums: its tables, and how its budget is divided.

A record's integers q, ‖q‖ ≤ S = 2¹⁶, are added to the row of its class. Beside these sums, a release may have the
second moments of all records, the sizes of the classes and the classes' sums of waves
(:mod:`~dpsketch.sketches.density.class_waves`); or the corrections of later passes, each of which reads all records
again (:mod:`~dpsketch.sketches.density.class_sums`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Law
from dpsketch.core.move import AcuteMove, Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.calibration import additive, noise_for
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.class_waves import Waves, fitting_waves
from dpsketch.sketches.density.embedding import STEPS, MapSpec
from dpsketch.sketches.density.spec import Bounds, read_bounds
from dpsketch.sketches.specs import Spec

__all__ = [
    "COARSE",
    "DIAGONAL",
    "MOMENTS",
    "OTHERS",
    "RESIDUAL",
    "SIZES",
    "SUMS",
    "WAVES",
    "ClassSpec",
    "Extras",
    "Labels",
    "check_labels",
    "fitting_extras",
    "fitting_passes",
    "passes_of",
    "scaled_between",
    "triangle_weights",
]

Labels = tuple[bool | int | float | str, ...]

SUMS, MOMENTS, SIZES, WAVES = "sums", "moments", "sizes", "waves"

COARSE = 1 << 10  # steps of a vector in second moments
DIAGONAL, OTHERS = 5, 7  # weights of second moments
RESIDUAL = 1 << 12  # steps of a residual in a later pass
_MOMENTS_SHARE, _SIZES_SHARE, _WAVES_SHARE = 0.1, 0.05, 0.6
_LATER, _SECOND = 5, 10  # the first pass's share of the budget in later ones'; in the second one's of two
_MOST_PASSES = 32
_LEAST_CLASS = 80  # records of a class, in deviations of its sum's noise
_PASSES_CLASS, _FEW_PASSES, _MANY_PASSES = 60, 2, 9


@stored
@dataclass(frozen=True, slots=True)
class Extras:
    """What a release holds beside the sums of vectors.

    Attributes
    ----------
    moments : float
        The share of the budget for second moments; 0 if none are counted.
    waves : Waves or None
        Which waves are counted beside them.
    passes : int
        How often records are read; after the first time, for corrections.
    """

    moments: float = 0.0
    waves: Waves | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        hold_real(self, "moments")
        object.__setattr__(self, "passes", passes_of(self.passes))
        if not 0 <= self.moments < 1:
            raise InvalidInput("the share of second moments must be at least 0 and below 1.")


@stored
@dataclass(frozen=True, slots=True)
class ClassSpec(Spec):
    """All that two partials of a classifier by class sums must share to merge. Public.

    Attributes
    ----------
    labels : tuple of labels
        The public list of classes.
    unit : Unit
        Whose presence a release hides.
    measured : MapSpec
        How vectors are measured.
    extras : Extras
        What is counted beside the sums of vectors.
    seed : int
        By which a user's records are chosen.
    bounds : tuple of (low, high) or None
        Public bounds between which features are scaled first.
    """

    labels: Labels
    unit: Unit
    measured: MapSpec
    extras: Extras
    seed: int
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        hold_whole(self, "seed")
        object.__setattr__(self, "bounds", read_bounds(self.bounds, self.measured.dim))
        if not isinstance(self.unit, Unit) or self.unit.max_weight != 1:
            raise InvalidInput("unit must be dps.per_record() or dps.per_user(max_keys=…), with max_weight 1.")
        if self.extras.waves is not None and self.extras.waves.dim != self.measured.kept:
            raise InvalidInput("waves have as many coordinates as vectors keep.")

    @property
    def dim(self) -> int:
        """The number of features."""
        return self.measured.dim

    @property
    def steps(self) -> int:
        """The most that a record adds to one cell."""
        return max(table.move.most for table in self.tables()) // self.unit.max_keys

    def tables(self) -> tuple[Table, ...]:
        """Return the class sums and what goes beside them.

        Privacy
        -------
        A record lies in one class, so that a unit of m records moves the sums of all classes by at most m·S in L2. Its
        vectors may turn round.

        *Second moments* are the upper triangle of Σ q₁q₁ᵀ, ‖q₁‖ ≤ 2¹⁰, diagonal cells times 5 and others times 7:
        25Σqᵢ⁴ + 49Σ_{i<j}qᵢ²qⱼ² = 24.5‖q‖⁴ + ½Σqᵢ⁴ ≤ 25‖q‖⁴, an L2 of 5·2²⁰. The inner product of two such vectors,
        24.5(x·y)² + ½Σxᵢ²yᵢ², is not negative.

        *Corrections* are sums of r qᵀ. The residual r is cut to whole steps of 2⁻¹², with squares that sum to at most
        2²⁴ and sizes that sum to at most 2·2¹²; so r qᵀ has a length of at most 2²⁸, held on the integers. It depends
        on the record and on what was released before: costs of Gaussian noise add up in that case as well.
        """
        classes, kept, records = len(self.labels), self.measured.kept, self.unit.max_keys
        length = records * STEPS
        move = Move(records * self.measured.sizes, length**2, records * kept, length, signed=True)
        found = [Table(SUMS, (classes, kept), move)]
        if self.extras.passes > 1:
            length = records * RESIDUAL * STEPS
            move = Move(2 * length * kept, length**2, classes * kept, length, signed=True)
            names = (f"corrections-{number}" for number in range(2, self.extras.passes + 1))
            found += [Table(name, (classes, kept), move) for name in names]
        elif self.extras.moments:
            length, pairs = records * DIAGONAL * COARSE**2, kept * (kept + 1) // 2
            found.append(Table(MOMENTS, (pairs,), AcuteMove(length * kept, length**2, pairs, length, signed=True)))
            found.append(Table(SIZES, (classes,), Move.heaped(records, records)))
            if self.extras.waves is not None:
                found.append(Table(WAVES, (classes, self.extras.waves.features), self.extras.waves.move(records)))
        return tuple(found)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch; corrections are computed from what was released before."""
        return {name: array for name, array in Spec.arrays(self).items() if name in (SUMS, MOMENTS, SIZES, WAVES)}

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget: a later pass has a fifth of the first one's."""
        sums, *beside = self.tables()
        passes = self.extras.passes
        each = 1 / ((_SECOND if passes == 2 else _LATER) + passes - 1)
        stated = {MOMENTS: self.extras.moments, SIZES: _SIZES_SHARE, WAVES: _WAVES_SHARE}
        found = {table: stated.get(table.name, each) for table in beside}
        return {sums: 1 - math.fsum(found.values()) if found else 1.0, **found}

    def laws(self, budget: Budget) -> tuple[Additive, ...]:
        """Return the noise on each table."""
        return additive(budget, self.unit.neighbours, self.shares())

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        if len(laws) == 1:
            return f"{laws[0].words}, on every coordinate of every class's sum"
        return "; ".join(f"{law.words}, on {_in_words(law.name)}" for law in laws)

    def vectors(self, points: Floats) -> Floats:
        """Return vectors of length at most 1, but for what the map itself scales down."""
        return points if self.bounds is None else scaled_between(points, self.bounds) / np.sqrt(points.shape[1])


def _in_words(name: str) -> str:
    known = {SUMS: "the class sums", MOMENTS: "the second moments", SIZES: "the class sizes"}
    known[WAVES] = "the classes' sums of waves"
    return known.get(name) or f"the corrections of pass {name.partition('-')[2]}"


def check_labels(labels: Labels) -> None:
    """Refuse labels that are not a list of two or more, all of one type."""
    if len(set(labels)) < max(2, len(labels)) or len({type(label) for label in labels}) > 1:
        raise InvalidInput("a classifier has two or more different labels, all of one type.")


def scaled_between(X: Floats, bounds: Bounds) -> Floats:
    """Return features moved into public bounds, and scaled from them to [−1, 1]."""
    lows, highs = np.array(bounds).T
    return np.asarray((np.clip(X, lows, highs) - (lows + highs) / 2) / ((highs - lows) / 2))


def triangle_weights(kept: int) -> tuple[tuple[Integers, Integers], Integers]:
    """Return which second moments are released, and how many times each enters its table."""
    triangle = np.triu_indices(kept)
    return triangle, np.where(triangle[0] == triangle[1], DIAGONAL, OTHERS)


def passes_of(asked: object) -> int:
    """Check how often records are read."""
    return whole_number("passes", asked, low=1, high=_MOST_PASSES)


def fitting_extras(
    budget: Budget, unit: Unit, measured: MapSpec, records: float | None, classes: int, seed: int, *, scaled: bool
) -> Extras:
    """Choose what is released beside the sums: nothing unless there are records enough to tell it from noise.

    With ``noise`` the standard deviation of a class sum's noise if all of the budget went there, beside vectors of
    length 1: second moments and waves pay from about 2·noise·dim^1.5 records on, if each class has 80 times the noise;
    with smaller classes the sums miss the share more than they gain. Measured on embeddings of texts. The waves'
    bandwidth is for vectors of length 1, so features that were ``scaled`` between bounds have none.
    """
    noise = _noise_of(budget, unit, measured)
    if records is None or records < max(2 * noise * measured.kept**1.5, _LEAST_CLASS * noise * classes):
        return Extras()
    return Extras(_MOMENTS_SHARE, None if scaled else fitting_waves(measured.kept, classes, seed))


def fitting_passes(
    asked: object, budget: Budget, unit: Unit, measured: MapSpec, records: float | None, classes: int
) -> int:
    """Return how often records are read: as asked, or for "auto" what pays by public facts.

    With ``noise`` as for :func:`fitting_extras`: nine passes if a class has 60 times the noise, and two if it has
    less. Seen on embeddings of texts: on one data set nine are ahead of two from 40 on, on another from 55.
    """
    if asked != "auto":
        return passes_of(asked)
    if records is None:
        raise InvalidInput("passes='auto' follows from expected_records=, a public guess at how many there are.")
    return _MANY_PASSES if records >= _PASSES_CLASS * _noise_of(budget, unit, measured) * classes else _FEW_PASSES


def _noise_of(budget: Budget, unit: Unit, measured: MapSpec) -> float:
    """Return the noise of a class sum if all of the budget goes there, beside vectors of length 1."""
    (sums,) = ClassSpec((0, 1), unit, measured, Extras(), 0).tables()
    noise = noise_for(budget, sums.between(unit.neighbours))
    return math.sqrt(noise.variance) / STEPS if isinstance(noise, RoundedGaussian) else math.inf
