"""What a release of any kind can do: be asked, be drawn, say what it is, and be written and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from dpsketch import files, plots
from dpsketch.compound import compound_keys, parsed_keys
from dpsketch.core.drawn import Drawn, Part, read_release, release_document
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KIND_OF_KEY, KeyType
from dpsketch.privacy import Guarantee
from dpsketch.results import Estimates, key_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge

__all__ = [
    "Answering",
    "KeyedRelease",
    "NumberRelease",
    "Release",
    "SketchRelease",
    "refuse_keys",
    "require_keys",
    "statement",
    "typed_keys",
    "without_types",
]


class Answering(Protocol):
    """What answers questions under a guarantee: a release, or a moment of a collection."""

    @property
    def kind(self) -> str:
        """The name of its kind."""

    @property
    def guarantee(self) -> Guarantee:
        """What was promised."""

    @property
    def counts(self) -> str:
        """What an estimate counts."""

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer what was asked."""


class Release(ABC):
    """A release: public, for ever. A kind's own class adds what only it can tell."""

    __slots__ = ()

    kind: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def guarantee(self) -> Guarantee:
            """What was promised; print it."""

    @abstractmethod
    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""

    @abstractmethod
    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer what was asked, in the words that the command line and the service take.

        Parameters
        ----------
        asked : sequence
            Keys; of densities points as in 1.5,2; of ranges low:high or 50%; nothing where there is one statement.
        confidence : float
            Coverage of the intervals.
        estimator : str or None
            One of the kind's own, where it has several.
        key_type : {"int", "text"} or None
            How keys are read, where the release does not say.
        """

    @abstractmethod
    def plot(self) -> Figure:
        """Draw the release."""

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates where it has keys."""
        return self.plot()

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return {}

    def public_spec(self) -> dict[str, Any]:
        """Return the spec as people read it: JSON-ready values without the names of classes."""
        spec: dict[str, Any] = without_types(self.to_document().header["spec"])
        return spec

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        return self.guarantee.counts

    def title(self, what: str | None = None) -> str:
        """Return the title of a picture: what it shows, the guarantee's numbers, and what is counted."""
        promise = f"ε = {self.guarantee.epsilon:.4g}, δ = {self.guarantee.delta:.3g}"
        return f"{promise if what is None else f'{what}, {promise}'}\nCounted: {self.counts}"

    @property
    def bare_names(self) -> list[Any] | None:
        """The names of keys, of a release that has names and no counts; None of all others."""
        return None

    @property
    def key_type(self) -> KeyType | None:
        """What its keys are, where it says."""
        stated: KeyType | None = getattr(getattr(self, "spec", None), "key_type", None)
        return stated

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of compound keys, where its keys are that: they are asked and answered as tuples."""
        columns: tuple[str, ...] = getattr(getattr(self, "spec", None), "key_columns", ())
        return columns

    @property
    def takes_either_key(self) -> bool:
        """Whether it was made without a key type, so that a question about keys brings its own."""
        return False

    @property
    def names_keys(self) -> bool:
        """Whether this one can list keys without candidates, where its kind can."""
        return True

    @property
    def searches(self) -> bool:
        """Whether it has to search for keys to list them without candidates; then ``top`` tells its progress."""
        return False

    def save(self, path: str | PathLike[str]) -> None:
        """Write the release to a ``.dps`` file that anyone may read."""
        files.write(path, self.to_document())


@dataclass(frozen=True, slots=True, eq=False)
class SketchRelease(Release):
    """A release that a sketch drew: its public spec, and what was drawn. The guarantee is computed from the laws."""

    spec_type: ClassVar[Any]

    spec: Any
    """The public spec."""
    drawn: Drawn
    """The parts of the release, each with its law, and what was paid for them."""

    @property
    def guarantee(self) -> Guarantee:
        """What was promised; print it."""
        return self.drawn.guarantee

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, if a ledger was charged."""
        return self.drawn.charge

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        return release_document(self.kind, self.spec, self.drawn)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file; its guarantee is computed again."""
        spec, drawn = read_release(document, cls.spec_type)
        if not cls._takes(spec, drawn.parts):
            raise FileRefused("the file does not have the parts of a release of its kind.")
        return cls(spec, drawn)

    @classmethod
    def of_window(cls, spec: Any, window: Any) -> Self:
        """Return the release of some days of a stream."""
        return cls(spec, window.drawn())

    def ask(self, asked: Any, confidence: float) -> Estimates:
        """Answer one question as Python asks it, such as a key, with an interval of this coverage."""
        release: Any = self
        found: Estimates = release.estimate([asked], confidence=confidence)
        return found

    def question(self, text: str | int, key_type: KeyType | None = None) -> Any:
        """Return what :meth:`ask` takes, from how the command line and the service write it."""
        (key,) = typed_keys([text], self.key_type, key_type)
        return key

    def question_words(self, asked: Any) -> str:
        """Return a question in words, for a picture."""
        return repr(asked)

    def subtracts(self, asked: Any) -> bool:
        """Say whether the difference of two releases answers a question by the difference of their answers."""
        return True

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        """Say whether these are the parts of the kind: by default additive noise on each of its tables."""
        names = {table.name for table in spec.tables()}
        return parts.keys() == names and all(hasattr(part.law, "noise") for part in parts.values())


class NumberRelease(Release):
    """A release that states one number, with an interval."""

    __slots__ = ()

    @property
    @abstractmethod
    def subject(self) -> str:
        """What the number is of."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The estimate."""

    @abstractmethod
    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for it."""

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return self.interval()[0]

    @property
    def high(self) -> float:
        """The upper end of the 95% interval."""
        return self.interval()[1]

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """State the number, with its interval."""
        refuse_keys(asked)
        return self._statement(confidence)

    def plot(self) -> Figure:
        """Draw the number with its interval."""
        return plots.bars(self._statement(0.95), self.title())

    def _statement(self, confidence: float) -> Estimates:
        """Return the number with its interval, under its name."""
        return statement(self.subject, self.value, self.interval(confidence), confidence, self.counts)


class KeyedRelease(Release):
    """A release that is asked about keys."""

    __slots__ = ()

    @abstractmethod
    def estimate(self, keys: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate the counts of keys. A kind with several estimators takes ``estimator`` as well."""

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Estimate the counts of keys."""
        require_keys(asked)
        keys = typed_keys(asked, self.key_type, key_type, self.key_columns)
        chosen: Any = {} if estimator is None else {"estimator": estimator}
        return self.estimate(keys, confidence=confidence, **chosen)

    @property
    def takes_either_key(self) -> bool:
        """Whether it was made without a key type, so that a question about keys brings its own."""
        return self.key_type is None

    def _looked_up(self, keys: Any) -> tuple[list[Any], Any]:
        """Return keys as answers name them, and the column that is looked up."""
        if not self.key_columns:
            return key_list(keys), keys
        asked = compound_keys(keys, self.key_columns)
        return list(asked), [str(key) for key in asked]


def without_types(value: Any) -> Any:
    """Return values of the codec without the names of their classes, empty lists of columns, and choices not made."""
    if isinstance(value, list):
        return [without_types(each) for each in value]
    if not isinstance(value, dict):
        return value
    missing: tuple[tuple[str, Any], ...] = (("key_columns", []), ("chosen", False))
    kept = {name: each for name, each in value.items() if name != "type" and (name, each) not in missing}
    return {name: without_types(each) for name, each in kept.items()}


def require_keys(asked: Sequence[Any]) -> None:
    """Refuse a question that names nothing."""
    if not asked:
        raise InvalidInput("name at least one key to ask about.")


def refuse_keys(asked: Sequence[Any]) -> None:
    """Refuse a question about keys to what knows none."""
    if asked:
        raise InvalidInput("this release is one statement about the whole stream: ask it without keys.")


def statement(
    name: str, value: float, interval: tuple[float, float], confidence: float, counts: str | None
) -> Estimates:
    """Return one number with its interval, under a name; ``counts`` says what it counts."""
    low, high = interval
    return Estimates([name], np.array([value]), np.array([low]), np.array([high]), confidence, counts)


def typed_keys(
    keys: Sequence[Any], stated: KeyType | None, key_type: KeyType | None, columns: Sequence[str] = ()
) -> list[Any]:
    """Read keys by the ``stated`` type, or else by ``key_type``: as integers, as text, or as they are if neither says.

    With ``columns`` they are compound, and each is a CSV row.

    A release that was made from lists has no key type, since their values are no schema: 5 then asks for the integer,
    and "5" for the text.
    """
    if stated is not None and key_type is not None and stated != key_type:
        raise InvalidInput(f"this release counts {KIND_OF_KEY[stated]} keys: leave the key type out.")
    if columns:
        return list(parsed_keys(keys, columns))
    if (stated or key_type) != "int":
        return [str(key) for key in keys] if key_type == "text" else list(keys)
    numbers = [_whole(key) for key in keys]
    if None in numbers:
        raise InvalidInput("the keys of this question are integers, and one of those asked is not.")
    return numbers


def _whole(text: str | int) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
