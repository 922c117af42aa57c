"""The public spec of a HeavyHitters sketch: its key space, its shape, its unit, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.noise import Noise, noise_from_json
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.clipping import sqrt_up
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.guess import guessed_counts
from dpsketch.sketches.heavy.keys import KeySpace
from dpsketch.sketches.permit import Calibration, ReleasePreview, Share, additive
from dpsketch.sketches.specs import Sensitivity, StoredSpec, hold_key_columns
from dpsketch.sketches.weights import GridSpec

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.predict import Prediction

__all__ = ["DENSE", "INNER", "LEAF", "TOTAL", "HeavyHittersSpec", "TreeNoise", "TreeSensitivity"]

# Shares of the budget. The leaf answers; the levels above it only have to lead there; a total needs little.
LEAF_SHARE = 1 / 2
TOTAL_SHARE = 1 / 64
TOTAL, DENSE, INNER, LEAF = "the total", "the first level", "the tables above the keys", "the keys"


@dataclass(frozen=True, slots=True)
class TreeSensitivity:
    """How far one unit moves each part of the tree, in grid units: the total, the dense level, any one table."""

    total: Sensitivity
    dense: Sensitivity
    table: Sensitivity


@dataclass(frozen=True, slots=True)
class TreeNoise:
    """The noise in one counter of each part: the total, the dense level, the tables above the leaf, the leaf."""

    total: Noise
    dense: Noise
    inner: Noise
    leaf: Noise

    @classmethod
    def of(cls, calibrated: Calibration) -> Self:
        """Return the laws of a calibrated tree."""
        return cls(*(calibrated.law(part) for part in (TOTAL, DENSE, INNER, LEAF)))

    def to_json(self) -> dict[str, Any]:
        """Return the laws as JSON-ready values."""
        return {name: getattr(self, name).to_json() for name in ("total", "dense", "inner", "leaf")}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild the laws from :meth:`to_json`."""
        return cls(**{name: noise_from_json(law) for name, law in value.items()})


@stored
@dataclass(frozen=True, slots=True)
class HeavyHittersSpec(GridSpec, StoredSpec):
    """All that two HeavyHitters sketches must share to merge. Public.

    Attributes
    ----------
    rows, width : int
        Size of each level's CountSketch; rows is odd.
    unit : Unit
        Whose presence a release hides.
    key_bits : int or None
        Keys are integers in [0, 2^key_bits), …
    key_bytes : int or None
        … or texts of at most so many bytes (of UTF-8). Exactly one of the two is given.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    rows: int
    width: int
    unit: Unit
    key_bits: int | None = None
    key_bytes: int | None = None
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.key_bits is None) == (self.key_bytes is None):
            raise InvalidInput("say key_bits= (8 to 64) for integer keys, or key_bytes= (1 to 64) for text, not both.")
        hold_whole(self, "key_bits", low=8, high=64, optional=True)
        hold_whole(self, "key_bytes", low=1, high=64, optional=True)
        hold_key_columns(self)
        leaf = self.leaf  # checks what the levels share, and turns it into Python's numbers
        for name in ("rows", "width", "seed", "grid"):
            object.__setattr__(self, name, getattr(leaf, name))
        if self.rows * self.width * self.tables > 2**31:
            raise InvalidInput("rows × width, times the levels, must not pass 2**31 counters.")

    @property
    def key_type(self) -> KeyType:
        """What the keys are."""
        return "text" if self.key_bits is None else "int"

    @property
    def space(self) -> KeySpace:
        """All keys that can be found."""
        if self.key_bits is not None:
            return KeySpace("int", -(-self.key_bits // 8), self.key_bits)
        assert self.key_bytes is not None
        return KeySpace("text", self.key_bytes, 0)

    @property
    def tables(self) -> int:
        """How many levels are CountSketches, the leaf among them."""
        return self.space.size - self.space.dense_depth

    @property
    def leaf(self) -> CountSketchSpec:
        """The spec of the last level, which counts the keys themselves: that of an ordinary CountSketch."""
        return CountSketchSpec(self.rows, self.width, self.unit, self.seed, self.grid, self.key_type, self.key_columns)

    @property
    def memory(self) -> int:
        """Bytes of the tree while it counts. Where the unit is a user, eight more for each user counted."""
        return 8 * (1 + self.space.dense_cells + self.tables * self.rows * self.width)

    @property
    def sensitivity(self) -> TreeSensitivity:
        """How far one unit moves each part of the tree, in grid units.

        A record of weight at most w adds to the total, to one cell of the dense level (L2 w; replaced, it moves two
        cells, L2 √2·w) and once to each table, like any CountSketch. The total moves by w whether a record is removed
        or replaced, since weights are not negative.

        A user has at most m keys of w each, and these may share prefixes. At each level above the leaf a prefix counts
        once a user, with the largest of its keys' weights: so a user moves at most m cells of the dense level by w each
        (L2 w√m; replaced w√(2m), since cells in common move by at most w), and every table is clipped to the norm c of
        :mod:`~dpsketch.sketches.countsketch.clipping` by itself. The total moves by mw.
        """
        weight, keys = self.weight_grid.max_units, self.unit.max_keys
        times = 2 if self.unit.neighbours == "replace" else 1
        return TreeSensitivity(
            total=Sensitivity(keys * weight, float(keys * weight)),
            dense=Sensitivity(times * keys * weight, sqrt_up(times * keys * weight**2)),
            table=self.leaf.sensitivity,
        )

    def calibrate(self, budget: Budget) -> Calibration:
        """Share a budget among the levels.

        The leaf gets half, the total 1/64, and the dense level and the tables above the leaf the rest in equal parts:
        parts of μ² for Gaussian noise, whose σ is then Δ/(μ√part), and parts of ε for Laplace noise.

        Privacy
        -------
        See :func:`~dpsketch.sketches.permit.additive`: all levels together are one mechanism, charged once.
        """
        bound = self.sensitivity
        part = (1 - LEAF_SHARE - TOTAL_SHARE) / self.tables
        calibrated = additive(
            budget,
            Share(TOTAL, bound.total, TOTAL_SHARE),
            Share(DENSE, bound.dense, part),
            Share(INNER, bound.table, part, self.tables - 1),
            Share(LEAF, bound.table, LEAF_SHARE),
        )
        noise = TreeNoise.of(calibrated)
        words = (
            f"a prefix tree of {self.tables + 1} levels: {noise.leaf.words} on the keys, {noise.inner.words} on the "
            f"tables above, {noise.dense.words} on the first level, {noise.total.words} on the total"
        )
        return replace(calibrated, words=words)

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far its noise alone would move a key's estimate."""
        calibrated = self.calibrate(Budget(epsilon, delta, rho))
        scale = self.grid * math.sqrt(calibrated.law(LEAF).variance)
        # Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
        return ReleasePreview(calibrated.guarantee(self.unit), scale, scale / math.sqrt(0.95 * self.rows))

    def predict(
        self,
        *,
        threshold: float,
        records: float | None = None,
        keys: int | None = None,
        skew: float | None = None,
        counts: Any = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
    ) -> Prediction:
        """Predict recall and precision of ``top(threshold=…)`` before anything is read or spent.

        Parameters
        ----------
        threshold : float
            The threshold that would be asked.
        records, keys, skew : float, int, float
            A guess at the data: so many records over so many distinct keys, the i-th most frequent of which has a
            share proportional to 1/i^skew.
        counts : numbers, optional
            A guess at the counts of all keys instead of these three.
        epsilon, delta, rho : float
            The budget, as for ``release``.
        """
        from dpsketch.sketches.heavy.predict import predict

        threshold = real_number("threshold", threshold)
        noise = TreeNoise.of(self.calibrate(Budget(epsilon, delta, rho)))
        return predict(self, guessed_counts(records, keys, skew, counts), threshold, noise)
