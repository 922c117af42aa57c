"""The sensitive distinct count: keys come in, a number or a flipped bitmap goes out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch import files
from dpsketch._compiled.distinct import mark
from dpsketch.bounding import Cut, bound, cut_of_users
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.laws.flips import Flips
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import PlainSketch
from dpsketch.sketches.distinct.exact import DistinctSet
from dpsketch.sketches.distinct.mergeable import PrivateDistinctBitmap, flip_threshold
from dpsketch.sketches.distinct.private import PrivateDistinct
from dpsketch.sketches.distinct.spec import DEFAULT_SEED, ONES, DistinctSpec
from dpsketch.sketches.keyed import KeySetPartial
from dpsketch.sketches.specs import fingerprint_of, stated_unit

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["DistinctSketch"]


class DistinctSketch(KeySetPartial, PlainSketch[DistinctSpec, PrivateDistinct]):
    """The sensitive sketch of the number of distinct keys.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    buckets : int, optional
        Size of the bitmap, eight bytes each; the relative error is about 0.7/√buckets, 1.1% by default.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    exact : bool, optional
        Remember every key by eight bytes instead of a bitmap, so that noise is the only error: what is started is a
        :class:`~dpsketch.DistinctSet`. The best wherever the keys can be held.
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

    def __new__(
        cls,
        *,
        unit: Unit | None = None,
        buckets: int | None = None,
        seed: int | None = None,
        exact: bool = False,
        key_type: KeyType | None = None,
    ) -> Any:
        """Start a bitmap, or a set where the count is to be exact."""
        if not exact:
            return super().__new__(cls, unit=unit)  # a bound that is to be chosen is refused there
        if buckets is not None or seed is not None:
            raise InvalidInput("an exact count has no bitmap: leave buckets= and seed= out, or exact=.")
        return DistinctSet(unit=stated_unit(unit), key_type=key_type)

    def __init__(
        self,
        *,
        unit: Unit,
        buckets: int = 4096,
        seed: int = DEFAULT_SEED,
        exact: bool = False,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(DistinctSpec(buckets, unit, seed, key_type))

    def _start(self, spec: DistinctSpec) -> None:
        self._spec = spec
        self._row_keys = row_keys(spec.seed, 2, "distinct")
        self._bitmap = np.zeros(spec.buckets, np.uint64)

    def __repr__(self) -> str:
        return f"<DistinctSketch {self._spec.buckets} buckets, spec {fingerprint_of(self._spec)}, sensitive>"

    def _update(self, keys: Any, users: Any, disjoint_users: bool) -> None:
        batch = fingerprint(keys, self._key_type)
        if not self._protects_users(users, disjoint_users):
            prints, skipped, counted, cut = batch.fingerprints, batch.skipped, self._counted, Cut()
        else:
            bounded = bound(users, batch, 1, max_keys=self._spec.unit.max_keys, max_units=1, seed=self._spec.seed)
            counted = self._counted.extended(bounded, disjoint_users=disjoint_users)
            prints, skipped = bounded.fingerprints, bounded.skipped
            cut = cut_of_users(self._spec.weight_grid, bounded, None).keys_alone
        self._begin_change()
        self._counted = counted
        self._cut += cut
        mark(self._bitmap, prints, self._row_keys)
        self._skipped += skipped
        self._note_type(batch.key_type, batch.declared)

    def _note_cut(self, cut: Cut) -> None:
        super()._note_cut(cut.keys_alone)  # each counts once, whatever its weight

    def _absorb(self, other: Self) -> None:
        self._bitmap |= other._bitmap

    def _release(self, budget: Budget, account: Account) -> PrivateDistinct:
        spec = replace(self._spec, key_type=None)
        permit = self._pay(spec, spec.laws(budget), budget, account)
        ones = np.bitwise_count(self._bitmap).sum(dtype=np.int64, keepdims=True)
        return PrivateDistinct(spec, permit.draw_all({ONES: ones}, caveat=self._counted.caveat))

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
        spec, spent = replace(self._spec, key_type=None), float(Budget(epsilon, delta).epsilon or 0)
        flips = Flips(spec.tables()[1], spec.unit.neighbours, flip_threshold(spent, spec.unit))
        permit = self._pay(spec, (flips,), Budget(spent, 0), self._account(ledger, dataset, part))
        return PrivateDistinctBitmap(spec, permit.draw_all(self._bitmap, caveat=self._counted.caveat))

    def _to_document(self) -> files.Document:
        return files.Document("distinct", True, {"spec": self._spec.to_json()}, {"bitmap": self._bitmap})

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(DistinctSpec.from_json(document.header["spec"]))
        bitmap = document.arrays["bitmap"]
        if not isinstance(bitmap, np.ndarray) or bitmap.dtype != np.uint64 or bitmap.shape != sketch._bitmap.shape:
            raise FileRefused("the file's bitmap is not what its spec prescribes.")
        sketch._bitmap[:] = bitmap
        return sketch
