"""The table of kinds: every sketch that the command line and the file format know, and how a file becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, Self

from dpsketch import files
from dpsketch.errors import FileRefused, SensitiveData
from dpsketch.local import Collector
from dpsketch.sketches.countsketch import (
    ContinualCountSketch,
    CountSketch,
    PanPrivateCountSketch,
    PrivateCountSketch,
)
from dpsketch.sketches.density import DensitySketch, PrivateDensity
from dpsketch.sketches.distinct import DistinctSketch, PrivateDistinct, PrivateDistinctBitmap
from dpsketch.sketches.heavy import HeavyHitters, PrivateHeavyHitters
from dpsketch.sketches.moment import MomentProfile, MomentSketch, PrivateMoment, PrivateMomentProfile
from dpsketch.sketches.ranges import PrivateRanges, RangeSketch
from dpsketch.sketches.sparse import PrivateSparseHistogram, SparseHistogram

if TYPE_CHECKING:
    from dpsketch.privacy import Guarantee

__all__ = ["KINDS", "Kind", "Release", "SensitiveSketch", "load", "load_sensitive"]


class SensitiveSketch(Protocol):
    """What every sensitive sketch can do, whatever its kind."""

    @property
    def spec(self) -> Any:
        """The public spec."""

    def to_sensitive_bytes(self) -> bytes:
        """Return the sketch with its content."""

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild from a decoded file."""


class Release(Protocol):
    """What every release can do, whatever its kind."""

    @property
    def guarantee(self) -> Guarantee:
        """What was promised."""

    def to_document(self) -> files.Document:
        """Return the release as a document."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write a ``.dps`` file."""

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild from a decoded file."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table.

    Attributes
    ----------
    name, answers : str
        How files and the command line call it, and which question it answers.
    sensitive : type or None
        The sensitive sketch; None where a kind exists as a release only.
    private : type
        The release.
    released_once : bool
        Whether a second release of one sketch would not be private, so that the first must end it.
    """

    name: str
    answers: str
    sensitive: type[SensitiveSketch] | None
    private: type[Release]
    released_once: bool = False


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("counts", "How often does each key I name occur? (CountSketch)", CountSketch, PrivateCountSketch),
        Kind("counts-continual", "How often, day after day?", ContinualCountSketch, PrivateCountSketch),
        Kind(
            "counts-pan-private",
            "How often, kept in a memory that may be seized?",
            PanPrivateCountSketch,
            PrivateCountSketch,
            released_once=True,
        ),
        Kind(
            "heavy",
            "Which keys are frequent, and how frequent? (a tree of sketches)",
            HeavyHitters,
            PrivateHeavyHitters,
        ),
        Kind(
            "sparse",
            "How often does each key I name occur, under pure ε? (ALP)",
            SparseHistogram,
            PrivateSparseHistogram,
        ),
        Kind("moment", "How skewed is the stream? (F_p, for one p)", MomentSketch, PrivateMoment, released_once=True),
        Kind(
            "moments",
            "How skewed is the stream? (F_p, for several p)",
            MomentProfile,
            PrivateMomentProfile,
            released_once=True,
        ),
        Kind("density", "Where do points lie? (kernel sums, RACE)", DensitySketch, PrivateDensity),
        Kind("distinct", "How many different keys are there? (F_0)", DistinctSketch, PrivateDistinct),
        Kind(
            "distinct-bitmap", "How many different keys are there, over several parties?", None, PrivateDistinctBitmap
        ),
        Kind("local", "Which items do people hold, by their own reports? (the local model)", None, Collector),
        Kind("ranges", "How many keys lie in a range; which are the quantiles?", RangeSketch, PrivateRanges),
    )
}


def load(source: str | PathLike[str] | bytes) -> Any:
    """Read a release from a ``.dps`` file or from its bytes. A sensitive file is refused."""
    if isinstance(source, bytes):
        document = files.decode(source, allow_sensitive=False)
    else:
        document = files.read(source, allow_sensitive=False)
    return _build(document, _kind(document).private)


def load_sensitive(source: str | PathLike[str] | bytes) -> Any:
    """Read a sensitive sketch from a ``.sketch`` file or from bytes, inside the trust boundary."""
    if isinstance(source, bytes):
        document = files.decode(source, allow_sensitive=True)
    else:
        document = files.read(source, allow_sensitive=True)
    if not document.sensitive:
        raise SensitiveData("this file is a public release, not a sensitive sketch: read it with dps.load.")
    kind = _kind(document)
    if kind.sensitive is None:
        raise FileRefused("the file holds a kind that is never sensitive; it was not written by dpsketch.")
    return _build(document, kind.sensitive)


def _kind(document: files.Document) -> Kind:
    if document.kind not in KINDS:
        raise FileRefused("the file holds a kind of sketch that this version does not know; a newer one may.")
    return KINDS[document.kind]


def _build(document: files.Document, cls: type[SensitiveSketch] | type[Release]) -> Any:
    refused: str | None = None
    try:
        return cls.from_document(document)
    except FileRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # The digest was right, so the file was forged or written by something else: say which part, not its content.
        refused = type(error).__name__
    raise FileRefused(f"the file's header is not one that dpsketch writes ({refused}).")
