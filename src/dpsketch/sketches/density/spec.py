"""The public spec of a density sketch: its kernel, its shape, its unit, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Additive, Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.kernels import Angular, Euclidean, Gaussian, HashKernel, Kernel, Linear, Manhattan
from dpsketch.laws.calibration import additive
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Budget, PureCost, Unit
from dpsketch.sketches.density.functions import (
    Bounds,
    FeatureMap,
    Features,
    Landmarks,
    Shape,
    collides,
    feature_map,
    folds,
    on_lattice,
    row_functions,
)
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec, hold_common
from dpsketch.sketches.weights import WeightGrid

Placement = Literal["every_row", "one_row"]

COUNTERS, RECORDS = "counters", "records"
# A normalised density divides by the number of records. At this share its error stays below that of the kernel sum,
# whose own noise grows by 2.6% (δ > 0) or 5% (δ = 0).
COUNT_SHARE = 0.05
_LARGEST_TABLE = 2**28
_FOLDED_WIDTH = 256
_HASHED_WIDTH = 1024
_SHOWN_BOUNDS = 4  # coordinates that a message names

for _kernel in get_args(Kernel):
    stored(_kernel)


@stored
@dataclass(frozen=True, slots=True)
class DensitySpec(Spec):
    """All that two density sketches must share to merge. Public.

    Attributes
    ----------
    kernel : Kernel
        How alike two points are; see :mod:`dpsketch.kernels`.
    rows : int
        Hash functions over which an estimate is averaged.
    width : int
        Counters a row.
    unit : Unit
        Whose presence a release hides; ``max_keys`` bounds the points of a user.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    bounds : tuple of (low, high) or None
        Public bounds of each coordinate, to which points are moved; the range of pictures.
    columns : tuple of str or None
        Names of the coordinates, by which tables are read.
    placement : {"every_row", "one_row"}
        Whether a record is counted in every row, or in one row drawn for it alone (faster, for pure ε).
    features : {"race", "fourier", "series", "nystrom", "linear", "signs"}
        Cells of RACE, or a map of :mod:`dpsketch.sketches.density.functions`, of which the table holds the sums.
    landmarks : Landmarks or None
        Public points, for "nystrom".
    """

    kernel: Kernel
    rows: int
    width: int
    unit: Unit
    seed: int = DEFAULT_SEED
    bounds: Bounds | None = None
    columns: tuple[str, ...] | None = None
    placement: Placement = "every_row"
    features: Features = "race"
    landmarks: Landmarks | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Euclidean | Manhattan | Angular | Gaussian | Linear):
            raise InvalidInput(
                "kernel must be one of dps.kernels, such as dps.kernels.Euclidean(dim=2, bandwidth=2.0)."
            )
        race = self.features == "race"
        # How rows differ shows the error of a sample of them: of one row nothing does.
        hold_whole(self, "rows", low=2 if race or self.features in ("fourier", "signs") else 1, high=2**20)
        hold_whole(self, "width", low=2 if race else 1, high=2**24)
        if self.rows * self.width > _LARGEST_TABLE:
            raise InvalidInput("rows × width must not pass 2**28 counters.")
        if race and isinstance(self.kernel, Angular) and self.width != 2**self.kernel.power:
            raise InvalidInput(f"an angular kernel of power {self.kernel.power} has width {2**self.kernel.power}.")
        hold_common(self)
        if self.unit.max_weight != 1:
            raise InvalidInput("a density counts points, each with weight 1: leave max_weight at 1.")
        if self.placement not in ("every_row", "one_row"):
            raise InvalidInput(f"placement is 'every_row' or 'one_row', not {self.placement!r}.")
        object.__setattr__(self, "bounds", read_bounds(self.bounds, self.dim))
        if self.columns is not None:
            object.__setattr__(self, "columns", _names(self.columns, self.dim))
        self._check_features()

    def _check_features(self) -> None:
        if self.features == "race":
            if not isinstance(self.kernel, Euclidean | Manhattan | Angular):
                raise InvalidInput(
                    f"RACE has no cells for a {self.kernel.name} kernel: say features='fourier', 'series' or 'nystrom' "
                    "for a Gaussian one, 'linear' for inner products."
                )
            if self.landmarks is not None:
                raise InvalidInput("landmarks= go with features='nystrom'.")
            return
        self._shape.check()
        if self.placement != "every_row":
            raise InvalidInput(f"features={self.features!r} count every record in every row: leave placement out.")
        if self.rows != self._shape.own_rows(self.rows) or self.width != self._shape.width:
            raise InvalidInput("rows and width are not those of the features; leave them out.")

    @property
    def _shape(self) -> Shape:
        return Shape(self.features, self.kernel, self.rows, self.seed, self.bounds, self.landmarks)

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """The rows in an order in which neighbours are alike."""
        if self._hash_kernel is not None:
            return row_functions(self._hash_kernel, self.rows, self.seed).order
        return feature_map(self._shape).order

    @property
    def steps(self) -> int:
        """Steps in which a record counts."""
        return 1 if self.features == "race" else self._shape.steps

    @property
    def error(self) -> float:
        """How far a record's similarity may be from the kernel's in a sum of features, where it is known."""
        return 0.0 if self.features == "race" else self._shape.error

    @property
    def size(self) -> str:
        """The table's rows and width, and its features, in words."""
        words = f"{self.rows}×{self.width}"
        return words if self.features == "race" else f"{words} {self.features} features"

    @property
    def feature_map(self) -> FeatureMap | None:
        """The map whose sums the table holds; None for the cells of RACE."""
        return None if self.features == "race" else feature_map(self._shape)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.kernel.dim

    @property
    def collides(self) -> bool:
        """Whether estimates subtract the chance collisions of a hash, f = (width·mean − N)/(width − 1)."""
        return self._hash_kernel is not None and collides(self._hash_kernel)

    @property
    def _hash_kernel(self) -> HashKernel | None:
        return self.kernel if self.features == "race" and not isinstance(self.kernel, Gaussian | Linear) else None

    @property
    def unseen_rows(self) -> float:
        """How many rows' worth of functions may lie between those drawn: one, or half of one on a lattice."""
        return 0.5 if self._hash_kernel is not None and on_lattice(self._hash_kernel) else 1.0

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.size}, {self.kernel}"

    def tables(self) -> tuple[Table, ...]:
        """Return the counters and the number of records.

        A point adds 1 to one counter of each row (or of one row). The m points of a user may share their counters, as
        near points do: m·rows in L1 and m²·rows in squared L2. Features have a length of at most 1, S in steps, and
        may point the other way: m points move the table by at most m·S in L2, and in L1 by m times the limit on a
        record's sizes.
        """
        points = self.unit.max_keys
        if self.features == "race":
            rows = self.rows if self.placement == "every_row" else 1
            move = Move(points * rows, points**2 * rows, points * rows, points)
        else:
            squares, sizes = self._shape.contribution
            cells = self.rows * self.width
            move = Move(points * sizes, points**2 * squares, cells, points * self.steps, signed=True)
        return Table(COUNTERS, (self.rows, self.width), move), Table(RECORDS, (1,), Move.heaped(1, points))

    def shares(self, count_share: float = COUNT_SHARE) -> dict[Table, float]:
        """Return the tables with their shares of a budget."""
        share = share_of_budget("the number of records", count_share)
        counters, records = self.tables()
        return {counters: 1 - share, records: share} if share else {counters: 1.0}

    def laws(self, budget: Budget, count_share: float = COUNT_SHARE) -> tuple[Additive, ...]:
        """Return the noise on the tables, with a share of the budget for the number of records."""
        if self.placement == "one_row" and not isinstance(budget.cost, PureCost):
            raise InvalidInput("a sketch with placement='one_row' is released with pure ε: say delta=0.")
        if self.features != "race" and not count_share:
            raise InvalidInput("sums of features do not tell the number of records: leave count_share above 0.")
        return additive(budget, self.unit.neighbours, self.shares(count_share))

    def daily(self) -> DensitySpec:
        """Return the spec of a stream's day, or refuse one that a stream does not count."""
        if self.placement != "every_row":
            raise InvalidInput("day after day a point is counted in every row: leave placement= out.")
        if self.features != "race":
            raise InvalidInput("day after day a density counts cells: leave features= out.")
        return self

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        on = {COUNTERS: "every counter", RECORDS: "the number of records"}
        # A window of a stream has the stream's law.
        return "; ".join(f"{law.words}, on {on[law.name]}" if law.name in on else law.words for law in laws)

    @property
    def weight_grid(self) -> WeightGrid:
        """How a user's records of one point count: once."""
        return WeightGrid(1, 1)

    def cells(self, points: Floats, rows: slice = slice(None)) -> npt.NDArray[np.int32]:
        """Return the column of each point in each of the rows asked for; points are moved into the bounds first."""
        if self._hash_kernel is None:
            raise InvalidInput("features have no cells.")
        return row_functions(self._hash_kernel, self.rows, self.seed).columns(self.inside(points), self.width, rows)

    def inside(self, points: Floats) -> Floats:
        """Return points moved into the bounds."""
        if self.bounds is None:
            return points
        lows, highs = np.array(self.bounds).T
        return np.asarray(np.clip(points, lows, highs))

    def refuse_outside(self, points: Floats) -> None:
        """Refuse questions about points outside the bounds, of which a sketch knows nothing."""
        if self.bounds is None or len(points) == 0:
            return
        lows, highs = np.array(self.bounds).T
        if np.any(points < lows) or np.any(points > highs):
            names = self.columns or [f"coordinate {j + 1}" for j in range(self.dim)]
            pairs = list(zip(names, self.bounds, strict=True))[:_SHOWN_BOUNDS]
            shown = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in pairs)
            more = ", …" if self.dim > _SHOWN_BOUNDS else ""
            raise InvalidInput(
                f"a point asked about lies outside the sketch's bounds ({shown}{more}). Records outside were counted "
                "at the nearest point inside, so nothing is known there: ask inside the bounds, or move the point to "
                "them."
            )

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        count_share: float = COUNT_SHARE,
        records: float = 0,
        similarity: float = 0.1,
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far it would move an estimated kernel sum.

        Parameters
        ----------
        epsilon, delta, rho, count_share : float
            As for the release.
        records : float
            A guess at the number of records; 0 predicts the noise alone.
        similarity : float
            A guess at the mean similarity of the records to a query point.

        Accuracy
        --------
        ``noise_scale`` is the standard deviation of the noise in a kernel sum. ``predicted_error`` adds that of the
        hashing, √(f(N−f)/rows) with f = records·similarity, which bounds it for independent directions whatever the
        data are; stratified ones do better. For Fourier features it is N·(1 − similarity²)/√(2·rows); series and linear
        features have none to speak of, and that of landmarks depends on how near they are to the records.
        """
        records, similarity = real_number("records", records), real_number("similarity", similarity)
        if not (0 <= similarity <= 1 and records >= 0 and math.isfinite(records)):
            raise InvalidInput("records must be a number of at least 0, and similarity lie between 0 and 1.")
        budget = Budget(epsilon, delta, rho)
        laws = self.laws(budget, count_share)
        noise = self.noise_factor * math.sqrt(laws[0].noise.variance)
        hashing = records * self._spread(similarity) / math.sqrt(self.rows)
        return ReleasePreview(promise(self, Receipt(budget, laws)), noise, math.hypot(noise, hashing))

    def _spread(self, similarity: float) -> float:
        """Return the standard deviation of a row's answer, a record's share of it being 1."""
        match self.features:
            case "race" | "signs":
                return math.sqrt(similarity * (1 - similarity))
            case "fourier":
                return (1 - similarity**2) / math.sqrt(2)
            case _:
                return 0.0

    @property
    def noise_factor(self) -> float:
        """The standard deviation of the noise in a kernel sum, as a multiple of that in a counter."""
        if self.features == "signs":
            return 0.5 / math.sqrt(self.rows)
        if self.features != "race":
            return 1 / self._shape.steps
        factor = math.sqrt(self.rows) if self.placement == "one_row" else 1 / math.sqrt(self.rows)
        return factor * self.width / (self.width - 1) if self.collides else factor


def share_of_budget(words: str, share: float) -> float:
    """Return the share of a budget for a table that is released beside the counters."""
    found = real_number(f"the share of the budget for {words}", share)
    if not 0 <= found < 1:
        raise InvalidInput(f"the share of the budget for {words} must be at least 0 and below 1.")
    return found


def default_width(kernel: Kernel, bounds: Bounds | None = None) -> int:
    """Return the width of a row where none is asked for.

    A folded row of width W cannot tell cells W apart. Its kernel is the plain one to within a thousandth of itself for
    points up to W/4 bandwidths apart, and 1/W for points much farther apart than W bandwidths. So W is four times the
    diagonal of the bounds in bandwidths, as a power of two, and 256 without bounds. Wider rows cost memory, and
    nothing in accuracy or privacy.
    """
    if isinstance(kernel, Angular):
        return 1 << kernel.power
    if not folds(kernel):
        return _HASHED_WIDTH
    if bounds is None or not isinstance(kernel, Euclidean):
        return _FOLDED_WIDTH
    widths = kernel.bandwidth if isinstance(kernel.bandwidth, tuple) else (kernel.bandwidth,) * kernel.dim
    diagonal = math.hypot(*((high - low) / width for (low, high), width in zip(bounds, widths, strict=True)))
    bits = math.ceil(math.log2(max(1.0, 4 * diagonal)))
    return 1 << min(16, max(4, bits))


def best_rows(*, epsilon: float, records: float, similarity: float = 0.1, unit: Unit) -> int:
    """Return the number of rows with the least error of a kernel sum under pure ε.

    More rows average the hashing out, but Laplace noise grows with them: the variance s²/R + 2RΔ²/ε², with s the
    standard deviation of a row and Δ what one unit moves in it, is least at R = ε·s/(√2·Δ). The row's s is at most
    N·√(k(1−k)) for a mean similarity k; half of that is taken, which is within 12% of the least error wherever s lies
    between a quarter of the bound and the bound. (Gaussian noise has no such trade-off: more rows are better.)

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> best_rows(epsilon=1.0, records=5000, unit=per_record())
    530
    """
    epsilon, records = real_number("epsilon", epsilon), real_number("records", records)
    similarity = real_number("similarity", similarity)
    if not (epsilon > 0 and records > 0 and 0 < similarity < 1):
        raise InvalidInput("epsilon and records must be positive, and similarity lie between 0 and 1.")
    moved = Move.heaped(unit.max_keys, unit.max_keys).between(unit.neighbours).l1
    row = records * math.sqrt(similarity * (1 - similarity)) / 2
    return min(2**20, max(2, round(epsilon * row / (math.sqrt(2) * moved))))


def read_bounds(bounds: Any, dim: int) -> Bounds | None:
    """Return public bounds as one (low, high) for each coordinate; one pair alone stands for all of them."""
    if bounds is None:
        return None
    pairs = [bounds] * dim if _is_pair(bounds) else list(bounds)
    if len(pairs) != dim or not all(_is_pair(pair) for pair in pairs):
        raise InvalidInput(f"bounds must be one pair (low, high), or one for each of the {dim} coordinates.")
    result = tuple((float(low), float(high)) for low, high in pairs)
    if not all(math.isfinite(low) and math.isfinite(high) and low < high for low, high in result):
        raise InvalidInput("bounds must be finite, the low one below the high one.")
    # Else a record measured between them would be no number, and what it adds no longer what is paid for.
    if not all(0 < (high - low) / 2 < math.inf and math.isfinite(low + high) for low, high in result):
        raise InvalidInput("bounds must be so near, and so far apart, that their middle and distance are doubles.")
    return result


def _is_pair(value: Any) -> bool:
    if not hasattr(value, "__len__") or isinstance(value, str) or len(value) != 2:
        return False
    return all(hasattr(end, "__float__") and not hasattr(end, "__len__") for end in value)


def _names(columns: Any, dim: int) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if len(names) != dim or not all(isinstance(name, str) for name in names) or len(set(names)) != dim:
        raise InvalidInput(f"columns must be {dim} different names, one for each coordinate.")
    return names
