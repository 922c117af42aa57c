"""What every sensitive sketch shares that accumulates records under a public spec."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from dpsketch import files
from dpsketch.bounding import CountedUsers, Cut
from dpsketch.core.account import Account
from dpsketch.core.laws import Law
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType
from dpsketch.privacy import Budget
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.specs import UnitSpec, fingerprint_of, refuse_choice, refuse_mismatch, with_key_columns

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Accumulator", "PlainSketch", "agreed_spec", "stated_spec", "stored_type"]

SpecT = TypeVar("SpecT", bound=UnitSpec)
ReleaseT = TypeVar("ReleaseT")


class Accumulator(Partial, Generic[SpecT]):
    """A sensitive sketch: starts empty from a spec, merges, and is written and read inside the trust boundary."""

    _spec: SpecT
    _skipped: int = 0
    _counted: CountedUsers = CountedUsers()
    # What the keys seen so far are. It may have been read off values, so that it is held against later batches and
    # merges, and published nowhere: the spec has a type only if the caller or a column's own type states it.
    _seen: KeyType | None = None
    _cut: Cut = Cut()
    # What the bounds cut, in a word.
    cut_words: ClassVar[str] = "records"
    # Whether something that was drawn before the release came from a seeded source, as in tests.
    _for_tests: bool = False
    # Whether anything was ever added: from then on a key is what it is.
    _begun: bool = False
    # How many changes were begun: that one was refused before it began is told by this, whatever came later.
    _changes: int = 0

    @abstractmethod
    def _start(self, spec: SpecT) -> None:
        """Set every attribute of an empty sketch."""

    def _check_absorb(self, other: Self) -> None:
        """Refuse another sketch of the same spec whose counts cannot be added to these."""

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Add the counts of another sketch that :meth:`_check_absorb` let pass."""

    @classmethod
    def from_spec(cls, spec: SpecT) -> Self:
        """Start an empty sketch of a spec."""
        if not cls.chooses_bounds:
            refuse_choice(spec.unit)
        sketch = cls.__new__(cls)
        sketch._start(spec)
        return sketch

    def _begin_change(self) -> None:
        self._begun = True
        self._changes += 1
        super()._begin_change()

    def _check_columns(self, columns: tuple[str, ...]) -> None:
        """Refuse compound keys of columns other than those counted so far."""
        if self.key_columns == columns:
            return
        if self._begun or self.key_columns:
            named = f"keys of the columns {', '.join(self.key_columns)}" if self.key_columns else "keys of one column"
            raise SpecMismatch(
                f"this sketch counts {named}; these are of {', '.join(columns)}. Count them in a sketch of their own."
            )
        with_key_columns(self._spec, columns)

    def _note_columns(self, columns: tuple[str, ...]) -> None:
        """State in the spec of which columns the keys are that were just added."""
        if self.key_columns != columns:
            self._spec = with_key_columns(self._spec, columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of compound keys, where keys are that."""
        columns: tuple[str, ...] = getattr(self._spec, "key_columns", ())
        return columns

    def empty_like(self) -> Self:
        """Start an empty sketch that will merge with this one."""
        return type(self).from_spec(self._spec)

    @property
    def spec(self) -> SpecT:
        """The public spec."""
        return self._spec

    @property
    def _published(self) -> SpecT:
        """The spec as a release shows it."""
        return self._spec

    @property
    def skipped_nulls(self) -> int:
        """How many records missed a key, a coordinate or a user and were skipped. For the data holder's eyes only."""
        return self._skipped

    @property
    def cut(self) -> Cut:
        """How much the bounds on a contribution cut. Sensitive: for the data holder's eyes only."""
        return self._cut

    def _note_cut(self, cut: Cut) -> None:
        self._cut += cut

    @property
    def _key_type(self) -> KeyType | None:
        """What further keys must be: the type that was stated, else that of the keys seen so far. Sensitive."""
        stated: KeyType | None = getattr(self._spec, "key_type", None)
        return stated or self._seen

    def _note_type(self, key_type: KeyType | None, declared: KeyType | None) -> None:
        """Remember what the keys of a batch are, and state it in the spec if their column's own type does."""
        self._seen = self._seen or key_type
        self._spec = stated_spec(self._spec, declared)

    def merge(self, other: Self, *, disjoint_users: bool = False) -> None:
        """Add another sketch of the same spec; the result is that of one pass over both streams, bit for bit.

        Histograms in bounded memory are the exception: what they hold depends on the order of their records.

        Parameters
        ----------
        other : same kind of sketch
            It stays as it is. One that was merged before is refused, as is a copy of it; where the unit is a user,
            also one that shares a user.
        disjoint_users : bool, optional
            State that the two share no user. No user is then compared, and the release says that it was not checked.
        """
        if type(other) is not type(self):
            raise SpecMismatch(f"cannot merge a {type(self).__name__} with a {type(other).__name__}.")
        spec = agreed_spec(self._spec, other._spec, self._key_type, other._key_type)
        if spec.unit.level == "record" and disjoint_users:
            raise InvalidInput("disjoint_users= goes with unit=dps.per_user(max_keys=…): these sketches count records.")
        counted = self._counted.merged(other._counted, disjoint_users=disjoint_users)
        other._refuse_broken()
        self._check_absorb(other)
        self._accept_partial(other)
        self._begin_change()
        self._partials |= other._partials
        self._counted = counted
        self._absorb(other)
        self._skipped += other._skipped
        self._cut += other._cut
        self._seen = self._seen or other._seen
        self._spec = spec

    def _pay(self, spec: Any, laws: Sequence[Law], asked: Budget, account: Account) -> Permit:
        """Charge a release of this sketch, whose published spec is given, and return the permit to draw its laws."""
        note = f"{self.kind} {fingerprint_of(spec)}"
        return Permit.pay(spec, laws, asked, account, note=note, for_tests=self._for_tests)

    def _completed(self, document: files.Document) -> files.Document:
        document = super()._completed(document)
        header = document.header | {"skipped": self._skipped, "seen": self._seen, "cut": self._cut.to_json()}
        arrays = document.arrays
        if self._spec.unit.level == "user":
            header["users"] = self._counted.to_json()
            arrays = {**arrays, "users": self._counted.to_array()}
        return replace(document, header=header, arrays=arrays)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a sensitive sketch from a decoded file; older ones do not say what keys they have seen."""
        sketch = super().from_document(document)
        sketch._seen = stored_type(document)
        sketch._begun = True  # a file does not say whether it was
        sketch._skipped = int(document.header["skipped"])
        if sketch._spec.unit.level == "user":
            sketch._counted = CountedUsers.from_stored(document.arrays["users"], document.header["users"])
        if "cut" in document.header:
            sketch._cut = Cut.from_json(document.header["cut"])
        return sketch


class PlainSketch(Accumulator[SpecT], Generic[SpecT, ReleaseT]):
    """A sensitive sketch whose release takes a budget, and nothing else."""

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> ReleaseT:
        """Charge the budget, draw the noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ = 0 is pure; with a δ above 0 the noise is the smallest that the kind has for both.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, of everything that is published
        together; the class says by what. Two releases of one sketch compose: each is charged.
        """
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part))

    @abstractmethod
    def _release(self, budget: Budget, account: Account) -> ReleaseT:
        """Calibrate, obtain a permit, draw, and return the release."""


def stored_type(document: files.Document) -> KeyType | None:
    """Return what keys a sensitive sketch has seen; a file may have been written by anyone."""
    seen: KeyType | None = document.header.get("seen")
    if seen not in ("int", "text", None):
        raise FileRefused("the file's type of keys is not one that dpsketch writes.")
    return seen


def stated_spec(spec: Any, declared: KeyType | None) -> Any:
    """Return a spec with the key type that a column declares, where the spec can have one and has none yet."""
    can = any(field.name == "key_type" for field in fields(spec))
    return replace(spec, key_type=declared) if can and declared is not None and spec.key_type is None else spec


def agreed_spec(ours: Any, theirs: Any, our_type: KeyType | None, their_type: KeyType | None) -> Any:
    """Return the spec of a merged sketch: equal but for a key type that only one of the two states.

    ``our_type`` and ``their_type`` are what the keys of the two are, stated or not.
    """
    stated: KeyType | None = getattr(ours, "key_type", None) or getattr(theirs, "key_type", None)
    ours, theirs = stated_spec(ours, stated), stated_spec(theirs, stated)
    refuse_mismatch(ours, theirs)
    if our_type is not None and their_type is not None and our_type != their_type:
        raise SpecMismatch("cannot merge: the key_type of the two differs. Count each in its own sketch.")
    return ours
