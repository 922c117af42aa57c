"""The one shape of every local protocol: a public, frozen value that makes reports and their collector."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.local.arguments import privacy_parameter
from dpsketch.local.intervals import Frequencies
from dpsketch.local.sets import read_people
from dpsketch.local.tallies import Tally
from dpsketch.local.wire import Columns, Field, Form
from dpsketch.noise import noise_is_for_tests, random_words
from dpsketch.privacy import Guarantee, PureCost, Unit

if TYPE_CHECKING:
    from dpsketch.local.collector import Collector

__all__ = ["FOR_TESTS", "LocalProtocol", "local_guarantee"]

FOR_TESTS = "the noise came from a seeded source that exists for tests only"


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
    epsilon: float
    key_type: KeyType | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report, beside its identifier."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one report promises its sender, against everyone, the collector included."""

    @abstractmethod
    def randomise(self, people: Any) -> Columns:
        """Draw the fields of everyone's report, given what :meth:`read` returned."""

    @abstractmethod
    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values that the protocol can produce."""

    @abstractmethod
    def tally(self) -> Tally:
        """Start what a collector keeps of the reports."""

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
