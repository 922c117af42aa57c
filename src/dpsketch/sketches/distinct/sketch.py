"""The sensitive distinct count: keys come in, a number or a flipped bitmap goes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch._compiled.distinct import mark
from dpsketch.hashing import KeyType, row_keys
from dpsketch.laws.flips import Flips
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.distinct.mergeable import PrivateDistinctBitmap, flip_threshold
from dpsketch.sketches.distinct.private import PrivateDistinct
from dpsketch.sketches.distinct.spec import BITS, DEFAULT_SEED, ONES, DistinctSpec
from dpsketch.sketches.sketch import Entries, Sketch

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["DistinctSketch"]


class DistinctSketch(Sketch[DistinctSpec, PrivateDistinct]):
    """The sensitive sketch of the number of distinct keys.

    If eight bytes a key can be held, :class:`~dpsketch.DistinctSet` has no error but the noise.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    buckets : int, optional
        Size of the bitmap, eight bytes each; the relative error is about 0.7/√buckets, 1.1% by default.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    key_type : {"int", "text"}, optional
        What the keys are; a column's own type states it if it is not given. A release does not say it.

    Privacy
    -------
    A release is the number of ones with noise; one unit changes it by at most ``max_keys``. The noise is discrete
    Laplace, whose guarantee has δ = 0, unless Gaussian noise is smaller, which takes a large δ.

    Accuracy
    --------
    The relative error is about 0.7/√buckets; the noise adds √2·max_keys/ε keys where there are few of them.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> sketch = DistinctSketch(unit=per_record())
    >>> sketch.update(range(10_000))
    >>> private = sketch.release(epsilon=1.0, delta=0)
    >>> 9_000 < private.value < 11_000
    True
    """

    kind: ClassVar[str] = "distinct"
    spec_type: ClassVar[Any] = DistinctSpec
    release_type: ClassVar[Any] = PrivateDistinct
    takes: ClassVar[tuple[str, ...]] = ("users",)

    def __init__(
        self, *, unit: Unit, buckets: int = 4096, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        self._start(DistinctSpec(buckets, unit, seed, key_type))

    def _start(self, spec: DistinctSpec) -> None:
        super()._start(spec)
        self._row_keys = row_keys(spec.seed, 2, "distinct")

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        return partial(mark, self._arrays[BITS], entries.prints, self._row_keys)

    def _absorb(self, other: Self) -> None:
        self._arrays[BITS] |= other._arrays[BITS]

    @property
    def _published(self) -> DistinctSpec:
        return replace(self._spec, key_type=None)

    def _exact(self) -> dict[str, Any]:
        """Return the number of ones. Sensitive."""
        return {ONES: np.bitwise_count(self._arrays[BITS]).sum(dtype=np.int64, keepdims=True)}

    def release_mergeable(
        self,
        *,
        epsilon: float,
        delta: float = 0,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateDistinctBitmap:
        """Charge the budget, and return the bitmap with every bit flipped at random, to be merged with others'.

        Privacy
        -------
        ε-differential privacy for the spec's unit and neighbour relation, by randomised response on every bit; the flip
        probability is exact to 2⁻⁶⁴ and rounded towards privacy. Pure: a δ above 0 is not used.

        Accuracy
        --------
        At ε = 1 the relative error is about 2.5/√buckets, and about 1.1·√buckets keys where there are few.
        """
        spec, spent = self._published, float(Budget(epsilon, delta).epsilon or 0)
        flips = Flips(spec.tables()[1], spec.unit.neighbours, flip_threshold(spent, spec.unit))
        permit = self._pay(spec, (flips,), Budget(spent, 0), self._account(ledger, dataset, part))
        return PrivateDistinctBitmap(spec, permit.draw_all(self._arrays[BITS], caveat=self._counted.caveat))
