"""Count records for one moment or several, and release them once: each number has an interval."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np

from dpsketch import files, plots
from dpsketch._compiled.moment import VARIATES_PER_BLOCK
from dpsketch.arrays import Floats
from dpsketch.bounding import CountedUsers
from dpsketch.core.drawn import Part, Receipt, promise
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.scales import ScaleEstimator, pivot_interval, pivot_variance
from dpsketch.laws.stable import Floor, Secret, significant
from dpsketch.numbers import real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.release import NumberRelease, SketchRelease, refuse_keys
from dpsketch.results import Estimates
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.moment.spec import MomentProfileSpec, MomentSpec, StreamForm, of_records, of_users
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Ledger


class _FloorRelease(SketchRelease):
    """A release that floors drew, one for each table of the spec."""

    __slots__ = ()

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        names = {table.name for table in spec.tables()}
        return parts.keys() == names and all(isinstance(part.law, Floor) for part in parts.values())


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMoment(NumberRelease, _FloorRelease):
    """A released moment."""

    kind: ClassVar[str] = "moment"
    spec_type: ClassVar[Any] = MomentSpec

    spec: MomentSpec

    @property
    def _part(self) -> Part:
        return self.drawn.parts[self.spec.weights.name]

    @property
    def _law(self) -> Floor:
        return cast("Floor", self._part.law)

    @property
    def scale(self) -> float:
        """The rounded estimate of F_p + floor: all that was released."""
        scale: Any = self._part.arrays["scale"]
        return float(scale[0])

    @property
    def floor(self) -> float:
        """The floor; public, a function of the spec and the budget."""
        return self._law.height

    @property
    def estimator(self) -> ScaleEstimator:
        """How the scale was estimated."""
        return self._law.estimator

    @property
    def p(self) -> float:
        """The exponent."""
        return self.spec.p

    @property
    def subject(self) -> str:
        """What the number is of."""
        return f"F_{self.p:g}"

    @property
    def value(self) -> float:
        """The estimate of F_p. Unbiased, hence below 0 at times where F_p is small beside the floor."""
        return significant(self.scale - self.floor, 4)

    @property
    def error(self) -> float:
        """The standard error of :attr:`value`, from the release itself."""
        return self.scale * math.sqrt(pivot_variance(self.spec.p, self.spec.size, self.estimator))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for F_p.

        Accuracy
        --------
        The estimate is the true scale times a pivot whose law is known, so coverage does not depend on the data: it is
        within half a percentage point of the confidence from 50 coordinates on, and within one from 10 on.
        """
        low, high = pivot_interval(self.spec.p, self.spec.size, self.estimator, confidence)
        return self.scale * low - self.floor, self.scale * high - self.floor

    def __repr__(self) -> str:
        low, high = self.interval()
        return (
            f"<PrivateMoment F_{self.spec.p:g} ≈ {self.value:g} [{low:.4g}, {high:.4g}], "
            f"spec {fingerprint_of(self.spec)}: {self.guarantee}>"
        )

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        if [law.name for receipt in self.drawn.receipts for law in receipt.laws] != [self._law.name]:
            raise InvalidInput("this moment was released with others, or as published: it has no file of its own.")
        return SketchRelease.to_document(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateMomentProfile(_FloorRelease):
    """Moments released together: F_p against p, under one guarantee. Iterating gives one after the other."""

    kind: ClassVar[str] = "moments"
    spec_type: ClassVar[Any] = MomentProfileSpec

    spec: MomentProfileSpec

    @property
    def moments(self) -> tuple[PrivateMoment, ...]:
        """One moment an exponent, in the order asked. Each carries the guarantee of all together."""
        return tuple(PrivateMoment(spec, self.drawn) for spec in self.spec.specs)

    def __iter__(self) -> Iterator[PrivateMoment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.spec.specs)

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
        return {**self.spec.first.to_json(), "p": [spec.p for spec in self.spec.specs]}


ReleaseT = TypeVar("ReleaseT")
SpentT = TypeVar("SpentT")

# Checks of the secrets under which this process has released: a copy of such a sketch is refused.
_RELEASED: set[str] = set()


class MomentSums(Sketch[MomentSpec, ReleaseT]):
    """A sensitive sketch of one moment of a stream, or of several. Its release ends it."""

    spec_type: ClassVar[Any] = MomentSpec

    def _start(self, spec: MomentSpec) -> None:
        super()._start(spec)  # of the first moment; the others differ in p alone
        self._others: tuple[float, ...] = ()
        # One secret a moment; None if the sketch came without them.
        self._secrets: list[Secret] | None = None
        self._checks: list[str] = []
        self._partial = False
        self._ended = False
        self._total = 0  # records of an insert-only stream, net grid units of a turnstile stream
        self._extend(())

    def _extend(self, others: tuple[float, ...]) -> None:
        """State the exponents beside the first, and make room for their sums."""
        self._others = others
        blocks = -(-self._spec.size // VARIATES_PER_BLOCK)
        self._sums = np.zeros((1 + len(others), VARIATES_PER_BLOCK * blocks))

    def _hold(self, secrets: list[Secret]) -> None:
        """Take the secrets under which records are counted."""
        self._secrets = secrets
        self._checks = [secret.check() for secret in secrets]
        self._for_tests = any(secret.for_tests for secret in secrets)

    def _begin(self, spec: MomentSpec, others: tuple[float, ...]) -> None:
        """Start an empty sketch with secrets of its own."""
        self._start(spec)
        self._extend(others)
        self._hold([Secret.draw() for _ in range(1 + len(others))])

    @classmethod
    def from_spec(cls, spec: MomentSpec) -> Self:
        """Start an empty sketch of a spec, with a secret of its own."""
        sketch = cls._blank(spec)
        sketch._begin(spec, ())
        return sketch

    @property
    @abstractmethod
    def _plan(self) -> MomentSpec | MomentProfileSpec:
        """The public spec of all moments."""

    def empty_like(self) -> Self:
        """Start an empty partial that shares this sketch's secrets, so that it can be merged into it.

        A partial cannot be released by itself: two releases under one secret would give away what changed between them.
        When the sketch is released, its partials in this process lose the secrets with it.
        """
        self._refuse_ended()
        secrets = self._known_secrets("nothing that merges with it can be built")
        sketch = type(self)._blank(self._spec)
        sketch._extend(self._others)
        sketch._hold(secrets)
        sketch._partial = True
        return sketch

    @property
    def specs(self) -> list[MomentSpec]:
        """The public specs, one an exponent."""
        return [self._spec, *(replace(self._spec, p=p) for p in self._others)]

    def __repr__(self) -> str:
        exponents = ", ".join(f"{spec.p:g}" for spec in self.specs)
        state = "released and ended" if self._ended else "sensitive"
        shape = f"p={exponents}, size {self._spec.size}, spec {fingerprint_of(self._plan)}"
        return f"<{type(self).__name__} {shape}, {state}>"

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        self._refuse_ended()
        secrets = self._known_secrets("it can be merged and released but not updated")
        read = fingerprint(columns.records, self._key_type)
        if not self._protects_users(columns.users, disjoint_users, columns.counts):
            batch = of_records(self._spec, read, columns.weights, columns.counts, self._counted)
        else:
            given = (self._spec, read, columns.users, columns.weights, self._counted)
            batch = of_users(*given, disjoint_users=disjoint_users)
        self._begin_change()
        self._counted = batch.counted
        for spec, secret, sums in zip(self.specs, secrets, self._sums, strict=True):
            secret.add(sums, batch.fingerprints, batch.weights, spec.p)
        self._total += batch.total
        self._skipped += batch.skipped
        self._note_type(read.key_type, read.declared)

    def _check_absorb(self, other: Self) -> None:
        self._refuse_ended()
        other._refuse_ended()
        if self._others != other._others:
            raise SpecMismatch("cannot merge: the two do not hold the same exponents p in the same order.")
        if self._checks != other._checks:
            raise SpecMismatch(
                "cannot merge: the two sketches have different secrets. Start partials with empty_like(), or with "
                "build --like."
            )
        if self._partial and not other._partial:
            raise SpecMismatch(
                "cannot merge a sketch into one of its partials: two sketches of one secret could then be released. "
                "Merge the partial into the sketch."
            )

    def _absorb(self, other: Self) -> None:
        """Add the sums, up to the rounding of floating-point numbers (about 1e-12)."""
        self._sums += other._sums
        self._total += other._total

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        estimator: ScaleEstimator = "mle",
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> ReleaseT:
        """Charge the budget, add the floor, and return the rounded estimate. The sketch ends: its secret is destroyed.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee, of all moments together. δ = 0 is pure privacy, at a floor several times larger.
        rho : float
            A zero-concentrated guarantee instead.
        estimator : {"mle", "geometric", "harmonic", "fractional", "median"}
            How the scale is estimated; "mle" has the least error.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before the floor is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation: between neighbours F_p + floor changes
        by at most the ratio of the cost, and the loss of all coordinates together is computed exactly, rounded up.
        Several moments have independent secrets, so their losses add: the composed privacy loss distribution is within
        (ε, δ), whichever of them grow and whichever shrink.

        Computational, because the variates come from a cipher; for one release, because a second under the same secret
        would be correlated with it. A ledger pays for one release of a secret, whoever holds copies of the sketch and
        whichever dataset they are charged to. A copy in a forked child refuses to be released. Without a ledger, or
        with another, nothing can know of the release of a copied file: keep no copies.

        Accuracy
        --------
        The standard error is (F_p + floor)/√(size·I), with I = 0.70 at p = 0.5 (the information of one coordinate).
        """
        self._refuse_release()
        budget, account, spec = Budget(epsilon, delta, rho), self._account(ledger, dataset, part), self._plan
        laws, caveat = spec.laws(budget, estimator), self._counted.caveat
        note = f"{self.kind} {fingerprint_of(spec)}"
        permit = Permit.pay(spec, laws, budget, account, note=note, once=self._once(), for_tests=self._for_tests)
        self._begin_change()
        self._spend(
            lambda sums, padding: [permit.draw(law, (each, padding)) for law, each in zip(laws, sums, strict=True)]
        )
        release: ReleaseT = self.release_type(spec, permit.drawn(caveat=caveat))
        return release

    def _refuse_release(self) -> None:
        self._refuse_ended()
        if self._partial:
            raise ReleaseRefused(
                "this is a partial: it shares its secret with the sketch it was started from, and only one of the two "
                "may be released. Merge it into that sketch."
            )
        if not _RELEASED.isdisjoint(self._checks) and not self._for_tests:
            raise ReleaseRefused(
                "another copy of this sketch was released under the same secret; a second release could not be private."
            )

    def _once(self) -> list[str]:
        """Return what a ledger may pay for once: the secrets, by digests that tell nothing else about them."""
        names = [hashlib.sha256(f"dpsketch secret {check}".encode()).hexdigest() for check in self._checks]
        return [] if self._for_tests else names

    def _spend(self, draw: Callable[[Floats, float], SpentT]) -> SpentT:
        """Return what is drawn of all sums and of their padding, and overwrite everything.

        The caller has begun the change: interrupted in between, the sketch neither ends in order nor goes on.
        """
        spec = self._spec
        measured = self._total * (1.0 if spec.stream == "insert" else spec.weight_grid.step)
        _RELEASED.update(self._checks)
        try:
            return draw(self._sums, max(0.0, spec.public_total - measured))
        finally:
            for secret in self._secrets or ():
                secret.destroy()
            self._secrets = None
            self._sums[:] = 0
            self._total = 0
            self._checks = []
            self._counted = CountedUsers()
            self._ended = True

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ReleaseRefused(
                "this sketch has been released, which ends it: its secret is destroyed, and a second release could not "
                "be private. Build a new sketch."
            )

    def _known_secrets(self, missed: str) -> list[Secret]:
        if self._secrets is None:
            raise InvalidInput(
                f"this sketch came without its secret, so {missed}. Write it with "
                "to_sensitive_bytes(include_secret=True)."
            )
        return self._secrets

    def to_sensitive_bytes(self, *, include_secret: bool = False) -> bytes:
        """Return the sketch with its content, for use inside the trust boundary only.

        Without the secret it can be merged and released, not updated. Whoever holds the bytes *and* the secret can undo
        the projection.
        """
        return files.encode(self._with_secrets(include_secret))

    def to_shared_bytes(self) -> bytes:
        """Return the sketch with its secret: only what shares it will merge."""
        return self.to_sensitive_bytes(include_secret=True)

    def save_sensitive(self, path: str | PathLike[str], *, include_secret: bool = False) -> None:
        """Write the sketch with its content to a ``.sketch`` file that only its owner may read."""
        files.write(path, self._with_secrets(include_secret))

    def _with_secrets(self, include: bool) -> files.Document:
        """Return the sketch as a document, with its secrets if they are to be included."""
        self._refuse_ended()
        document = self._completed(self._to_document())
        if not include:
            return document
        secrets = self._known_secrets("it cannot be written with it")
        words = np.stack([secret.reveal_for_sensitive_file() for secret in secrets])
        return replace(document, arrays={**document.arrays, "secrets": words})

    def _header(self) -> dict[str, Any]:
        return {
            "others": list(self._others),
            "total": str(self._total),
            "checks": self._checks,
            "partial": self._partial,
            "for_tests": self._for_tests,
        }

    def _stored_arrays(self) -> dict[str, files.Array]:
        return {"sums": self._sums}

    def _restore(self, document: files.Document) -> None:
        header, sums, words = document.header, document.arrays["sums"], document.arrays.get("secrets")
        for_tests, checks = bool(header["for_tests"]), header["checks"]
        self._extend(MomentProfileSpec(self._spec, tuple(header["others"])).others)
        if words is not None:
            self._hold([Secret.from_stored(each, for_tests=for_tests) for each in words])
        good = isinstance(sums, np.ndarray) and sums.dtype == np.float64 and sums.shape == self._sums.shape
        good = good and isinstance(checks, list) and len(checks) == len(self._sums)
        good = good and all(isinstance(check, str) for check in checks) and len(self._plan.tables()) == len(checks)
        if not good or (words is not None and self._checks != checks):
            raise FileRefused("the file's sums or secret are not what its spec prescribes.")
        self._sums[:] = sums
        self._checks, self._for_tests, self._partial = checks, for_tests, bool(header["partial"])
        self._total = int(header["total"])


class MomentSketch(MomentSums[PrivateMoment]):
    """The sensitive sketch of F_p = Σ (weight of a key)^p. Its release ends it.

    Parameters
    ----------
    p : float
        The exponent: from 0.1 to 0.99, or 1. Small p nears the number of distinct keys, p = 1 is the total weight.
    size : int
        Coordinates. The relative error is about √(1.4/size) at p = 0.5.
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``; weights are clipped to its ``max_weight``.
    stream, public_total, grid, seed, key_type
        See :class:`MomentSpec`.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> sketch = MomentSketch(p=0.5, size=200, unit=per_record())
    >>> sketch.update(["a", "b", "a"], counts=[400, 900, 500])
    >>> private = sketch.release(epsilon=1.0, delta=1e-6)
    >>> private.low < private.value < private.high
    True
    """

    kind: ClassVar[str] = "moment"
    release_type: ClassVar[Any] = PrivateMoment

    def __init__(
        self,
        *,
        p: float,
        size: int,
        unit: Unit,
        stream: StreamForm = "insert",
        public_total: float = 0,
        grid: float | None = None,
        seed: int = DEFAULT_SEED,
        key_type: KeyType | None = None,
    ) -> None:
        self._begin(MomentSpec(p, size, unit, stream, public_total, grid, seed, key_type), ())
        self._spec.weight_grid.refuse_without_one()

    @property
    def _plan(self) -> MomentSpec:
        # A release answers no question about keys, and their type would tell an empty stream.
        return replace(self._spec, key_type=None)


class MomentProfile(MomentSums[PrivateMomentProfile]):
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
    release_type: ClassVar[Any] = PrivateMomentProfile

    def __init__(
        self,
        *,
        p: Sequence[float],
        size: int,
        unit: Unit,
        stream: StreamForm = "insert",
        public_total: float = 0,
        grid: float | None = None,
        seed: int = DEFAULT_SEED,
        key_type: KeyType | None = None,
    ) -> None:
        exponents = [real_number("p", each) for each in p]
        if not exponents:
            raise InvalidInput("p must name at least one exponent.")
        first, *others = exponents
        spec = MomentSpec(first, size, unit, stream, public_total, grid, seed, key_type)
        self._begin(spec, MomentProfileSpec(spec, tuple(others)).others)
        self._spec.weight_grid.refuse_without_one()

    @property
    def _plan(self) -> MomentProfileSpec:
        return MomentProfileSpec(replace(self._spec, key_type=None), self._others)

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> list[ReleasePreview]:
        """Say what a release at this budget would promise, and the error that each moment's floor would leave."""
        budget, spec = Budget(epsilon, delta, rho), self._plan
        laws = spec.laws(budget)
        stated = promise(spec, Receipt(budget, laws))
        errors = [law.height * math.sqrt(pivot_variance(law.table.p, law.table.sums, "mle")) for law in laws]
        return [ReleasePreview(stated, error, error) for error in errors]
