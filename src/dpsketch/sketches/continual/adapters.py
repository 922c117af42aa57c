"""What a stream asks of a kind: how its day is counted, what its tables are, and what a window of them answers.

A kind has an adapter in its own folder, named by its row in the table of kinds. It knows the kind's tables and its
release; it knows nothing of days, noise or state. To a permit it is the stream's plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from dpsketch.core.laws import Law
from dpsketch.core.move import Table
from dpsketch.core.permit import Permit
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.designs import Design
from dpsketch.laws.streams import Published, Seizable
from dpsketch.privacy import Unit
from dpsketch.release import typed_keys
from dpsketch.results import Estimates
from dpsketch.sketches.continual.portions import Layout, Window
from dpsketch.sketches.continual.stream import SeizableStream, Stream
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.sketch import Sketch

__all__ = ["Adapter"]


class Adapter(ABC):
    """One kind in a stream.

    Parameters
    ----------
    spec
        The public spec of the kind.
    """

    kind: ClassVar[str]

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    @classmethod
    def of(cls, sketch: Sketch[Any, Any], keys: Any) -> Self:
        """Return the adapter of an empty sketch; ``keys`` is a public list, where the kind takes one."""
        if keys is not None:
            raise InvalidInput("keys= is the public list of a histogram: leave it out.")
        return cls(sketch.spec)

    @classmethod
    def stored(cls, spec: dict[str, Any], options: Any) -> Self:
        """Rebuild an adapter from a file, from its spec and :meth:`options`."""
        return cls(cls.read_spec(spec))

    @classmethod
    def read_spec(cls, value: dict[str, Any]) -> Any:
        """Rebuild the spec from a file."""
        return KINDS[cls.kind].spec.from_json(value)

    def options(self) -> Any:
        """Return what a file must know beside the spec, JSON-ready."""
        return None

    def start(self) -> Sketch[Any, Any]:
        """Return an empty sketch for a day's records."""
        sketch: Sketch[Any, Any] = KINDS[self.kind].sensitive.from_spec(self.spec)
        return sketch

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""
        unit: Unit = self.spec.unit
        return unit

    def shares(self) -> dict[Table, float]:
        """Return the tables of a day, each with its share of the budget."""
        shares: dict[Table, float] = self.spec.shares()
        return shares

    def tables(self) -> tuple[Table, ...]:
        """Return the tables of a day."""
        return tuple(self.shares())

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return laws[0].words

    def law_class(self, design: Design) -> type[Published]:
        """Return the law of its publications."""
        return Seizable if design.keeps_noise else Published

    def stream(self, permit: Permit) -> Stream:
        """Return what publishes it."""
        return SeizableStream(permit) if isinstance(permit.laws[0], Seizable) else Stream(permit)

    @abstractmethod
    def counted(self, today: Any) -> dict[Any, Any]:
        """Return the exact tables of a day. Sensitive."""

    def joined(self, layout: Layout, tables: Any) -> Any:
        """Return a day's vector of its exact tables. Sensitive."""
        return layout.joined(tables)

    def records(self, records: Any) -> Any:
        """Return records as the day's sketch takes them."""
        return records

    def counts_keys(self, keys: Any) -> bool:
        """Say whether this is the public list of keys that is counted."""
        return False

    @abstractmethod
    def release(self, window: Window) -> Any:
        """Return the release of a window."""

    def read(self, release: Any, asked: Any, confidence: float) -> Estimates:
        """Return the answer of a release to one question, with its interval."""
        found: Estimates = release.estimate([asked], confidence=confidence)
        return found

    def asked(self, text: str | int, key_type: KeyType | None) -> Any:
        """Return a question as :meth:`read` takes it, from how the command line and the service write it."""
        (key,) = typed_keys([text], getattr(self.spec, "key_type", None), key_type)
        return key

    def question_words(self, asked: Any) -> str:
        """Return a question in words, for a picture."""
        return repr(asked)

    def change(self, changed: Any, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return how far an answer changed from one window to another.

        ``changed`` is the release of the difference of the two, whose noise is known to be that of both together.
        """
        return self.read(changed, asked, confidence)

    def apart(self, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return the difference of two answers that is no linear one: each has half of the doubt."""
        each = 1 - (1 - confidence) / 2
        new, old = (self.read(one, asked, each) for one in (later, earlier))
        low, high = new.low - old.high, new.high - old.low
        return Estimates(new.key, new.value - old.value, low, high, confidence, new.counts)
