"""The one shape of every local protocol: a public, frozen value that makes reports and their collector.

:class:`LocalProtocol` holds what all share. Families add to it: :class:`SupportProtocol` and :class:`OneItem` here,
:class:`~dpsketch.local.hashed.HashedProtocol` for reports of a hash function and a bucket, and those of
:mod:`dpsketch.local.bits` for reports of bits. A protocol writes its fields, the words of its guarantee, and what it
alone draws and estimates.

**Odds.** Every randomiser decides by comparing a random integer with an integer threshold. The threshold comes from the
odds E = e^ε, and E is irrational: it is replaced by a fraction just *below* it, computed in integers alone, so that
every client in every language finds the same fraction and the realised ratio of two probabilities never exceeds e^ε.

**Sets.** What people hold, one set of keys a person, is read from whatever container it comes in.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.bounding import read_users
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.local.intervals import Frequencies, from_support, support_variance
from dpsketch.local.tallies import KeptReports, ReportTally
from dpsketch.local.wire import Columns, Field, Form
from dpsketch.noise import noise_is_for_tests, random_words
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Guarantee, PureCost, Unit, per_record, per_user

if TYPE_CHECKING:
    from dpsketch.local.collector import Collector

__all__ = [
    "FOR_TESTS", "LARGEST_SEED", "WHOLE_SET", "Holders", "LocalProtocol", "OneItem", "People", "SupportProtocol",
    "group_by_person", "items_words", "keep_threshold", "list_column", "local_guarantee", "odds_below", "offsets_of",
    "privacy_parameter", "read_people", "read_single_items",
]  # fmt: skip

# Below, the odds differ from 1 by too little to be of use; above, a report promises next to nothing.
SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 20.0

_WORKING_BITS = 128
_KEPT_BITS = 48


def privacy_parameter(epsilon: Any) -> float:
    """Return the ε of a report, or refuse it."""
    number = real_number("epsilon", epsilon)
    if not SMALLEST_EPSILON <= number <= LARGEST_EPSILON:
        raise InvalidInput(
            f"epsilon of a local report must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, not {number!r}."
        )
    return float(number)


@lru_cache(maxsize=256)
def odds_below(epsilon: float, shares: int = 1) -> Fraction:
    """Return a fraction that is at most e^(ε/shares), and below it by less than 2⁻⁴⁷.

    The series of the exponential is summed in integers, in units of 2⁻¹²⁸, with every division rounded down. All its
    terms are positive, so the sum is too small; it is then cut to 48 binary places.

    Examples
    --------
    >>> odds_below(1.0) < math.e, round(float(odds_below(1.0)), 12)
    (True, 2.718281828459)
    """
    exponent = math.floor(Fraction(epsilon) * 2**_WORKING_BITS / shares)
    term = total = 2**_WORKING_BITS
    k = 0
    while term:
        k += 1
        term = term * exponent // (k << _WORKING_BITS)
        total += term
    return Fraction(total >> (_WORKING_BITS - _KEPT_BITS), 2**_KEPT_BITS)


def keep_threshold(odds: Fraction, bits: int = 64) -> int:
    """Return the threshold of randomised response: keep the truth where a random word of ``bits`` bits lies below it.

    It is 2^bits · E/(E+1) rounded down, hence kept/flipped is at most E.
    """
    share: Fraction = odds / (odds + 1)
    return (share.numerator << bits) // share.denominator


def offsets_of(sizes: Any) -> npt.NDArray[np.int64]:
    """Return where each of some runs begins when they lie one after the other, and where the last one ends.

    Of a mask, it is how many entries before each are kept.
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """People who hold some things each: person i those from ``offsets[i]`` up to ``offsets[i + 1]``. Sensitive."""

    offsets: npt.NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class People(Holders):
    """Everyone's keys, as fingerprints. Sensitive."""

    prints: npt.NDArray[np.uint64] = field(repr=False)

    def take(self, chosen: npt.NDArray[Any]) -> People:
        """Return the chosen people (indices or a mask), in order."""
        starts, ends = self.offsets[:-1][chosen], self.offsets[1:][chosen]
        sizes = ends - starts
        offsets = offsets_of(sizes)
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, sizes)
        return People(offsets, self.prints[places])

    def only(self, kept: npt.NDArray[np.bool_]) -> People:
        """Return the same people with the keys that a mask keeps."""
        return People(offsets_of(kept)[self.offsets], self.prints[kept])

    def distinct(self) -> People:
        """Return the same people, everyone's keys sorted and each but once."""
        owners = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        order = np.lexsort((self.prints, owners))
        prints, owners = self.prints[order], owners[order]
        first = np.ones(len(prints), np.bool_)
        first[1:] = (prints[1:] != prints[:-1]) | (owners[1:] != owners[:-1])
        return People(self.offsets, prints).only(first)


def read_people(sets: Any, key_type: KeyType | None = None) -> People:
    """Read one set a person.

    Parameters
    ----------
    sets : Arrow list array, list of lists, (offsets, values), or People
        An Arrow (large) list array or chunked array; a pandas or polars Series of lists; a sequence of sequences of
        keys; or a pair of an integer array of n + 1 offsets and a flat column of values. Keys are integers or text. A
        null set is empty, a null key is left out, and a key that a person holds twice counts once.
    key_type : {"int", "text"}, optional
        What the keys must be.

    Examples
    --------
    >>> read_people([["a", "b"], [], ["a"]]).offsets.tolist()
    [0, 2, 2, 3]
    """
    if isinstance(sets, People):
        return sets
    offsets, values = list_column(sets)
    batch = fingerprint(values, key_type)
    if batch.kept is not None:
        offsets = offsets_of(batch.kept)[offsets]
    return People(offsets, batch.fingerprints)


def read_single_items(items: Any, key_type: KeyType | None = None) -> People:
    """Read one key a person from a flat column; nulls are refused, because everyone who reports has an item."""
    if isinstance(items, People):
        if not bool(np.all(np.diff(items.offsets) == 1)):
            raise InvalidInput("this protocol reports exactly one item a person.")
        return items
    batch = fingerprint(items, key_type)
    if batch.skipped:
        raise InvalidInput("an item is null, and this protocol reports exactly one a person. Leave such people out.")
    return People(np.arange(len(batch.fingerprints) + 1, dtype=np.int64), batch.fingerprints)


def list_column(sets: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Take a column of lists apart into offsets and a flat column of values."""
    if isinstance(sets, tuple) and len(sets) == 2 and isinstance(sets[0], np.ndarray):
        return _checked_offsets(sets[0], len(sets[1])), sets[1]
    if hasattr(sets, "to_arrow"):
        sets = sets.to_arrow()
    if isinstance(sets, pa.ChunkedArray):
        sets = sets.combine_chunks()
        if isinstance(sets, pa.ChunkedArray):  # no chunk at all
            sets = pa.concat_arrays(sets.chunks) if sets.num_chunks else pa.array([], sets.type)
    if isinstance(sets, pa.Array):
        return _from_arrow(sets)
    if isinstance(sets, str | bytes) or not (isinstance(sets, Sequence) or hasattr(sets, "tolist")):
        raise InvalidInput("sets must be an Arrow list array, a list of lists, or (offsets, values).")
    return _from_sequences(sets if isinstance(sets, Sequence) else sets.tolist())


def _from_sequences(people: Sequence[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    held = [() if one is None else one for one in people]
    if any(isinstance(one, str | bytes) or not hasattr(one, "__len__") for one in held):
        raise InvalidInput("sets must hold one list (or set) of keys a person; something else was found among them.")
    return offsets_of([len(one) for one in held]), list(chain.from_iterable(held))


def _from_arrow(column: pa.Array) -> tuple[npt.NDArray[np.int64], Any]:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column) + 1, np.int64), pa.nulls(0)
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.large_list(kind.value_type))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise InvalidInput("sets must be an Arrow *list* array: one list of keys a person.")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return offsets_of(lengths), column.flatten()  # flatten leaves out what null lists and a slice's neighbours cover


def _checked_offsets(offsets: npt.NDArray[Any], values: int) -> npt.NDArray[np.int64]:
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) == 0:
        raise InvalidInput("offsets must be a flat array of n + 1 whole numbers.")
    whole = offsets.astype(np.int64)
    if whole[0] != 0 or whole[-1] != values or bool(np.any(whole[1:] < whole[:-1])):
        raise InvalidInput("offsets must start at 0, never fall, and end at the number of values.")
    return whole


def group_by_person(users: Any, keys: Any) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Gather records of (user, key) into one set a user, as the pair that ``report`` takes.

    Users are read and told apart as those of a sketch are, and come out in no stated order. Records without a user are
    left out.

    Examples
    --------
    >>> offsets, values = group_by_person(["u", "v", "u"], ["a", "b", "c"])
    >>> sorted(map(tuple, (values[a:b].to_pylist() for a, b in zip(offsets[:-1], offsets[1:]))))
    [('a', 'c'), ('b',)]
    """
    items = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
    records = pa.table({"user": read_users(users, len(items)).column, "key": items})
    records = records.filter(records["user"].is_valid())
    grouped = records.group_by("user").aggregate([("key", "list")])
    return list_column(grouped["key_list"])


FOR_TESTS = "the noise came from a seeded source that exists for tests only"

WHOLE_SET = per_record(neighbours="replace")
"""A record is one person's whole set, whatever its size."""

# A spec travels as JSON, and JavaScript reads its numbers exactly up to here.
LARGEST_SEED = 2**53 - 1


@dataclass(frozen=True)
class LocalProtocol(ABC):
    """A local protocol and its public spec in one frozen value, shared by the people who report and the collector.

    Subclasses are frozen dataclasses whose fields are the spec. People call :meth:`report`, the collector
    :meth:`collector`; the other methods are what the collector asks of the protocol.

    Attributes
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    key_type : {"int", "text"} or None
        What keys must be; with None both are taken, and 5 and "5" are two keys.
    """

    name: ClassVar[str]
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """The least and the largest value of each whole number of the spec."""

    epsilon: float
    key_type: KeyType | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report, beside its identifier."""

    @property
    @abstractmethod
    def mechanism(self) -> str:
        """How a report is drawn, in the words of the guarantee."""

    @abstractmethod
    def randomise(self, people: Any) -> Columns:
        """Draw the fields of everyone's report, given what :meth:`read` returned."""

    @abstractmethod
    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""

    @abstractmethod
    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of the estimated share of a key that a share ``frequency`` of people holds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", privacy_parameter(self.epsilon))
        if self.key_type not in (None, "int", "text"):
            raise InvalidInput("key_type is 'int', 'text' or None.")
        for name, (low, high) in self.ranges.items():
            hold_whole(self, name, low=low, high=high)

    @property
    def odds(self) -> Fraction:
        """E, a fraction just below e^ε."""
        return odds_below(self.epsilon)

    @property
    def unit(self) -> Unit:
        """What the guarantee is about; a whole set of any size unless the protocol says otherwise."""
        return WHOLE_SET

    @property
    def counts(self) -> str:
        """What an estimate counts. Devices cut larger sets before they report; intervals are for what is left."""
        if self.unit.level == "record":
            return "shares of people"
        return f"shares of people, clipped: at most {items_words(self.unit.max_keys)} counted of each"

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises its sender, against everyone, the collector included."""
        return local_guarantee(self.epsilon, self.unit, self.mechanism)

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values that the protocol can produce."""
        within: npt.NDArray[np.bool_] = np.logical_and.reduce(
            [field.within(columns[field.name]) for field in self.fields]
        )
        return within

    def tally(self) -> ReportTally:
        """Start what a collector keeps of the reports; the reports themselves where no counters suffice."""
        return KeptReports(self.fields, self.plausible)

    def read(self, sets: Any) -> Any:
        """Read what people hold; one set a person unless the protocol says otherwise."""
        return read_people(sets, self.key_type)

    def read_person(self, items: Any) -> Any:
        """Read what one person holds, as :meth:`read` does for many."""
        return self.read([items])

    def fingerprints(self, keys: Any) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of keys to look up."""
        batch = fingerprint(keys, self.key_type)
        if batch.skipped:
            raise InvalidInput("a null is not a key that can be looked up.")
        return batch.fingerprints

    def report(self, sets: Any) -> pa.Table:
        """Randomise everyone's set into one report each.

        Parameters
        ----------
        sets : Arrow list array, list of lists, or (offsets, values)
            One set of integer or text keys a person (one key a person for single-item protocols).

        Returns
        -------
        pyarrow.Table
            One row a person, in the order given: ``id`` and the protocol's fields. Private as it is: it may leave the
            device. (Whoever makes reports for many people in one table also publishes their order; shuffle it where
            that says who is who.)
        """
        people = self.read(sets)
        columns = self.randomise(people)
        columns["id"] = random_words(2 * len(people)).reshape(-1, 2)
        return self.form.to_table(columns, for_tests=noise_is_for_tests())

    def collector(self) -> Collector:
        """Start an empty collector of this protocol's reports."""
        from dpsketch.local.collector import Collector

        return Collector(self)

    @property
    def form(self) -> Form:
        """The form of a report on the wire."""
        return Form(self.fingerprint, self.fields)

    def to_bytes(self, reports: pa.Table) -> list[bytes]:
        """Return the compact form of each report of a table."""
        form = self.form
        joined = form.to_bytes(self._columns(reports))
        return [joined[start : start + form.size] for start in range(0, len(joined), form.size)]

    def to_objects(self, reports: pa.Table) -> list[dict[str, Any]]:
        """Return the JSON form of each report of a table."""
        return self.form.to_json(self._columns(reports))

    def _columns(self, reports: pa.Table) -> Columns:
        columns, _ = self.form.from_table(reports)
        if columns is None:
            raise SpecMismatch("the reports are of another spec; use the protocol that made them.")
        return columns

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that name the spec."""
        text = json.dumps(self._parameters(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values, for clients in any language; public."""
        return {**self._parameters(), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild the protocol from :meth:`to_json`."""
        parameters = {key: entry for key, entry in value.items() if key not in ("protocol", "fingerprint")}
        if value.get("protocol") != cls.name:
            raise InvalidInput(f"this is not the spec of a {cls.__name__}.")
        try:
            protocol = cls(**parameters)
        except TypeError:
            raise InvalidInput(f"the spec of a {cls.__name__} lacks a parameter or has one too many.") from None
        if value.get("fingerprint", protocol.fingerprint) != protocol.fingerprint:
            raise SpecMismatch("the spec and its fingerprint do not belong together; get the spec again.")
        return protocol

    def _parameters(self) -> dict[str, Any]:
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        return {"protocol": self.name, **listed}


class SupportProtocol(LocalProtocol):
    """A protocol each of whose reports supports some keys; :mod:`dpsketch.local.intervals` has the arithmetic."""

    @property
    @abstractmethod
    def chances(self) -> tuple[float, float]:
        """P and q: the probabilities that a report supports a key which its sender holds, and any other key."""

    @abstractmethod
    def support(self, tally: Any, fingerprints: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], float]:
        """Count the reports that support each key; also estimate τ, what sharing hash functions adds to Var(C/n)."""

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        counts, spread = self.support(tally, fingerprints)
        return from_support(counts, users, *self.chances, spread, confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what a limited pool of hash functions adds."""
        return support_variance(frequency, users, *self.chances)


class OneItem(LocalProtocol):
    """A protocol for one item a person: its input is a flat column."""

    @property
    def unit(self) -> Unit:
        """One item."""
        return per_user(1, neighbours="replace")

    @property
    def counts(self) -> str:
        """What an estimate counts. Nothing is cut: more than one item is refused."""
        return "shares of people, who report one item each"

    def read(self, sets: Any) -> People:
        """Read one item a person from a flat column."""
        return read_single_items(sets, self.key_type)

    def read_person(self, items: Any) -> People:
        """Read what one person holds: a column of exactly one item."""
        person = self.read(items)
        if len(person) != 1:
            raise InvalidInput("this protocol reports exactly one item a person.")
        return person


def items_words(count: int) -> str:
    """Return a number of items in words."""
    return "1 item" if count == 1 else f"{count} items"


def local_guarantee(epsilon: float, unit: Unit, mechanism: str, caveat: str | None = None) -> Guarantee:
    """State what one ε-locally private report promises."""
    for_tests = noise_is_for_tests()
    words = "It holds against the collector too, for one report a person; several reports of one person add up."
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        unit=unit,
        costs=(PureCost(epsilon),),
        mechanism=mechanism,
        caveat=FOR_TESTS if for_tests else f"{words} {caveat}" if caveat else words,
        holds=not for_tests,
    )
