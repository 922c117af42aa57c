"""The sensitive sketch that every kind starts from: it takes records, merges, is saved, and is released.

A kind adds its spec (tables, moves, laws) and one step: how bounded keys move its arrays (:meth:`Sketch._spread`, or
:meth:`Sketch._prepare` where a faster kernel adds them). Reading, bounding, counting users once, merging, files and the
charge are the same for all kinds, and are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import Bounded, CountedUsers, Cut, bound, cut_of_records, cut_of_users
from dpsketch.core.account import Account
from dpsketch.core.contributions import Cells, added, checked, hold, sampled
from dpsketch.core.laws import Law
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyBatch, KeyType, fingerprint
from dpsketch.privacy import Budget
from dpsketch.sketches.frames import RecordColumns, read_columns
from dpsketch.sketches.partials import Partial, integer_array
from dpsketch.sketches.specs import DEFAULT_SEED, Spec, fingerprint_of, refuse_choice, refuse_mismatch, with_key_columns
from dpsketch.sketches.weights import checked_total, weighed

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger


SpecT = TypeVar("SpecT", bound=Spec)
ReleaseT = TypeVar("ReleaseT")


class Parsed(NamedTuple):
    """A batch that was read: fingerprints of its keys and, where the kind counts something else, its values by row."""

    keys: KeyBatch
    values: Any = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entries:
    """The keys of a batch that count, after bounding. Sensitive.

    Attributes
    ----------
    prints : numpy.ndarray of uint64
        A fingerprint for each key.
    values : object
        The kind's own form of each key, if it has one.
    units : numpy.ndarray of int64, or int
        The weight of each key in grid units, or that of all keys.
    times : numpy.ndarray of int64, or int
        The number of equal records that each key stands for.
    starts : numpy.ndarray of int64, or None
        User u has the keys from ``starts[u]`` to ``starts[u + 1]``; None if each key is a record.
    rows : numpy.ndarray of int64, or None
        The row of each key in the batch; None if every row counts.
    key_type : {"int", "text"} or None
        The type of the keys. It may come from values, and is sensitive.
    """

    prints: Words
    values: Any
    units: Integers | int
    times: Integers | int
    starts: Integers | None
    rows: Integers | None
    key_type: KeyType | None = None

    @property
    def added(self) -> Integers | int:
        """Return what each key adds, repetitions included; one number if it is the same for all."""
        return self.units if isinstance(self.times, int) and self.times == 1 else self.units * self.times

    @property
    def amounts(self) -> Integers:
        """Return :attr:`added` with one number for each key."""
        return np.ascontiguousarray(np.broadcast_to(np.asarray(self.added, np.int64), self.prints.shape))

    @property
    def weights(self) -> Integers:
        """Return :attr:`units` with one number for each key: the contribution of one record."""
        return np.ascontiguousarray(np.broadcast_to(np.asarray(self.units, np.int64), self.prints.shape))

    def to_check(self) -> Entries:
        """Return the entries of the units that are checked if a faster kernel adds: the first, and the heaviest."""
        places, units, starts = sampled(len(self.prints), self.units, self.starts)
        values = None if self.values is None else self.values.take(places)
        return Entries(self.prints[places], values, units, 1, starts, None)


class Sketch(Partial, Generic[SpecT, ReleaseT]):
    """A sensitive sketch: starts empty from a public spec, takes records, merges, and is released."""

    spec_type: ClassVar[Any]
    release_type: ClassVar[Any]
    # The columns that records may have beside their key or point.
    takes: ClassVar[tuple[str, ...]] = ("users", "weights", "counts")
    # How a frame's column of records is named.
    role: ClassVar[str] = "key"
    # What the bounds cut, in a word.
    cut_words: ClassVar[str] = "records"

    _spec: SpecT
    # The exact integer arrays by name; a release is drawn of them.
    _arrays: dict[str, Any]
    # The sum of everything that was added, in grid units: no counter can be larger.
    _mass: int = 0
    # Users who lost a key because their keys collide.
    _clipped: int = 0
    _skipped: int = 0
    _counted: CountedUsers = CountedUsers()
    # The type of the keys seen so far. It may come from values, so it is compared with later batches and never
    # published: the spec has a type only if the caller or a column's own type states it.
    _seen: KeyType | None = None
    _cut: Cut = Cut()
    # Whether something that was drawn before the release came from a seeded source, as in tests.
    _for_tests: bool = False
    # Whether anything was ever added, after which the key columns are fixed.
    _begun: bool = False
    # The weight of the heaviest record whose contribution was checked, in grid units.
    _heaviest: int = -1
    # The number of changes that were begun; a stream compares it to see whether an update was refused in time.
    _changes: int = 0

    def __init__(self, **fields: Any) -> None:
        self._start(self.spec_type(**fields))

    def _start(self, spec: SpecT) -> None:
        """Set every attribute of an empty sketch."""
        self._spec = spec
        self._arrays = spec.arrays()

    @classmethod
    def from_spec(cls, spec: SpecT) -> Self:
        """Start an empty sketch of a spec."""
        return cls._blank(spec)

    @classmethod
    def _blank(cls, spec: SpecT) -> Self:
        """Return a sketch without content, which a file may fill."""
        if not cls.chooses_bounds:
            refuse_choice(spec.unit)
        sketch = cls.__new__(cls)
        sketch._start(spec)
        return sketch

    def empty_like(self) -> Self:
        """Start an empty sketch that will merge with this one."""
        return type(self).from_spec(self._spec)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._spec.summary}, spec {fingerprint_of(self._spec)}, sensitive>"

    @property
    def spec(self) -> SpecT:
        """The public spec."""
        return self._spec

    @property
    def _published(self) -> SpecT:
        """The spec as a release shows it."""
        return self._spec

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of compound keys; empty if a key is one column."""
        columns: tuple[str, ...] = getattr(self._spec, "key_columns", ())
        return columns

    @property
    def skipped_nulls(self) -> int:
        """Number of records skipped because a key, coordinate, user or weight is missing. Sensitive."""
        return self._skipped

    @property
    def clipped_users(self) -> int:
        """Number of users who lost a key because their keys collide (not because of ``max_keys``). Sensitive."""
        return self._clipped

    @property
    def cut(self) -> Cut:
        """How much the bounds on a contribution cut. Sensitive: for the data holder only."""
        return self._cut

    def update(
        self,
        keys: Any = None,
        *,
        users: Any = None,
        weights: Any = None,
        counts: Any = None,
        disjoint_users: bool = False,
        key: str | Sequence[str] | None = None,
        points: Any = None,
        user: str | None = None,
        weight: str | None = None,
        count: str | None = None,
    ) -> None:
        """Add records, as columns or as a frame with the names of its columns.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column; or a frame
            Integers or text; for densities points: n × dim numbers. Records with a null
            key or coordinate are skipped and counted in :attr:`skipped_nulls`. A frame (pandas, polars, Arrow, a
            DuckDB relation, or an iterator of these) goes with ``key=`` or ``points=``.
        users : column, optional
            The user of each record; required if the unit is a user, refused otherwise. All records of a user must come
            in one update: the sketch remembers the users it counted, and refuses them later. (Histograms and exact
            distinct counts bound users at release, and take them in any order.) Null users are skipped.
        weights : numbers, optional
            The weight of each record, rounded to the grid and clipped to ``unit.max_weight``. Default 1. If the unit
            is a user, the weights of a user's records of one key are added up and clipped together.
        counts : whole numbers, optional
            The number of equal records that each row stands for. Not clipped, because each is a record of its own;
            refused if the unit is a user.
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch that this one is merged with. The sketch
            then compares and remembers no user, every later update and merge must state it too, and the release says
            that it was not checked. Use it for users too many to remember, at eight bytes each.
        key, points, user, weight, count : str, optional
            Column names of a frame: ``update(frame, key="url", user="visitor")``. Several columns as ``key`` are a
            compound key, several as ``points`` the coordinates.
        """
        self._add(
            keys, users=users, weights=weights, counts=counts, disjoint_users=disjoint_users,
            key_columns=self.key_columns, key=key, points=points, user=user, weight=weight, count=count,
        )  # fmt: skip

    def _add(
        self,
        records: Any,
        *,
        users: Any = None,
        weights: Any = None,
        counts: Any = None,
        disjoint_users: bool = False,
        key_columns: tuple[str, ...] = (),
        **names: Any,
    ) -> None:
        """Add records, as part of a change; ``key_columns`` are those of tuples, and sources have joined theirs."""
        if records is None and self.role == "points":
            records = names.pop("points", None)
        key = names.get("key")
        compound = tuple(key) if isinstance(key, list | tuple) else ()
        if compound:
            self._check_columns(compound)
        elif key is not None and self.key_columns:
            listed = ", ".join(map(repr, self.key_columns))
            raise InvalidInput(f"this sketch counts keys of several columns: say key=({listed}).")
        given = {"users": users, "weights": weights, "counts": counts}
        for columns in read_columns(
            records, names, given, kind=type(self).__name__, takes=self.takes, role=self.role,
            key_columns=key_columns,
        ):  # fmt: skip
            self._count(columns, disjoint_users)
            self._skipped += columns.skipped
        if compound and self.key_columns != compound:
            self._spec = with_key_columns(self._spec, compound)

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count one batch. Everything that can be refused is checked before the first change.

        Privacy
        -------
        A user's keys are bounded together, and the user is remembered, before anything is added. The kind checks
        contributions against its moves in :meth:`_prepare`.
        """
        spec, parsed = self._spec, self._parse(columns.records)
        keys, grid, counted = parsed.keys, spec.weight_grid, self._counted
        if self._protects_users(columns.users, disjoint_users, columns.counts):
            n = len(keys.fingerprints) + keys.skipped
            units = grid.one if columns.weights is None else grid.units(columns.weights, n)
            bounds = {"max_keys": spec.unit.max_keys, "max_units": grid.max_units}
            bounded = bound(columns.users, keys, units, **bounds, seed=getattr(spec, "seed", DEFAULT_SEED))
            counted = counted.extended(bounded, disjoint_users=disjoint_users)
            entries, skipped = self._users_entries(parsed, bounded), bounded.skipped
            cut = cut_of_users(grid, bounded, columns.weights)
            cut = replace(cut, left_out=cut.left_out + len(bounded.rows) - len(entries.prints))
        else:
            amounts = weighed(grid, keys, columns.weights, columns.counts)
            rows = None if keys.kept is None else np.flatnonzero(keys.kept)
            values = parsed.values if rows is None or parsed.values is None else parsed.values.take(rows)
            entries, skipped = Entries(keys.fingerprints, values, *amounts, None, rows, keys.key_type), keys.skipped
        mass = checked_total(self._mass, entries.added, 1, len(entries.prints))
        if entries.starts is None:
            cut = cut_of_records(
                grid, len(entries.prints), keys.kept, columns.weights, columns.counts, mass - self._mass
            )
        change = self._prepare(entries)
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._skipped += skipped
        self._note_cut(cut)
        change()
        self._note_type(keys.key_type, keys.declared)

    def _users_entries(self, parsed: Parsed, bounded: Bounded) -> Entries:
        """Return the keys of users that count after bounding."""
        values = None if parsed.values is None else parsed.values.take(bounded.rows)
        of_batch = (bounded.starts, bounded.rows, parsed.keys.key_type)
        return Entries(bounded.fingerprints, values, bounded.units, 1, *of_batch)

    def _parse(self, records: Any) -> Parsed:
        """Read a column of records; ``values`` has an entry for each row and a method ``take``."""
        return Parsed(records if isinstance(records, KeyBatch) else fingerprint(records, self._key_type))

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        """Check the contributions of a batch, and return the function that adds them."""
        spread = self._spread(replace(entries, times=1))
        cells = {table.name: checked(table, spread[table.name]) for table in self._spec.tables()}

        def add() -> None:
            for name, each in cells.items():
                times = entries.times  # of each unit's entries, if records are repeated
                times = times if isinstance(times, int) else np.repeat(times, np.diff(each.starts))
                added(self._arrays[name], replace(each, amounts=each.amounts * times))

        return add

    def _check_sample(self, entries: Entries) -> None:
        """Refuse a batch if one of its first units, or the heaviest, moves a table further than stated.

        Records are checked in the first batch, and in each one with a heavier record than those that were checked.
        """
        units = entries.units
        heaviest = units if isinstance(units, int) else int(np.max(units, initial=-1))
        if not len(entries.prints) or (entries.starts is None and heaviest <= self._heaviest):
            return
        hold(self._spec.tables(), self._spread(entries.to_check()))
        self._heaviest = heaviest

    def _spread(self, entries: Entries) -> Mapping[str, Cells]:
        """Return the contributions of a batch to each table of the kind."""
        raise NotImplementedError

    def _exact(self) -> Any:
        """Return what the laws are drawn of: by default the exact arrays by name. Sensitive."""
        return self._arrays

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
            others = ", ".join(map(str, columns))
            raise SpecMismatch(
                f"this sketch counts {named}; these are of {others}. Count them in a sketch of their own."
            )
        with_key_columns(self._spec, columns)

    def _note_cut(self, cut: Cut) -> None:
        self._cut += cut if "weights" in self.takes else cut.keys_alone

    @property
    def _key_type(self) -> KeyType | None:
        """The type that further keys must have: the stated one, else that of the keys seen so far. Sensitive."""
        stated: KeyType | None = getattr(self._spec, "key_type", None)
        return stated or self._seen

    def _note_type(self, key_type: KeyType | None, declared: KeyType | None) -> None:
        """Remember the type of a batch's keys, and state it in the spec if the column's own type does."""
        self._seen = self._seen or key_type
        self._spec = stated_spec(self._spec, declared)

    def merge(self, other: Self, *, disjoint_users: bool = False) -> None:
        """Add another sketch of the same spec; the result is that of one pass over both streams, bit for bit.

        Histograms in bounded memory are the exception: their content depends on the order of their records.

        Parameters
        ----------
        other : same kind of sketch
            It stays as it is. A sketch that was merged before is refused, and so is a copy of it; if the unit is a
            user, also one that shares a user.
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
        mass = checked_total(self._mass, other._mass, 1, 1)
        self._check_absorb(other)
        self._accept_partial(other)
        self._begin_change()
        self._partials |= other._partials
        self._counted, self._mass = counted, mass
        self._absorb(other)
        self._clipped += other._clipped
        self._skipped += other._skipped
        self._cut += other._cut
        self._seen = self._seen or other._seen
        self._for_tests |= other._for_tests
        self._spec = spec

    def _check_absorb(self, other: Self) -> None:
        """Refuse another sketch of the same spec whose content cannot be added to this one."""

    def _absorb(self, other: Self) -> None:
        """Add the content of another sketch that :meth:`_check_absorb` accepted."""
        for name, array in self._arrays.items():
            array += other._arrays[name]

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
        together; the class names the mechanism. Two releases of one sketch compose: each is charged.
        """
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part))

    def _release(self, budget: Budget, account: Account, **options: Any) -> ReleaseT:
        """Pay for the laws of the spec, draw them, and return the release; ``options`` are those of ``spec.laws``."""
        spec, exact = self._published, self._exact()  # before the charge: a failure here costs nothing
        permit = self._pay(spec, spec.laws(budget, **options), budget, account)
        release: ReleaseT = self.release_type(spec, permit.draw_all(exact, caveat=self._counted.caveat))
        return release

    def _pay(self, spec: Any, laws: Sequence[Law], asked: Budget, account: Account) -> Permit:
        """Charge a release of this sketch, and return the permit to draw its laws."""
        note = f"{self.kind} {fingerprint_of(spec)}"
        return Permit.pay(spec, laws, asked, account, note=note, for_tests=self._for_tests)

    def _to_document(self) -> files.Document:
        header: dict[str, Any] = {
            "spec": self._spec.to_json(),
            "mass": str(self._mass),
            "clipped": self._clipped,
            "skipped": self._skipped,
            "seen": self._seen,
            "cut": self._cut.to_json(),
            **self._header(),
        }
        arrays = dict(self._stored_arrays())
        if self._spec.unit.level == "user":
            header["users"] = self._counted.to_json()
            arrays["users"] = self._counted.to_array()
        return files.Document(self.kind, True, header, arrays)

    def _header(self) -> dict[str, Any]:
        """Return what a file holds beside the arrays, JSON-ready."""
        return {}

    def _stored_arrays(self) -> Mapping[str, files.Array]:
        """Return the arrays that a file holds."""
        return self._arrays

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header = document.header
        sketch = cls._blank(cls.spec_type.from_json(header["spec"]))
        sketch._mass, sketch._clipped, sketch._skipped = (int(header[name]) for name in ("mass", "clipped", "skipped"))
        sketch._seen, sketch._begun = stored_type(document), True
        sketch._cut = Cut.from_json(header["cut"])
        if sketch._spec.unit.level == "user":
            sketch._counted = CountedUsers.from_stored(document.arrays["users"], header["users"])
        sketch._restore(document)
        return sketch

    def _restore(self, document: files.Document) -> None:
        """Take the content from a file; anyone may have written it."""
        for name, array in self._arrays.items():
            array[:] = integer_array(document, name, array.shape, array.dtype)


def stored_type(document: files.Document) -> KeyType | None:
    """Return the type of keys that a sensitive sketch has seen; anyone may have written the file."""
    seen: KeyType | None = document.header.get("seen")
    if seen not in ("int", "text", None):
        raise FileRefused("the file's type of keys is not one that dpsketch writes.")
    return seen


def stated_spec(spec: Any, declared: KeyType | None) -> Any:
    """Return a spec with the key type that a column declares, if the spec can have one and has none yet."""
    can = any(field.name == "key_type" for field in fields(spec))
    return replace(spec, key_type=declared) if can and declared is not None and spec.key_type is None else spec


def agreed_spec(ours: Any, theirs: Any, our_type: KeyType | None, their_type: KeyType | None) -> Any:
    """Return the spec of a merged sketch: the two are equal but for a key type that only one of them states.

    ``our_type`` and ``their_type`` are the types of the two sketches' keys, stated or not.
    """
    stated: KeyType | None = getattr(ours, "key_type", None) or getattr(theirs, "key_type", None)
    ours, theirs = stated_spec(ours, stated), stated_spec(theirs, stated)
    if types := getattr(ours, "types", ()) or getattr(theirs, "types", ()):
        ours, theirs = (spec if spec.types else replace(spec, types=types) for spec in (ours, theirs))
    refuse_mismatch(ours, theirs)
    if our_type is not None and their_type is not None and our_type != their_type:
        raise SpecMismatch("cannot merge: the key_type of the two differs. Count each in its own sketch.")
    return ours
