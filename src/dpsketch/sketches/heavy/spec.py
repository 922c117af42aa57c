"""The public spec of a HeavyHitters sketch: its key space, its shape, its unit, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.noise import Noise
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.guess import guessed_counts
from dpsketch.sketches.heavy.keys import KeySpace
from dpsketch.sketches.specs import ReleasePreview, Spec, hold_key_columns

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.predict import SearchPrediction

__all__ = ["DENSE", "INNER", "LEAF", "TOTAL", "HeavyHittersSpec", "TreeNoise"]

# Shares of the budget. The leaf answers; the levels above it only have to lead there; a total needs little.
LEAF_SHARE = 1 / 2
TOTAL_SHARE = 1 / 64
TOTAL, DENSE, INNER, LEAF = "total", "first", "above", "keys"


@dataclass(frozen=True, slots=True)
class TreeNoise:
    """The noise in one counter of each part: the total, the dense level, the tables above the leaf, the leaf."""

    total: Noise
    dense: Noise
    inner: Noise
    leaf: Noise

    @classmethod
    def of(cls, laws: Iterable[Any]) -> Self:
        """Return the noise of the laws of a tree; of one table there is none above the leaf."""
        found = {law.name: law.noise for law in laws}
        return cls(found[TOTAL], found[DENSE], found.get(INNER, found[LEAF]), found[LEAF])


@stored
@dataclass(frozen=True, slots=True)
class HeavyHittersSpec(Spec):
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
        if self.rows * self.width * self.sketched > 2**31:
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
    def sketched(self) -> int:
        """How many levels are CountSketches, the leaf among them."""
        return self.space.size - self.space.dense_depth

    @property
    def leaf(self) -> CountSketchSpec:
        """The spec of the last level, which counts the keys themselves: that of an ordinary CountSketch."""
        return CountSketchSpec(self.rows, self.width, self.unit, self.seed, self.grid, self.key_type, self.key_columns)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.sketched} tables of {self.rows}×{self.width}"

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch; the total is the mass that every sketch keeps."""
        return {name: array for name, array in Spec.arrays(self).items() if name != TOTAL}

    def tables(self) -> tuple[Table, ...]:
        """Return the total, the first level, the tables above the keys as one, and the table of the keys.

        A record of weight at most w adds to the total, to one cell of the first level, and once to each table, like any
        CountSketch. A user has at most m keys of w each, and these may share prefixes. At each level above the leaf a
        prefix counts once a user, with the largest of its keys' weights: so a user moves at most m cells of the first
        level by w each, and every table is clipped to the norm c of :mod:`~dpsketch.sketches.countsketch.clipping` by
        itself. The total moves by mw.
        """
        return tuple(self.shares())

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget.

        The leaf gets half, the total 1/64, and the first level and the tables above the leaf the rest in equal parts.
        """
        weight, keys, above = self.weight_grid.max_units, self.unit.max_keys, self.sketched - 1
        (leaf,) = self.leaf.tables()
        share = (1 - LEAF_SHARE - TOTAL_SHARE) / self.sketched
        found = {
            Table(TOTAL, (1,), Move.heaped(1, keys * weight)): TOTAL_SHARE,
            Table(DENSE, (self.space.dense_cells,), Move.each(keys, weight)): share,
        }
        if above:
            found[Table(INNER, (above, self.rows, self.width), leaf.move.stacked(above))] = above * share
        found[Table(LEAF, (1, self.rows, self.width), leaf.move)] = LEAF_SHARE
        return found

    def daily(self) -> HeavyHittersSpec:
        """Return the spec of a stream's day."""
        return self

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words; a stream publishes all tables under one law."""
        if len(laws) == 1:
            return laws[0].words
        noise = TreeNoise.of(laws)
        return (
            f"a prefix tree of {self.sketched + 1} levels: {noise.leaf.words} on the keys, {noise.inner.words} on the "
            f"tables above, {noise.dense.words} on the first level, {noise.total.words} on the total"
        )

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far its noise alone would move a key's estimate."""
        budget = Budget(epsilon, delta, rho)
        laws = self.laws(budget)
        scale = self.grid * math.sqrt(laws[-1].noise.variance)
        # Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
        return ReleasePreview(promise(self, Receipt(budget, laws)), scale, scale / math.sqrt(0.95 * self.rows))

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
    ) -> SearchPrediction:
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
        noise = TreeNoise.of(self.laws(Budget(epsilon, delta, rho)))
        return predict(self, guessed_counts(records, keys, skew, counts), threshold, noise)
