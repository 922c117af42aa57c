"""The sensitive histogram: exact counts by key come in, names with private counts go out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch.bounding import CountedUsers, Cut, cut_of_records
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import TEXT_FINGERPRINTS, KeyType, typed_column
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import Unit
from dpsketch.sketches.accumulating import Accumulator
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.histogram.choosing import Choosing
from dpsketch.sketches.histogram.content import Content, Pairs, Records
from dpsketch.sketches.histogram.entries import Found
from dpsketch.sketches.histogram.keytable import KeyTable
from dpsketch.sketches.histogram.mechanism import ENTRIES, TOTAL, Form
from dpsketch.sketches.histogram.named import named, names_of
from dpsketch.sketches.histogram.pairs import PairTable, check_room
from dpsketch.sketches.histogram.private import PrivateHistogram
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.votes import VoteHistogram
from dpsketch.sketches.histogram.votes.spec import DEFAULT_SEED
from dpsketch.sketches.permit import obtain
from dpsketch.sketches.specs import check_key_type, fingerprint_of
from dpsketch.sketches.weights import checked_total, whole_counts

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Histogram"]

Integers = npt.NDArray[np.int64]


class Histogram(Accumulator[HistogramSpec]):
    """The sensitive histogram: counts every key exactly, merges, and is released once its budget is charged.

    Use it wherever the keys, or the pairs of users and keys, can be held: no sketch answers better. Its releases hold
    the *names* of keys, of those that the mechanism lets pass or of a public list.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``. Users may come in any order, over any number of updates
        and partials: they are bounded when the histogram is released.
    grid : float, optional
        The step to which weights are rounded.
    key_type : {"int", "text"}, optional
        What the keys are. By default what a column's own type says.
    max_counters : int, optional
        Bounds the memory: keys vote in so many buckets, and what is started is a
        :class:`~dpsketch.VoteHistogram`, whose releases are asked alike.
    seed : int, optional
        Goes with ``max_counters``: the seed of the hash that gives keys their buckets.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.Histogram(unit=dps.per_record())
    >>> histogram.update(["tea"] * 900 + ["coffee"] * 700 + ["a rare one"])
    >>> private = histogram.release(epsilon=1.0, delta=1e-6)
    >>> private.keys
    ['coffee', 'tea']
    >>> listed = histogram.release(epsilon=1.0, delta=0, keys=["tea", "milk"])
    >>> bool(abs(listed.estimate(["tea"]).value[0] - 900) < 30)
    True
    """

    kind: ClassVar[str] = "histogram"
    chooses_bounds: ClassVar[bool] = True

    def __new__(
        cls,
        *,
        unit: Unit | None = None,
        grid: float = 1,
        key_type: KeyType | None = None,
        max_counters: int | None = None,
        seed: int | None = None,
    ) -> Any:
        """Start a histogram, or one of another class where its memory is to be bounded."""
        if max_counters is None:
            return super().__new__(cls)
        if grid != 1:
            raise InvalidInput("with max_counters= a key counts once for a record or user: leave grid= out.")
        if unit is None:
            raise InvalidInput("say unit=, whose presence releases hide: dps.per_record() or dps.per_user(max_keys=…).")
        seed = DEFAULT_SEED if seed is None else seed
        return VoteHistogram(unit=unit, max_counters=max_counters, seed=seed, key_type=key_type)

    def __init__(
        self,
        *,
        unit: Unit,
        grid: float = 1,
        key_type: KeyType | None = None,
        max_counters: None = None,
        seed: int | None = None,
    ) -> None:
        if seed is not None:
            raise InvalidInput("seed= goes with max_counters=: without it there is no hash that it would choose.")
        self._start(HistogramSpec(unit, grid, key_type))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: HistogramSpec) -> None:
        self._spec = spec
        self._keys = KeyTable(spec.key_type)
        self._users = KeyTable()
        self._pairs = PairTable(spec.weight_grid.max_units)
        self._mass = 0
        self._skipped = 0
        self._counted = CountedUsers()  # stays empty: users are bounded when the histogram is released
        # Whether a partial with another secret was merged into this one, whatever it held.
        self._apart = False
        # Whether a secret came from a seeded source.
        self._for_tests = noise_is_for_tests()

    def __repr__(self) -> str:
        return f"<Histogram by {self._spec.unit.level}, spec {fingerprint_of(self._spec)}, sensitive>"

    def empty_like(self) -> Self:
        """Start an empty histogram that will merge with this one, and shares its secret hash."""
        sketch = super().empty_like()
        sketch._keys = KeyTable(self._spec.key_type, self._keys.secret)
        sketch._users = KeyTable(None, self._users.secret)
        return sketch

    @takes_frames
    def update(
        self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None, disjoint_users: bool = False
    ) -> None:
        """Add records.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor", weight="n")``; ``count=`` names what ``counts=`` holds.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Integers or text. Null keys are skipped and counted in :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. Null users are skipped like
            null keys.
        weights : numbers, optional
            A record's weight, rounded to the grid and clipped to ``unit.max_weight``. Default 1. Where the unit is a
            user, the weights of a user's records of one key are added up and clipped together.
        counts : whole numbers, optional
            So many equal records at once. Not clipped, since each is a record of its own; refused where the unit is a
            user.
        disjoint_users : bool, optional
            Makes no difference here, where users may come again.
        """
        column, found, declared = typed_column(keys, self._key_type)
        if column.type == TEXT_FINGERPRINTS:
            raise InvalidInput("a histogram publishes names of keys, and these are their fingerprints: give the keys.")
        if self._protects_users(users, disjoint_users, counts):
            self._add_users(column, users, weights)
        else:
            self._add_records(column, weights, counts)
        self._note_type(found, declared)

    def _add_records(self, column: pa.ChunkedArray, weights: Any, counts: Any) -> None:
        n, grid = len(column), self._spec.weight_grid
        units: Integers | int = grid.one if weights is None else grid.units(weights, n)
        multiples: Integers | int = 1 if counts is None else whole_counts(counts, n)
        mass = checked_total(self._mass, units, multiples, n)
        each = units * multiples
        amounts = None if isinstance(each, int) and each == 1 else np.ascontiguousarray(np.broadcast_to(each, (n,)))
        kept = column.is_valid().to_numpy() if column.null_count else None
        self._begin_change()
        self._mass = mass
        _, skipped = self._keys.count(column, amounts)
        self._skipped += skipped
        self._cut += cut_of_records(grid, n - skipped, kept, weights, counts)

    def _add_users(self, column: pa.ChunkedArray, users: Any, weights: Any) -> None:
        n, grid = len(column), self._spec.weight_grid
        owners, _, _ = typed_column(users, self._users.key_type)
        if len(owners) != n:
            raise InvalidInput("users must have one entry a key; this column has another length.")
        if owners.type == TEXT_FINGERPRINTS:
            raise InvalidInput("a histogram tells users apart exactly, and these are fingerprints: give the users.")
        units = np.full(n, grid.one, np.int64) if weights is None else grid.units(weights, n)
        mass = checked_total(self._mass, units, 1, n)
        check_room(len(self._users) + n, len(self._keys) + n)
        there = np.flatnonzero(_valid(column) & _valid(owners) & (units > 0))
        skipped = n - int(np.count_nonzero(_valid(column) & _valid(owners)))
        if len(there) < n:
            column, owners, units = _taken(column, there), _taken(owners, there), units[there]
        self._begin_change()
        self._mass = mass
        self._pairs.add(self._users.numbers(owners, verified=True), self._keys.numbers(column), units)
        self._skipped += skipped

    @property
    def cut(self) -> Cut:
        """How much the bounds on a contribution cut. Sensitive: for the data holder's eyes only."""
        with self._turn:
            if self._spec.unit.level == "record":
                return self._cut
            if self._spec.unit.chosen:  # nothing is cut before a release chooses
                return Cut(len(self._pairs.arrays()[0]))
            users, _, _ = self._pairs.arrays()
        held = np.bincount(users) if len(users) else np.zeros(0, np.int64)
        over = int(np.maximum(held - self._spec.unit.max_keys, 0).sum())
        return Cut(len(users), over)

    def _absorb(self, other: Self) -> None:
        self._for_tests |= other._for_tests
        self._apart |= other._apart or not np.array_equal(self._keys.secret, other._keys.secret)
        self._mass += other._mass
        keys = self._keys.absorb(other._keys)
        if self._spec.unit.level == "user":
            owners = self._users.absorb(other._users, verified=True)
            users, held, units = other._pairs.arrays()
            self._pairs.add(owners[users], keys[held], units)

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._mass, other._mass, 1, 1)
        if None is not self._users.key_type != other._users.key_type is not None:
            raise SpecMismatch("cannot merge: the users of one are integers and those of the other text. Convert them.")
        check_room(len(self._users) + len(other._users), len(self._keys) + len(other._keys))

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        keys: Any = None,
        unknown: bool | None = None,
        others: bool = False,
        names_only: bool = False,
        form: Form | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateHistogram:
        """Charge the budget, draw the noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. Names that nobody listed beforehand need δ > 0.
        rho : float
            A zero-concentrated budget instead; goes with ``keys=``.
        keys : list, NumPy, Arrow, pandas or polars column, optional
            A public list: every key of it is answered, also if nobody has it. It must not come from the data.
        unknown : bool, optional
            Whether keys that are on no list may be published too, if they pass. By default: without ``keys=``.
        others : bool
            Whether to count "all other keys" as well. Free beside ``keys=``; else a tenth of ε goes to it.
        names_only : bool
            Spend all of the budget on finding names, where users have many keys: no counts are published then.
        form : {"truncated", "laplace", "gaussian", "weighted", "rounds"}, optional
            The mechanism. By default the best for the unit and budget, by public facts alone.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation; ρ where it was asked for. The exact
        joint δ of noise and threshold is paid (see :mod:`~dpsketch.sketches.histogram.thresholds`), and the chance
        that two texts meet in the secret hash.

        Accuracy
        --------
        Counts carry the noise that the mechanism's words state, and nothing else: no key collides with another.
        """
        spec = self._spec
        listed, places = self._listed(keys)
        mechanism = spec.mechanism(
            epsilon=epsilon, delta=delta, rho=rho, keys=keys, unknown=unknown, others=others, names_only=names_only,
            form=form, hashed=self._apart,
        )  # fmt: skip
        permit = obtain(
            mechanism.calibration,
            spec.unit,
            self._account(ledger, dataset, part),
            note=f"histogram {fingerprint_of(spec)}",
            for_tests=self._for_tests,
        )
        order, content = self._content()
        choosing = Choosing(permit, mechanism, content)
        choose = None if mechanism.bound is None else choosing.choose
        found: Found = permit.draw(ENTRIES, content, _ranks(order, places), choose)
        rest = found.others
        if mechanism.total is not None:
            sums, _ = content.sums(np.ones(content.size, np.bool_), spec.unit.max_keys)
            rest = int(permit.add_noise(np.array([sums.sum()], np.int64), TOTAL)[0])
        stated = permit.guarantee()
        names = named(self._keys.names(order[found.places]), spec)
        return PrivateHistogram.of(spec, choosing.mechanism, listed, names, found, rest, stated, permit.charge)

    def _listed(self, keys: Any) -> tuple[list[Any], Integers]:
        """Return the keys of a public list, each once, and their numbers here; −1 for those that nobody has.

        A list of another type than the keys that came is one that nobody has any of, unless the type was stated.
        """
        if keys is None:
            return [], np.empty(0, np.int64)
        names = list(dict.fromkeys(names_of(keys, self._spec)))
        column, found, _ = typed_column([str(name) for name in names] if self.key_columns else names)
        places = np.full(len(names), -1, np.int64)
        if names and self._keys.key_type in (None, found):
            # Should two names meet in the hash, one of them gets what both have, so that a record counts once.
            numbers, firsts = np.unique(self._keys.find(column), return_index=True)
            places[firsts] = numbers
        return names, places

    def _content(self) -> tuple[Integers, Content]:
        """Return the numbers of all keys in the order of their names, and the content in that order."""
        order = self._keys.order()
        if self._spec.unit.level == "record":
            return order, Records(self._keys.units[order])
        users, keys, units = self._pairs.renumbered(_inverse(self._users.order()), _inverse(order))
        return order, Pairs(len(order), users, keys, None if self._spec.weight_grid.max_units == 1 else units)

    def _to_document(self) -> files.Document:
        header: dict[str, Any] = {"spec": self._spec.to_json(), "apart": self._apart, "for_tests": self._for_tests}
        order = self._keys.order()
        arrays: dict[str, files.Array] = {f"key_{name}": array for name, array in self._keys.to_arrays(order).items()}
        header["key_type"] = self._keys.key_type if len(order) else None
        if self._spec.unit.level == "user":
            _, content = self._content()
            assert isinstance(content, Pairs)
            users = self._users.order()
            header["user_type"] = self._users.key_type if len(users) else None
            arrays |= {f"user_{name}": array for name, array in self._users.to_arrays(users).items()}
            arrays |= {"pair_users": content.users, "pair_keys": content.keys}
            if content.units is not None:
                arrays["pair_units"] = content.units
        return files.Document("histogram", True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header, arrays = document.header, document.arrays
        sketch = cls.from_spec(HistogramSpec.from_json(header["spec"]))
        sketch._keys = KeyTable.from_arrays(_type(header["key_type"]), _prefixed(arrays, "key_"))
        if sketch._keys.key_type not in (None, sketch._spec.key_type or sketch._keys.key_type):
            raise FileRefused("the file's keys are of another type than its spec states.")
        sketch._mass = int(sketch._keys.units.sum())
        sketch._for_tests = _flag(header["for_tests"])
        sketch._apart = _flag(header["apart"])
        if sketch._spec.unit.level == "user":
            sketch._users = KeyTable.from_arrays(_type(header["user_type"]), _prefixed(arrays, "user_"))
            users, keys, units = (arrays.get(f"pair_{name}") for name in ("users", "keys", "units"))
            most = sketch._spec.weight_grid.max_units
            units = units if most > 1 or not isinstance(users, np.ndarray) else np.ones(users.shape, np.int64)
            _check_pairs(users, keys, units, len(sketch._users), len(sketch._keys), most)
            sketch._mass = checked_total(0, np.asarray(units), 1, len(np.asarray(units)))
            sketch._pairs.add(np.asarray(users), np.asarray(keys), np.asarray(units))
        return sketch


def _valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy()
    return valid


def _taken(column: pa.ChunkedArray, rows: Integers) -> pa.ChunkedArray:
    # Arrow takes no rows of views, and of texts with short offsets no more than 2 GiB.
    large = pa.large_string() if column.type in (pa.string(), pa.string_view()) else pa.large_binary()
    short = (pa.string(), pa.binary(), pa.string_view(), pa.binary_view())
    return (column.cast(large) if column.type in short else column).take(rows)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise FileRefused("the file's header is not one that dpsketch writes.")
    return value


def _inverse(order: Integers) -> Integers:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _ranks(order: Integers, numbers: Integers) -> Integers:
    """Return the places in an order of keys given by number; −1 stays."""
    found = np.full(len(numbers), -1, np.int64)
    there = numbers >= 0
    found[there] = _inverse(order)[numbers[there]]
    return found


def _type(value: Any) -> KeyType | None:
    check_key_type(value)
    found: KeyType | None = value
    return found


def _prefixed(arrays: dict[str, files.Array], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _check_pairs(users: Any, keys: Any, units: Any, people: int, names: int, most: int) -> None:
    """Refuse pairs that no histogram writes; a file may have been written by anyone."""
    given = (users, keys, units)
    good = all(isinstance(each, np.ndarray) and each.ndim == 1 and each.dtype.kind in "iu" for each in given)
    good = good and len(users) == len(keys) == len(units)
    if good and len(users):
        bounds = ((users, 0, people - 1), (keys, 0, names - 1), (units, 1, most))
        good = all(low <= int(each.min()) and int(each.max()) <= high for each, low, high in bounds)
    if not good:
        raise FileRefused("the file's pairs of users and keys are not ones that dpsketch writes.")
