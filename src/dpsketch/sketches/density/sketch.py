"""The sensitive density sketch: points come in, one release goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import density as compiled
from dpsketch.bounding import CountedUsers, Cut, bound, cut_of_users
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch
from dpsketch.kernels import Kernel
from dpsketch.noise import random_below
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.features import Features, Landmarks, Shape, fitting_features
from dpsketch.sketches.density.points import SetBatch, VectorBatch
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.spec import (
    COUNT_SHARE,
    COUNTERS,
    DEFAULT_SEED,
    RECORDS,
    DensitySpec,
    Placement,
    default_width,
    read_bounds,
)
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.weights import WeightGrid, checked_total

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["DensitySketch", "bounded_points"]

_CELLS = 1 << 20  # columns computed at a time


class DensitySketch(Sketch[DensitySpec, PrivateDensity]):
    """The sensitive sketch of a density: takes points, merges, and is released once its budget is charged.

    Parameters
    ----------
    kernel : Kernel
        How alike two points are, such as ``dps.kernels.Euclidean(dim=2, bandwidth=2.0)``.
    rows : int, optional
        Hash functions, or pairs of Fourier features, to average over. With Gaussian noise more rows are better; for
        pure ε see :func:`best_rows`. Other features have as many as they need, and a series the heaviest so many.
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, at most so many points a user.
    width : int, optional
        Counters a row; see :func:`default_width`.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    bounds : (low, high) or one pair for each coordinate, optional
        Public bounds; points outside are moved to them. Never take them from the data.
    columns : names, optional
        Names of the coordinates, by which tables are read.
    placement : {"every_row", "one_row"}
        "one_row" counts each record in one row, drawn at random for it alone: as many times faster as there are rows,
        for pure ε only, with slightly more variance. Tables then differ from run to run by those draws.
    features : {"race", "fourier", "series", "nystrom", "linear", "signs"}, optional
        What the table holds: the cells of RACE, or sums of features. For a Gaussian kernel "series" (up to three
        coordinates, with bounds), "nystrom" (with landmarks) or "fourier", in that order if not given; "linear" for the
        linear kernel; "signs", ±1 in one cell a row, for an angular kernel of power 1. RACE for all others.
    landmarks : array, optional
        For "nystrom": *public* points, where records may lie. Never take them from the data.

    Examples
    --------
    >>> import dpsketch as dps
    >>> kernel = dps.kernels.Euclidean(dim=2, bandwidth=2.0)
    >>> sketch = dps.DensitySketch(kernel=kernel, rows=100, unit=dps.per_record())
    >>> sketch.update([[0.5, 1.0], [0.7, 1.2], [5.0, -3.0]])
    >>> private = sketch.release(epsilon=1.0, delta=1e-6)
    >>> private.table.shape
    (100, 256)
    """

    kind: ClassVar[str] = "density"
    spec_type: ClassVar[Any] = DensitySpec
    release_type: ClassVar[Any] = PrivateDensity
    takes: ClassVar[tuple[str, ...]] = ("users",)
    role: ClassVar[str] = "points"

    def __init__(
        self,
        *,
        kernel: Kernel,
        rows: int | None = None,
        unit: Unit,
        width: int | None = None,
        seed: int = DEFAULT_SEED,
        bounds: Any = None,
        columns: Sequence[str] | None = None,
        placement: Placement = "every_row",
        features: Features | None = None,
        landmarks: Any = None,
    ) -> None:
        dim = getattr(kernel, "dim", 0)
        limits = read_bounds(bounds, dim)
        names = None if columns is None else tuple(columns)
        marks = None if landmarks is None else Landmarks.of(landmarks, dim)
        chosen = fitting_features(kernel, limits, marks) if features is None else features
        shape = Shape(chosen, kernel, 1 if rows is None else rows, seed, limits, marks)
        if chosen != "race":
            shape.check()
        rows = shape.own_rows(rows)
        if width is None:
            width = default_width(kernel, limits) if chosen == "race" else shape.width
        self._start(
            DensitySpec(kernel, rows, width, unit, seed, limits, names, placement, features=chosen, landmarks=marks)
        )

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        batch = self._spec.read(columns.records, self._key_type)
        if not self._protects_users(columns.users, disjoint_users):
            kept, skipped, counted, cut = batch, batch.skipped, self._counted, Cut()
        else:
            unit, seed = self._spec.unit, self._spec.seed
            of_users = (columns.users, self._counted, disjoint_users)
            rows, skipped, counted, cut = bounded_points(unit, seed, batch.keys(), *of_users)
            kept = batch.take(rows)
        mass = checked_total(self._mass, self._spec.steps, 1, len(kept))
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._add_bounded(kept)
        self._skipped += skipped
        self._cut += cut
        if isinstance(batch, SetBatch):
            self._note_type(batch.key_type, batch.declared)

    def _add_bounded(self, batch: VectorBatch | SetBatch) -> None:
        """Add points that were read and, where the unit is a user, bounded: :meth:`update` does both."""
        spec = self._spec
        if spec.placement == "one_row":
            self._add_to_one_row(batch)
        else:
            mapped = spec.feature_map
            held = None if mapped is None else mapped.shape.contribution
            step = max(1, _CELLS // (spec.rows * (1 if held is None else spec.width)))
            for start in range(0, len(batch), step):
                some = batch.take(np.arange(start, min(start + step, len(batch))))
                if mapped is not None and held is not None and isinstance(some, VectorBatch):
                    mapped.add(self._arrays[COUNTERS], spec.inside(some.values), held)
                else:
                    compiled.add(self._arrays[COUNTERS], spec.cells(some))
        self._arrays[RECORDS] += len(batch)

    def _add_to_one_row(self, batch: VectorBatch | SetBatch) -> None:
        # A fresh draw for each record: a row that followed from its position would move with every record before it.
        drawn = random_below(self._spec.rows, len(batch)).astype(np.intp)
        sequence = np.argsort(drawn, kind="stable")
        ends = np.searchsorted(drawn[sequence], np.arange(self._spec.rows + 1))
        for row in range(self._spec.rows):
            part = sequence[ends[row] : ends[row + 1]]
            if len(part):
                compiled.add(
                    self._arrays[COUNTERS][row : row + 1], self._spec.cells(batch.take(part), slice(row, row + 1))
                )

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
        count_share: float = COUNT_SHARE,
    ) -> PrivateDensity:
        """Charge the budget, add noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ > 0: rounded Gaussian noise, analytically calibrated. δ = 0: discrete Laplace noise
            at the L1 sensitivity.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.
        count_share : float
            The share of the budget spent on the number of records, which normalises densities. With 0 it is read off
            the noisy table, which sums of features cannot be.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, for the tables that
        :meth:`DensitySpec.tables` states; counters and number of records together cost one budget. Two releases of one
        sketch compose: each is charged.
        """
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        return self._release(budget, account, count_share=count_share)


def bounded_points(
    unit: Unit, seed: int, keys: KeyBatch, users: Any, counted: CountedUsers, disjoint_users: bool
) -> tuple[npt.NDArray[np.intp], int, CountedUsers, Cut]:
    """Choose the points that count where the unit is a user.

    Returns which of the complete records to add, how many were left out as incomplete, whom the sketch has counted
    after that, and what bounding cut.
    """
    if users is None:
        raise InvalidInput("this sketch protects users: say users= as well, whose each record is.")
    bounded = bound(users, keys, 1, max_keys=unit.max_keys, max_units=1, seed=seed)
    rows = bounded.rows if keys.kept is None else (np.cumsum(keys.kept) - 1)[bounded.rows]
    cut = cut_of_users(WeightGrid(1, 1), bounded, None).keys_alone
    return rows.astype(np.intp), bounded.skipped, counted.extended(bounded, disjoint_users=disjoint_users), cut
