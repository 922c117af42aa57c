"""Count keys in bounded memory: each bucket holds one key, and the other keys of the bucket vote against it.

A bucket has its key's exact bytes, a majority count c and a load n.

*What a record changes.* Take a bucket's state as c times its key; c = 0 has no key. Two states that differ by one
record are c and c ± 1 times one key. That holds where the record is counted, and it stays so: a further record of that
key adds one to both, another takes one off both, or, where one of the two is at 0, makes the states 0 and 1 times a
key. Votes of another table for a bucket are further records. So all that one record changes is one bucket: its n by 1,
its c by 1, and its key through c = 0 only. Of u = (n + c)/2 and l = (n − c)/2 exactly one moves, by 1.

*What it says.* Records of different keys are paired off, and c are left, all of the bucket's key. So l is the number of
pairs: the bucket's key has f records with c ≤ f ≤ u, and any other key of the bucket has at most l.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch._compiled import votes as kernels
from dpsketch.arrays import Floats, Integers, Words, read_only
from dpsketch.bounding import Bounded
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Part, Receipt, promise
from dpsketch.core.move import Move, Table
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.laws.votes import BUCKETS, MOST_KEYS, VoteForm, Votes
from dpsketch.noise import DiscreteLaplace
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Budget, Unit
from dpsketch.release import SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.histogram.calibration import votes_for
from dpsketch.sketches.histogram.intervals import either_side, highest, least_listed, log_reaching, lowest
from dpsketch.sketches.histogram.named import NamedCounts, named_column, places_of, read_names
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec, fingerprint_of, hold_common
from dpsketch.sketches.weights import COUNTER_LIMIT, checked_total
from dpsketch.truncated import Law

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger


# Two counters, a fingerprint, where the name lies, and a name of usual length.
_BYTES_A_BUCKET = 64


@stored
@dataclass(frozen=True, slots=True)
class VoteHistogramSpec(Spec):
    """All that two histograms in bounded memory must share to merge. Public.

    Attributes
    ----------
    max_counters : int
        How many buckets there are; each holds one key.
    unit : Unit
        Whose presence a release hides. A key counts once for a record, and once for a user.
    seed : int
        Of the hash that gives each key its bucket, and of the order in which a user's keys are kept; it protects
        nothing and is published.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it.
    """

    weighs: ClassVar[bool] = False

    max_counters: int
    unit: Unit
    seed: int = DEFAULT_SEED
    key_type: KeyType | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "max_counters", low=1, high=2**24)
        hold_common(self)
        if self.unit.max_weight != 1:
            raise InvalidInput(
                "with max_counters= a key counts once for a record or user, and max_weight is 1. For weights use a "
                "Histogram or a CountSketch."
            )
        if self.unit.max_keys > MOST_KEYS:
            raise InvalidInput(f"with max_counters= at most {MOST_KEYS} keys of a user count: lower max_keys.")

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"of {self.max_counters} buckets"

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def memory(self) -> int:
        """About so many bytes, for names of 32. Where the unit is a user, eight more for each user counted."""
        return _BYTES_A_BUCKET * self.max_counters

    def tables(self) -> tuple[Table, ...]:
        """Return the majority counts: a unit votes once in each of ``max_keys`` buckets, for a key or against it."""
        return (Table(BUCKETS, (self.max_counters,), Move.each(self.unit.max_keys, 1, signed=True)),)

    def laws(self, budget: Budget, form: VoteForm | None = None) -> tuple[Votes]:
        """Return how the buckets are published; by default both loads for records, and majorities for users.

        Counts by both loads are near the true ones. But ε is divided by the number of a user's keys there, while
        Gaussian noise on majorities grows with the root of that number.
        """
        chosen = form or ("loads" if self.unit.level == "record" else None)
        return (votes_for(budget, *self.tables(), self.unit.neighbours, chosen),)

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        form: VoteForm | None = None,
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far off a listed value is by noise."""
        budget = Budget(epsilon, delta, rho)
        (law,) = self.laws(budget, form)
        error = math.sqrt(law.noise.variance)
        return ReleasePreview(promise(self, Receipt(budget, (law,))), error, error)


def between_loads(
    upper: Integers, lower: Integers, law: DiscreteLaplace, cutoff: int, tail: float
) -> tuple[Integers, Integers]:
    """Return an interval for each key's true count, from the noisy u and l of its bucket, given that it was listed.

    Parameters
    ----------
    upper, lower : array of int
        Noisy u and l, which differ by at least ``cutoff``.
    law : DiscreteLaplace
        The noise of each.
    cutoff : int
        The least noisy u − l that is listed.
    tail : float
        How often each of the two limits may miss.

    Accuracy
    --------
    The true count f lies in its interval with probability at least 1 − 2·tail, given that the key is listed, because
    c ≤ f ≤ u. The lower limit is one of c = u − l: its noise is the difference of two, a log-concave law, and what is
    listed is what reaches the cutoff. The upper limit is one of u. Given the noisy l, which is independent of u's
    noise, what is listed is what reaches the cutoff and that l.
    """
    low = lowest(upper - lower, partial(log_difference_reaching, law), cutoff, tail)
    return low, highest(upper, law, cutoff + lower, tail)


def above_majority(majority: Integers, law: Law, cutoff: int, tail: float) -> tuple[Integers, Floats]:
    """Return a one-sided interval for each key's true count, from the noisy c of its bucket, given that it was listed.

    Parameters
    ----------
    majority : array of int
        Noisy c, all at least ``cutoff``.
    law : Law
        The noise of c.
    cutoff : int
        The least noisy c that is listed.
    tail : float
        How often the lower limit may miss.

    Accuracy
    --------
    The true count f lies in its interval with probability at least 1 − tail, given that the key is listed. The lower
    limit exceeds c with probability at most ``tail`` (:func:`~dpsketch.sketches.histogram.intervals.lowest`), and
    c ≤ f. There is no upper limit: f may be as large as c + l, where l counts the pairs of the bucket, and a release of
    majorities alone depends on l in no way. Two streams with one c and any two l give the same release.
    """
    low = lowest(majority, partial(log_reaching, law), cutoff, tail, least_listed(law, cutoff))
    return low, np.full(len(majority), np.inf)


def log_difference_reaching(law: DiscreteLaplace, values: npt.ArrayLike) -> Floats:
    """Return ln P(Z − Z' ≥ z) for whole numbers z and two independent draws.

    P(Z − Z' ≥ t) = (1−a)·a^t·(t + (1+a²)/(1−a²) + a/(1−a))/(1+a)² for t ≥ 1, with a = e^(−rate).

    Examples
    --------
    >>> log_difference_reaching(DiscreteLaplace(1.0, 1), [0, 1]).round(4).tolist()
    [-0.446, -1.0222]
    """
    rate = law.epsilon / law.sensitivity
    a, gap = math.exp(-rate), -math.expm1(-rate)
    more = (1 + a * a) / -math.expm1(-2 * rate) + a / gap
    scale = math.log(gap) - 2 * math.log1p(a)
    return either_side(np.asarray(values, np.float64), lambda t: scale - rate * t + np.log(t + more))


@dataclass(frozen=True, slots=True, eq=False)
class PrivateVoteHistogram(NamedCounts, SketchRelease):
    """A released histogram of bounded memory.

    Every key here won the vote of its bucket. With f for the key's true count, c for the votes it won by and u for half
    of c and of the bucket's load together, c ≤ f ≤ u always, and f = u for a key that held its bucket throughout.

    *Accuracy.* Every interval covers f, also for keys that were listed because their noise carried them. Where both
    loads were published, a value is the noisy u. Where majorities alone were (``form`` "truncated" or "gaussian"), a
    value is the noisy c, and its interval has no upper limit: such a release says nothing of how much the bucket's
    other keys took off.

    Attributes
    ----------
    found : list
        The keys that were found, in their own order.
    """

    kind: ClassVar[str] = "histogram-votes"
    spec_type: ClassVar[Any] = VoteHistogramSpec

    spec: VoteHistogramSpec
    found: list[Any] = field(init=False, repr=False)
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = read_names(self._part.arrays["found"], self.spec)
        object.__setattr__(self, "found", found)
        object.__setattr__(self, "_places", places_of(found))

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {BUCKETS} and isinstance(parts[BUCKETS].law, Votes)

    @property
    def _part(self) -> Part:
        return self.drawn.parts[BUCKETS]

    @property
    def mechanism(self) -> Votes:
        """How the buckets were published: noise and cutoff."""
        return cast("Votes", self._part.law)

    @property
    def values(self) -> Integers:
        """The keys' noisy u, or their noisy majorities if these alone were published."""
        return cast("Integers", self._part.arrays["values"])

    @property
    def pairs(self) -> Integers:
        """The keys' noisy l, the number of pairs of their bucket; empty if majorities alone were published."""
        none = np.empty(0, np.int64)
        return cast("Integers", self._part.arrays.get("pairs", none))

    def __repr__(self) -> str:
        return f"<PrivateVoteHistogram of {len(self.found):,} keys, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """The keys that were found, in an order that says nothing."""
        return list(self.found)

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        counted = self.guarantee.counts + (", one in each bucket" if self.spec.unit.level == "user" else "")
        if self.mechanism.has_loads:
            return f"{counted}; the value is an upper bound's estimate"
        return f"{counted}; the value is a lower bound's estimate, and there is no upper limit"

    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        if np.any(places < 0):
            raise InvalidInput(
                "a key that was asked for was not found, and a bucket says nothing of keys that lost its vote: ask for "
                "those of `keys`."
            )
        values, law = self.values[places], self.mechanism
        high: Integers | Floats
        if isinstance(law.noise, DiscreteLaplace):
            low, high = between_loads(values, self.pairs[places], law.noise, law.cutoff, tail / 2)
        else:
            low, high = above_majority(values, law.noise, law.cutoff, tail)
        # The noise of the bucket's two parts can put the limits on one side of the value.
        low, high = np.clip(low, 1, values), np.maximum(high, values)
        value, least, most = (each.astype(np.float64) for each in (values, low, high))
        return Estimates(asked, value, least, most, confidence, self.counts)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        law = self.mechanism
        return {
            "keys": len(self.found),
            "form": law.form,
            "threshold": law.cutoff,
            "noise_scale": math.sqrt(law.noise.variance),
        }


Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyBytes:
    """Keys by their bytes: row r has ``data[edges[r]:edges[r + 1]]``. Sensitive."""

    data: Bytes
    edges: Integers

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Self:
        """Return the bytes of a column of keys: those of texts, and the eight of integers; what nulls have is open."""
        if pa.types.is_dictionary(column.type):
            kind = column.type.value_type
            if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
                kind = pa.large_binary()  # Arrow takes no rows of views, and of texts with short offsets only 2 GiB
            chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
            column = pa.chunked_array(chunks, kind)
        if pa.types.is_null(column.type):
            return cls(read_only(np.empty(0, np.uint8)), np.zeros(len(column) + 1, np.int64))
        if pa.types.is_integer(column.type):
            patterns = column.fill_null(0).to_numpy()
            words = np.ascontiguousarray(patterns if patterns.dtype == np.uint64 else patterns.astype(np.int64))
            return cls(read_only(words.view(np.uint8)), 8 * np.arange(len(words) + 1))
        array = column.cast(pa.large_binary()).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], pa.large_binary())
        _, ends, data = array.buffers()
        found = np.frombuffer(data if data else b"", np.uint8)
        edges = np.frombuffer(ends, np.int64, len(array) + 1, 8 * array.offset) if len(array) else np.zeros(1, np.int64)
        return cls(read_only(found), np.array(edges))


class VoteTable:
    """The state of all buckets. Sensitive.

    Parameters
    ----------
    buckets : int
        How many.

    Attributes
    ----------
    votes, loads : numpy.ndarray of int64
        The majority count c and the load n of each bucket.
    """

    def __init__(self, buckets: int) -> None:
        self.votes: Integers = np.zeros(buckets, np.int64)
        self.loads: Integers = np.zeros(buckets, np.int64)
        self._prints: Words = np.zeros(buckets, np.uint64)
        self._names: Bytes = np.empty(0, np.uint8)
        self._edges: Integers = np.zeros(buckets + 1, np.int64)

    def cast(self, buckets: Integers, prints: Words, times: Integers, rows: Integers, keys: KeyBytes) -> None:
        """Count records in turn: each is so many ``times`` one of the rows of ``keys``, in its bucket."""
        holders = np.full(len(self.votes), kernels.STORED, np.int64)
        names = read_only(self._names)
        kernels.cast_votes(
            buckets, prints, times, rows, keys.data, keys.edges, self.votes, self.loads, self._prints, names,
            self._edges, holders,
        )  # fmt: skip
        stored = holders == kernels.STORED
        lengths = np.where(stored, np.diff(self._edges), 0)
        lengths[~stored] = np.diff(keys.edges)[holders[~stored]]
        lengths[self.votes == 0] = 0
        self._prints[self.votes == 0] = 0
        edges = np.concatenate([[0], np.cumsum(lengths)])
        found = np.empty(int(edges[-1]), np.uint8)
        kernels.copy_names(holders, keys.data, keys.edges, names, self._edges, found, edges)
        self._names, self._edges = found, edges

    def absorb(self, other: VoteTable) -> None:
        """Add another table: its majority counts are votes for its keys, and its pairs are load."""
        held = np.flatnonzero(other.votes)
        keys = KeyBytes(read_only(other._names), other._edges)
        self.cast(held, other._prints[held], other.votes[held], held, keys)
        self.loads += other.loads - other.votes

    def names(self, buckets: Integers, key_type: KeyType | None) -> list[Any]:
        """Return the keys of buckets that have one: integers with their sign, or the bytes of texts."""
        data = self._names.tobytes()
        found = [data[self._edges[b] : self._edges[b + 1]] for b in buckets.tolist()]
        return [int.from_bytes(each, "little", signed=True) for each in found] if key_type == "int" else list(found)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all there is to keep; what a bucket without a key held before is not in it."""
        return {"votes": self.votes, "loads": self.loads, "names": self._names, "edges": self._edges}

    @classmethod
    def from_arrays(cls, buckets: int, row_key: np.uint64, key_type: KeyType | None, arrays: Mapping[str, Any]) -> Self:
        """Return the table that :meth:`to_arrays` took apart; a file may have been written by anyone."""
        table = cls(buckets)
        kinds = {"votes": np.int64, "loads": np.int64, "names": np.uint8, "edges": np.int64}
        sizes = {"votes": buckets, "loads": buckets, "edges": buckets + 1}
        given = {name: arrays.get(name) for name in kinds}
        for name, array in given.items():
            if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != kinds[name]:
                raise _not_ours()
            if len(array) != sizes.get(name, len(array)):
                raise _not_ours()
        table.votes, table.loads, table._names, table._edges = (np.array(array) for array in given.values())
        votes, loads, lengths = table.votes, table.loads, np.diff(table._edges)
        good = bool(np.all((votes >= 0) & (votes <= loads) & (loads <= COUNTER_LIMIT) & ((loads - votes) % 2 == 0)))
        good = good and bool(np.all(np.where(votes > 0, lengths >= 0, lengths == 0)))
        good = good and table._edges[0] == 0 and table._edges[-1] == len(table._names)
        held = np.flatnonzero(votes)
        if key_type == "int":
            good = good and bool(np.all(lengths[held] == 8))
        if not good or (len(held) and key_type is None):
            raise _not_ours()
        if len(held):
            names = table.names(held, key_type)
            prints = fingerprint(pa.array(names, pa.int64() if key_type == "int" else pa.large_binary())).fingerprints
            if not np.array_equal(buckets_of(prints, row_key, buckets), held):
                raise _not_ours()
            table._prints[held] = prints
        return table


def buckets_of(prints: Words, row_key: np.uint64, buckets: int) -> Integers:
    """Return the bucket of each key, by its fingerprint."""
    found = np.empty(len(prints), np.int64)
    kernels.find_buckets(prints, row_key, buckets, found)
    return found


def _not_ours() -> FileRefused:
    return FileRefused("the file's buckets are not ones that dpsketch writes.")


class VoteHistogram(Sketch[VoteHistogramSpec, PrivateVoteHistogram]):
    """The sensitive histogram in bounded memory: at most ``max_counters`` keys, each with the records it won by.

    Every key has a bucket, by a public hash. In a bucket, records
    of different keys cancel out, and what is left is of its majority key. Use it where the distinct keys can neither be
    held nor spilled; make it five to ten times as large as the list of keys that is wanted.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, with weights of 1.
    max_counters : int
        How many buckets.
    seed : int, optional
        Seed of the hash. Histograms merge only if it is the same, hence the fixed default.
    key_type : {"int", "text"}, optional
        What the keys are. By default what a column's own type says.

    Notes
    -----
    Unlike other sketches, what it holds depends on the order of the records and on how they were split: a merge is not
    one pass over both streams. What always holds: one record moves one of a bucket's two loads by 1, and nothing else
    but a key that comes or goes where the bucket's majority is 0; and a key's majority c, its true count f, and u, half
    of the bucket's load and majority together, are c ≤ f ≤ u.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.VoteHistogram(unit=dps.per_record(), max_counters=64)
    >>> histogram.update(["tea"] * 900 + ["a rare one"] + ["coffee"] * 700)
    >>> histogram.release(epsilon=1.0, delta=1e-6).keys
    ['coffee', 'tea']
    """

    kind: ClassVar[str] = "histogram-votes"
    spec_type: ClassVar[Any] = VoteHistogramSpec
    release_type: ClassVar[Any] = PrivateVoteHistogram
    takes: ClassVar[tuple[str, ...]] = ("users", "counts")
    in_order: ClassVar[bool] = True

    def __init__(
        self, *, unit: Unit, max_counters: int, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        self._start(VoteHistogramSpec(max_counters, unit, seed, key_type))

    def _start(self, spec: VoteHistogramSpec) -> None:
        super()._start(spec)
        self._row_key = row_keys(spec.seed, 1, "votes")[0]
        self._table = VoteTable(spec.max_counters)

    def _parse(self, records: Any) -> Parsed:
        column, _, declared = named_column(records, self._key_type)
        # The column's own type, not that of the Arrow column: a list has none.
        return Parsed(replace(fingerprint(column, self._key_type), declared=declared), _Names(column))

    def _users_entries(self, parsed: Parsed, bounded: Bounded) -> Entries:
        """Return the keys of users that count: of each user one in each bucket."""
        places = buckets_of(bounded.fingerprints, self._row_key, self._spec.max_counters)
        first = _firsts(bounded, places)
        prints, rows = bounded.fingerprints[first], bounded.rows[first]
        starts = np.searchsorted(first, bounded.starts)
        return Entries(prints, parsed.values, np.ones(len(first), np.int64), 1, starts, rows)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        places = buckets_of(entries.prints, self._row_key, self._spec.max_counters)
        rows = np.arange(len(entries.prints)) if entries.rows is None else entries.rows
        held = KeyBytes.of(entries.values.column)
        return partial(self._table.cast, places, entries.prints, entries.amounts, rows, held)

    def _absorb(self, other: Self) -> None:
        self._table.absorb(other._table)

    def _exact(self) -> tuple[VoteTable, KeyType | None]:
        """Return the buckets and the type of their keys. Sensitive."""
        return self._table, self._key_type

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        form: VoteForm | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateVoteHistogram:
        """Charge the budget, draw the noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. Names that nobody listed beforehand need δ > 0.
        rho : float
            Refused: names need a δ.
        form : {"loads", "truncated", "gaussian"}, optional
            What is published of a bucket. "loads": u and l, with counts near the true ones. The others: its majority
            alone, by which more keys pass, and whose counts are too low by what the bucket lost to other keys. By
            default "loads" for records and the better of the others for users.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, where neighbours are streams: the order
        of all other records, and the partial that each is counted in, stay. The exact joint δ of noise and threshold is
        paid (see :mod:`~dpsketch.laws.votes`). Keys are compared by their bytes.

        Accuracy
        --------
        See :class:`~dpsketch.PrivateVoteHistogram`.
        """
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part), form=form)

    def _stored_arrays(self) -> dict[str, files.Array]:
        return dict(self._table.to_arrays())

    def _restore(self, document: files.Document) -> None:
        held = self._spec.key_type or self._seen
        self._table = VoteTable.from_arrays(self._spec.max_counters, self._row_key, held, document.arrays)
        self._mass = max(self._mass, checked_total(0, self._table.loads, 1, len(self._table.loads)))


class _Names(NamedTuple):
    """A column of keys, of which entries name rows."""

    column: pa.ChunkedArray

    def take(self, rows: Integers) -> _Names:
        """Return the column, which stays whole."""
        return self


def _firsts(bounded: Bounded, buckets: Integers) -> Integers:
    """Return of each user's keys the first in every bucket, in their order, which another user has no part in."""
    owners = np.repeat(np.arange(len(bounded.users)), np.diff(bounded.starts))
    _, first = np.unique((owners << 24) | buckets, return_index=True)  # a spec has at most 2²⁴ buckets
    return np.sort(first)
