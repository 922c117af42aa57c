"""The sensitive moment sketch: records come in, one number goes out, and the sketch ends."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dpsketch import files
from dpsketch._compiled.moment import VARIATES_PER_BLOCK
from dpsketch.arrays import Floats
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import agreed_spec, stated_spec, stored_type
from dpsketch.sketches.keyed import KeyedPartial
from dpsketch.sketches.moment.batches import Prepared, of_records, of_users
from dpsketch.sketches.moment.estimators import Estimator
from dpsketch.sketches.moment.law import caveat_of
from dpsketch.sketches.moment.private import PrivateMoment
from dpsketch.sketches.moment.secret import Secret
from dpsketch.sketches.moment.spec import DEFAULT_SEED, MomentSpec, Stream
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["EndingSketch", "MomentSketch"]

ReleaseT = TypeVar("ReleaseT")
DrawnT = TypeVar("DrawnT")

# Checks of the secrets under which this process has released: a copy of such a sketch is refused.
_RELEASED: set[str] = set()


class EndingSketch(KeyedPartial, Generic[ReleaseT]):
    """A sensitive sketch of one moment or of several. Its release ends it."""

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        estimator: Estimator = "mle",
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
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part), estimator)

    @abstractmethod
    def _release(self, budget: Budget, account: Account, estimator: Estimator) -> ReleaseT:
        """Calibrate, obtain a permit, draw, end, and return the release."""

    def to_sensitive_bytes(self, *, include_secret: bool = False) -> bytes:
        """Return the sketch with its content, for use inside the trust boundary only.

        Without the secret it can be merged and released, not updated. Whoever holds the bytes *and* the secret can undo
        the projection.
        """
        return files.encode(self._completed(self._to_document(include_secret)))

    def to_shared_bytes(self) -> bytes:
        """Return the sketch with its secret: only what shares it will merge."""
        return self.to_sensitive_bytes(include_secret=True)

    def save_sensitive(self, path: str | PathLike[str], *, include_secret: bool = False) -> None:
        """Write the sketch with its content to a ``.sketch`` file that only its owner may read."""
        files.write(path, self._completed(self._to_document(include_secret)))

    @abstractmethod
    def _to_document(self, include_secret: bool = False) -> files.Document:
        """Return the sketch as a document of the file format, with its secret or without."""


class MomentSketch(EndingSketch["PrivateMoment"]):
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

    def __init__(
        self,
        *,
        p: float,
        size: int,
        unit: Unit,
        stream: Stream = "insert",
        public_total: float = 0,
        grid: float | None = None,
        seed: int = DEFAULT_SEED,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(MomentSpec(p, size, unit, stream, public_total, grid, seed, key_type), Secret.draw(), False)
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: MomentSpec, secret: Secret | None, partial: bool) -> None:
        blocks = -(-spec.size // VARIATES_PER_BLOCK)
        self._spec = spec
        self._secret = secret
        self._check = "" if secret is None else secret.check()
        self._for_tests = secret is not None and secret.for_tests
        self._partial = partial
        self._ended = False
        self._sums = np.zeros(VARIATES_PER_BLOCK * blocks)
        self._total = 0  # records of an insert-only stream, net grid units of a turnstile stream
        self._skipped = 0
        # What the keys seen so far are: held against later ones, and published nowhere.
        self._seen: KeyType | None = None
        self._counted = CountedUsers()

    @classmethod
    def from_spec(cls, spec: MomentSpec) -> Self:
        """Start an empty sketch of a spec, with a secret of its own."""
        sketch = cls.__new__(cls)
        sketch._start(spec, Secret.draw(), False)
        return sketch

    def empty_like(self) -> Self:
        """Start an empty partial that shares this sketch's secret, so that it can be merged into it.

        A partial cannot be released by itself: two releases under one secret would give away what changed between them.
        When the sketch is released, its partials in this process lose the secret with it.
        """
        if self._secret is None:
            self._refuse_ended()
            raise InvalidInput(
                "this sketch came without its secret, so nothing that merges with it can be built. Write it with "
                "to_sensitive_bytes(include_secret=True)."
            )
        sketch = type(self).__new__(type(self))
        sketch._start(self._spec, self._secret, True)
        return sketch

    @property
    def spec(self) -> MomentSpec:
        """The public spec."""
        return self._spec

    @property
    def _key_type(self) -> KeyType | None:
        """What further keys must be: the type that was stated, else that of the keys seen so far. Sensitive."""
        return self._spec.key_type or self._seen

    @property
    def skipped_nulls(self) -> int:
        """How many records had a null key or user and were skipped. Sensitive: for the data holder's eyes."""
        return self._skipped

    def __repr__(self) -> str:
        spec = self._spec
        state = "released and ended" if self._ended else "sensitive"
        return f"<MomentSketch p={spec.p:g}, size {spec.size}, spec {fingerprint_of(spec)}, {state}>"

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        prepared = self._prepare(keys, users, weights, counts, disjoint_users)
        self._begin_change()
        self._add(prepared)

    def _prepare(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> Prepared:
        """Check a batch, bound its users, and sum the units of equal keys; change nothing."""
        self._refuse_ended()
        if self._secret is None:
            raise InvalidInput(
                "this sketch came without its secret, so it can be merged and released but not updated. Write it with "
                "to_sensitive_bytes(include_secret=True)."
            )
        batch = fingerprint(keys, self._key_type)
        if not self._protects_users(users, disjoint_users, counts):
            return of_records(self._spec, batch, weights, counts, self._counted)
        return of_users(self._spec, batch, users, weights, self._counted, disjoint_users=disjoint_users)

    def _add(self, batch: Prepared) -> None:
        """Add each key's variates once; the caller has begun the change."""
        assert self._secret is not None
        self._counted = batch.counted
        self._secret.add(self._sums, batch.fingerprints, batch.weights, self._spec.p)
        self._total += batch.total
        self._skipped += batch.skipped
        self._seen = self._seen or batch.key_type
        self._spec = stated_spec(self._spec, batch.declared)

    def merge(self, other: MomentSketch, *, disjoint_users: bool = False) -> None:
        """Add a partial that shares this sketch's secret (see :meth:`empty_like`); it stays as it is.

        The result is that of one pass over both streams, up to the rounding of floating-point sums (about 1e-12).

        Parameters
        ----------
        other : MomentSketch
            The partial. One that was merged before is refused, as is a copy of it; where the unit is a user, also one
            that shares a user.
        disjoint_users : bool, optional
            State that the two share no user. No user is then compared, and the release says that it was not checked.
        """
        if not isinstance(other, MomentSketch):
            raise SpecMismatch(f"cannot merge a MomentSketch with a {type(other).__name__}.")
        spec, counted = self._check_absorb(other, disjoint_users)
        self._begin_change()
        self._absorb(other, spec, counted)

    def _check_absorb(self, other: MomentSketch, disjoint_users: bool) -> tuple[MomentSpec, CountedUsers]:
        """Return the spec and the users of the sum, or refuse it; change nothing."""
        self._refuse_ended()
        other._refuse_ended()
        spec: MomentSpec = agreed_spec(self._spec, other._spec, self._key_type, other._key_type)
        if self._check != other._check:
            raise SpecMismatch(
                "cannot merge: the two sketches have different secrets. Start partials with empty_like(), or with "
                "build --like."
            )
        if self._partial and not other._partial:
            raise SpecMismatch(
                "cannot merge a sketch into one of its partials: two sketches of one secret could then be released. "
                "Merge the partial into the sketch."
            )
        if spec.unit.level == "record" and disjoint_users:
            raise InvalidInput("disjoint_users= goes with unit=dps.per_user(max_keys=…): these sketches count records.")
        counted = self._counted.merged(other._counted, disjoint_users=disjoint_users)
        self._accept_partial(other)
        return spec, counted

    def _absorb(self, other: MomentSketch, spec: MomentSpec, counted: CountedUsers) -> None:
        """Add a partial that :meth:`_check_absorb` let pass; the caller has begun the change."""
        self._partials |= other._partials
        self._counted = counted
        self._sums += other._sums
        self._total += other._total
        self._skipped += other._skipped
        self._seen = self._seen or other._seen
        self._spec = spec

    def _release(self, budget: Budget, account: Account, estimator: Estimator) -> PrivateMoment:
        self._refuse_release()
        # A release answers no question about keys, and their type would tell an empty stream.
        spec, caveat = replace(self._spec, key_type=None), caveat_of(self._counted.caveat)
        (law,) = spec.laws(budget, estimator)
        note = f"moment {fingerprint_of(spec)}"
        permit = Permit.pay(spec, (law,), budget, account, note=note, once=self._once(), for_tests=self._for_tests)
        self._begin_change()
        drawn = {law.name: self._spend(lambda *state: permit.draw(law, state))}
        return PrivateMoment(spec, permit.drawn(drawn, caveat=caveat))

    def _refuse_release(self) -> None:
        self._refuse_ended()
        if self._partial:
            raise ReleaseRefused(
                "this is a partial: it shares its secret with the sketch it was started from, and only one of the two "
                "may be released. Merge it into that sketch."
            )
        if self._check in _RELEASED and not self._for_tests:
            raise ReleaseRefused(
                "another copy of this sketch was released under the same secret; a second release could not be private."
            )

    def _once(self) -> list[str]:
        """Return what a ledger may pay for once: the secret, by a digest that tells nothing else about it."""
        return [] if self._for_tests else [hashlib.sha256(f"dpsketch secret {self._check}".encode()).hexdigest()]

    def _spend(self, draw: Callable[[Floats, float], DrawnT]) -> DrawnT:
        """Return what is drawn of the sums and of their padding, and overwrite everything.

        The caller has begun the change: interrupted in between, the sketch neither ends in order nor goes on.
        """
        spec = self._spec
        measured = self._total * (1.0 if spec.stream == "insert" else spec.weight_grid.step)
        _RELEASED.add(self._check)
        try:
            return draw(self._sums, max(0.0, spec.public_total - measured))
        finally:
            self._end()

    def _end(self) -> None:
        if self._secret is not None:
            self._secret.destroy()
        self._secret = None
        self._sums[:] = 0
        self._total = 0
        self._check = ""
        self._counted = CountedUsers()
        self._ended = True

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ReleaseRefused(
                "this sketch has been released, which ends it: its secret is destroyed, and a second release could not "
                "be private. Build a new sketch."
            )

    def _to_document(self, include_secret: bool = False) -> files.Document:
        self._refuse_ended()
        header: dict[str, Any] = {
            "spec": self._spec.to_json(),
            "total": str(self._total),
            "skipped": self._skipped,
            "check": self._check,
            "partial": self._partial,
            "for_tests": self._for_tests,
        }
        if self._spec.key_type is None and self._seen is not None:
            header["seen"] = self._seen
        arrays: dict[str, files.Array] = {"sums": self._sums}
        if include_secret:
            if self._secret is None:
                raise InvalidInput("this sketch came without its secret, so it cannot be written with it.")
            arrays["secret"] = self._secret.reveal_for_sensitive_file()
        if self._spec.unit.level == "user":
            header["users"] = self._counted.to_json()
            arrays["users"] = self._counted.to_array()
        return files.Document("moment", True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header, arrays = document.header, document.arrays
        for_tests, partial, check = header["for_tests"], header["partial"], header["check"]
        sums = arrays["sums"]
        secret = Secret.from_stored(arrays["secret"], for_tests=bool(for_tests)) if "secret" in arrays else None
        sketch = cls.__new__(cls)
        sketch._start(MomentSpec.from_json(header["spec"]), secret, bool(partial))
        known = isinstance(sums, np.ndarray) and sums.dtype == np.float64 and sums.shape == sketch._sums.shape
        if not known or not isinstance(check, str) or (secret is not None and sketch._check != check):
            raise FileRefused("the file's sums or secret are not what its spec prescribes.")
        sketch._sums[:] = sums
        sketch._check = check
        sketch._for_tests = bool(for_tests)
        sketch._total = int(header["total"])
        sketch._skipped = int(header["skipped"])
        sketch._seen = stored_type(document)
        if sketch._spec.unit.level == "user":
            sketch._counted = CountedUsers.from_stored(arrays["users"], header["users"])
        return sketch
