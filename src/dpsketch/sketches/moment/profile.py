"""Several moments of one stream, released together with one composed charge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch import files, plots
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType
from dpsketch.numbers import real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.release import DrawnRelease, refuse_keys
from dpsketch.results import Estimates
from dpsketch.sketches.documents import read_charge, read_guarantee
from dpsketch.sketches.moment.calibration import calibrate, caveat_of, floors_of
from dpsketch.sketches.moment.ending import EndingSketch
from dpsketch.sketches.moment.estimators import Estimator, check_estimator, pivot_variance
from dpsketch.sketches.moment.private import PrivateMoment
from dpsketch.sketches.moment.sketch import MomentSketch
from dpsketch.sketches.moment.spec import DEFAULT_SEED, MomentSpec, Stream
from dpsketch.sketches.permit import ReleasePreview, obtain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MomentProfile", "PrivateMomentProfile"]

_MOST = 64


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
    [0.5, 1]
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
        p = [real_number("p", each) for each in p]
        if not 1 <= len(p) <= _MOST or len(set(p)) != len(p):
            raise InvalidInput(f"p must name between 1 and {_MOST} exponents, all different.")
        specs = [MomentSpec(each, size, unit, stream, public_total, grid, seed, key_type) for each in p]
        self._sketches = [MomentSketch.from_spec(spec) for spec in specs]
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
            check_estimator(estimator, sketch.spec.p)
        calibrated = calibrate(self.specs, budget, estimator)
        note = "moments " + " ".join(f"{spec.p:g}" for spec in self.specs)
        for_tests = any(sketch._for_tests for sketch in self._sketches)
        once = [name for sketch in self._sketches for name in sketch._once()]
        permit = obtain(calibrated, self.spec.unit, account, note=note, once=once, for_tests=for_tests)
        caveat = caveat_of(self._sketches[0]._counted.caveat)
        self._begin_change()
        scales = [sketch._draw(permit, estimator) for sketch in self._sketches]
        stated = permit.guarantee(caveat=caveat)
        specs = [replace(sketch.spec, key_type=None) for sketch in self._sketches]
        moments = tuple(
            PrivateMoment(spec, scale, floor.height, estimator, guarantee=stated, charge=permit.charge)
            for spec, scale, floor in zip(specs, scales, floors_of(calibrated), strict=True)
        )
        return PrivateMomentProfile(moments, guarantee=stated, charge=permit.charge)

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> list[ReleasePreview]:
        """Say what a release at this budget would promise, and the error that each moment's floor would leave."""
        calibrated = calibrate(self.specs, Budget(epsilon, delta, rho))
        promise = calibrated.guarantee(self.spec.unit, caveat=caveat_of(None))
        errors = [
            floor.height * math.sqrt(pivot_variance(spec.p, spec.size, "mle"))
            for spec, floor in zip(self.specs, floors_of(calibrated), strict=True)
        ]
        return [ReleasePreview(promise, error, error) for error in errors]

    def _to_document(self, include_secret: bool = False) -> files.Document:
        parts = [sketch._to_document(include_secret) for sketch in self._sketches]
        arrays = {f"{name}_{i}": array for i, part in enumerate(parts) for name, array in part.arrays.items()}
        return files.Document("moments", True, {"parts": [part.header for part in parts]}, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        headers = document.header["parts"]
        if not isinstance(headers, list) or not 1 <= len(headers) <= _MOST:
            raise FileRefused("the file's list of moments is not one that dpsketch writes.")
        sketches = []
        for i, header in enumerate(headers):
            ending = f"_{i}"
            arrays = {name.removesuffix(ending): a for name, a in document.arrays.items() if name.endswith(ending)}
            sketches.append(MomentSketch._from_document(files.Document("moment", True, header, arrays)))
        _check_one_stream([sketch.spec for sketch in sketches])
        return cls._of(sketches)


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMomentProfile(DrawnRelease):
    """Moments released together: F_p against p, under one guarantee.

    Attributes
    ----------
    moments : tuple of PrivateMoment
        One an exponent, in the order asked; iterating gives them too. Each carries the guarantee of all together.
    """

    kind: ClassVar[str] = "moments"

    moments: tuple[PrivateMoment, ...]

    def __iter__(self) -> Iterator[PrivateMoment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)

    def __getitem__(self, p: float) -> PrivateMoment:
        """Return the moment with this exponent."""
        for moment in self.moments:
            if moment.p == p:
                return moment
        raise InvalidInput(f"F_{p:g} was not released; there are {', '.join(f'{m.p:g}' for m in self.moments)}.")

    def __repr__(self) -> str:
        words = ", ".join(f"F_{moment.p:g} ≈ {moment.value:g}" for moment in self.moments)
        return f"<PrivateMomentProfile {words}: {self.guarantee}>"

    def curve(self, *, confidence: float = 0.95) -> Estimates:
        """Return F_p against p, with intervals: the data of the plot."""
        ends = [moment.interval(confidence) for moment in self.moments]
        low, high = (np.array(side) for side in zip(*ends, strict=True))
        values = np.array([moment.value for moment in self.moments])
        return Estimates([moment.p for moment in self.moments], values, low, high, confidence, self.counts)

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """State every moment, with its interval."""
        refuse_keys(asked)
        found = self.curve(confidence=confidence)
        return replace(found, key=[f"F_{p:g}" for p in found.key])

    def plot(self) -> Figure:
        """Draw F_p against p, with the band of the intervals."""
        found = self.curve()
        order = np.argsort(found.key)
        p = np.asarray(found.key, dtype=np.float64)[order]
        words = self.title()
        return plots.curve(p, found.value[order], found.low[order], found.high[order], "p", "F_p", words, log=True)

    def public_spec(self) -> dict[str, Any]:
        """Return what the specs of all moments share, with the list of their exponents."""
        return {**self.moments[0].spec.to_json(), "p": [moment.p for moment in self.moments]}

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        header = {
            "moments": [moment.to_json() for moment in self.moments],
            "guarantee": self.guarantee.to_json(),
            "charge": None if self.charge is None else self.charge.to_json(),
        }
        return files.Document("moments", False, header, {})

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        promise, charge = read_guarantee(document), read_charge(document)
        listed = document.header["moments"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= _MOST:
            raise FileRefused("the file's list of moments is not one that dpsketch writes.")
        moments = tuple(PrivateMoment.from_json(value, promise, charge) for value in listed)
        _check_one_stream([moment.spec for moment in moments])
        return cls(moments, guarantee=promise, charge=charge)


def _check_one_stream(specs: list[MomentSpec]) -> None:
    """Refuse a file whose moments differ in more than their exponents."""
    if any(replace(spec, p=specs[0].p) != specs[0] for spec in specs):
        raise FileRefused("the file's moments are not of one stream: they differ in more than p.")
