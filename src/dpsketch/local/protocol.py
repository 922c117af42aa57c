"""The one shape of every local protocol: a public, frozen value that makes reports and their collector.

:class:`LocalProtocol` holds what all share. Families add to it: :class:`SupportProtocol` and :class:`OneItem` here,
:class:`~dpsketch.local.hashed.HashedProtocol` for reports of a hash function and a bucket, and those of
:mod:`dpsketch.local.bits` for reports of bits. A protocol writes its fields, the words of its guarantee, and what it
alone draws and estimates.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.local.intervals import Frequencies, from_support, support_variance
from dpsketch.local.odds import odds_below, privacy_parameter
from dpsketch.local.sets import People, read_people, read_single_items
from dpsketch.local.tallies import KeptReports, ReportTally
from dpsketch.local.wire import Columns, Field, Form
from dpsketch.noise import noise_is_for_tests, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Guarantee, PureCost, Unit, per_record, per_user

if TYPE_CHECKING:
    from dpsketch.local.collector import Collector

__all__ = ["FOR_TESTS", "LARGEST_SEED", "WHOLE_SET", "LocalProtocol", "OneItem", "SupportProtocol", "local_guarantee"]

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
        items = "1 item" if self.unit.max_keys == 1 else f"{self.unit.max_keys} items"
        return f"shares of people, clipped: at most {items} counted of each"

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
