"""Several moments of one stream, released together with one composed charge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType
from dpsketch.numbers import real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.moment.estimators import Estimator, pivot_variance
from dpsketch.sketches.moment.law import caveat_of
from dpsketch.sketches.moment.private import PrivateMomentProfile
from dpsketch.sketches.moment.sketch import EndingSketch, MomentSketch
from dpsketch.sketches.moment.spec import DEFAULT_SEED, MomentProfileSpec, MomentSpec, Stream
from dpsketch.sketches.specs import ReleasePreview

__all__ = ["MomentProfile"]


class MomentProfile(EndingSketch["PrivateMomentProfile"]):
    """Sketches of F_p for several p over one stream; one release, which ends them all.

    Parameters
    ----------
    p : sequence of float
        The exponents, all different.
    size, unit, stream, public_total, grid, seed, key_type
        As for :class:`MomentSketch`, shared by all.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> profile = MomentProfile(p=[0.5, 1], size=50, unit=per_record())
    >>> profile.update(["a", "b", "a"], counts=[400, 900, 500])
    >>> private = profile.release(epsilon=2.0, delta=0)
    >>> [moment.p for moment in private]
    [0.5, 1.0]
    """

    kind: ClassVar[str] = "moments"

    def __init__(
        self,
        *,
        p: Sequence[float],
        size: int,
        unit: Unit,
        stream: Stream = "insert",
        public_total: float = 0,
        grid: float | None = None,
        seed: int = DEFAULT_SEED,
        key_type: KeyType | None = None,
    ) -> None:
        if not p:
            raise InvalidInput("p must name at least one exponent.")
        first, *others = (real_number("p", each) for each in p)
        spec = MomentSpec(first, size, unit, stream, public_total, grid, seed, key_type)
        self._sketches = [MomentSketch.from_spec(each) for each in MomentProfileSpec(spec, tuple(others)).specs]
        self.spec.weight_grid.refuse_without_one()

    @property
    def specs(self) -> list[MomentSpec]:
        """The public specs, one an exponent."""
        return [sketch.spec for sketch in self._sketches]

    @property
    def spec(self) -> MomentSpec:
        """The first exponent's spec; the others differ from it in p alone."""
        return self._sketches[0].spec

    @property
    def skipped_nulls(self) -> int:
        """How many records had a null key or user and were skipped. Sensitive: for the data holder's eyes."""
        return self._sketches[0].skipped_nulls

    def __repr__(self) -> str:
        exponents = ", ".join(f"{spec.p:g}" for spec in self.specs)
        return f"<MomentProfile p={exponents}, size {self.spec.size}, sensitive>"

    def empty_like(self) -> Self:
        """Start an empty partial that shares the secrets (see :meth:`MomentSketch.empty_like`)."""
        return self._of([sketch.empty_like() for sketch in self._sketches])

    @classmethod
    def _of(cls, sketches: list[MomentSketch]) -> Self:
        profile = cls.__new__(cls)
        profile._sketches = sketches
        return profile

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        # They differ in p alone, so that the batch is the same for all.
        prepared = self._sketches[0]._prepare(keys, users, weights, counts, disjoint_users)
        self._begin_change()
        for sketch in self._sketches:
            sketch._add(prepared)

    def merge(self, other: MomentProfile, *, disjoint_users: bool = False) -> None:
        """Add a partial that shares the secrets; see :meth:`MomentSketch.merge`."""
        if not isinstance(other, MomentProfile) or [s.p for s in self.specs] != [s.p for s in other.specs]:
            raise SpecMismatch("cannot merge: the two do not hold the same exponents in the same order.")
        pairs = list(zip(self._sketches, other._sketches, strict=True))
        agreed = [ours._check_absorb(theirs, disjoint_users) for ours, theirs in pairs]
        self._accept_partial(other)
        self._begin_change()
        self._partials |= other._partials
        for (ours, theirs), (spec, counted) in zip(pairs, agreed, strict=True):
            ours._absorb(theirs, spec, counted)

    def _release(self, budget: Budget, account: Account, estimator: Estimator) -> PrivateMomentProfile:
        for sketch in self._sketches:
            sketch._refuse_release()
        spec = MomentProfileSpec.of([replace(spec, key_type=None) for spec in self.specs])
        laws = spec.laws(budget, estimator)
        note = "moments " + " ".join(f"{spec.p:g}" for spec in self.specs)
        for_tests = any(sketch._for_tests for sketch in self._sketches)
        once = [name for sketch in self._sketches for name in sketch._once()]
        permit = Permit.pay(spec, laws, budget, account, note=note, once=once, for_tests=for_tests)
        caveat = caveat_of(self._sketches[0]._counted.caveat)
        self._begin_change()
        drawn = {
            law.name: sketch._spend(lambda *state, law=law: permit.draw(law, state))
            for law, sketch in zip(laws, self._sketches, strict=True)
        }
        return PrivateMomentProfile(spec, permit.drawn(drawn, caveat=caveat))

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> list[ReleasePreview]:
        """Say what a release at this budget would promise, and the error that each moment's floor would leave."""
        budget = Budget(epsilon, delta, rho)
        spec = MomentProfileSpec.of(self.specs)
        laws = spec.laws(budget)
        stated = promise(spec, Receipt(budget, laws, caveat_of(None)))
        errors = [law.height * math.sqrt(pivot_variance(law.table.p, law.table.sums, "mle")) for law in laws]
        return [ReleasePreview(stated, error, error) for error in errors]

    def _to_document(self, include_secret: bool = False) -> files.Document:
        parts = [sketch._to_document(include_secret) for sketch in self._sketches]
        arrays = {f"{name}_{i}": array for i, part in enumerate(parts) for name, array in part.arrays.items()}
        return files.Document("moments", True, {"parts": [part.header for part in parts]}, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        headers = document.header["parts"]
        if not isinstance(headers, list) or not headers:
            raise FileRefused("the file's list of moments is not one that dpsketch writes.")
        sketches = []
        for i, header in enumerate(headers):
            ending = f"_{i}"
            arrays = {name.removesuffix(ending): a for name, a in document.arrays.items() if name.endswith(ending)}
            sketches.append(MomentSketch._from_document(files.Document("moment", True, header, arrays)))
        MomentProfileSpec.of([sketch.spec for sketch in sketches])
        return cls._of(sketches)
