"""What every sensitive sketch shares that accumulates records under a public spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike
from typing import Generic, Self, TypeVar

from dpsketch import files
from dpsketch.errors import SpecMismatch
from dpsketch.sketches.releasing import Sensitive

__all__ = ["Accumulator"]

SpecT = TypeVar("SpecT")


class Accumulator(Sensitive, ABC, Generic[SpecT]):
    """A sensitive sketch: starts empty from a spec, is written and read whole inside the trust boundary."""

    _spec: SpecT
    _skipped: int

    @abstractmethod
    def _start(self, spec: SpecT) -> None:
        """Set every attribute of an empty sketch."""

    @abstractmethod
    def _to_document(self) -> files.Document:
        """Return everything, sensitive content included."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a sensitive sketch from a decoded file."""

    @classmethod
    def from_spec(cls, spec: SpecT) -> Self:
        """Start an empty sketch of a spec."""
        sketch = cls.__new__(cls)
        sketch._start(spec)
        return sketch

    def empty_like(self) -> Self:
        """Start an empty sketch that will merge with this one."""
        return type(self).from_spec(self._spec)

    def _refuse_itself(self, other: object) -> None:
        """Refuse to merge a sketch with itself: every record would count twice, and move twice what noise hides."""
        if other is self:
            raise SpecMismatch("cannot merge a sketch with itself: each record would count, and show, twice.")

    @property
    def spec(self) -> SpecT:
        """The public spec."""
        return self._spec

    @property
    def skipped_nulls(self) -> int:
        """How many records missed a key, a coordinate or a user and were skipped. For the data holder's eyes only."""
        return self._skipped

    def to_sensitive_bytes(self) -> bytes:
        """Return the sketch with its content, for use inside the trust boundary only."""
        return files.encode(self._to_document())

    def save_sensitive(self, path: str | PathLike[str]) -> None:
        """Write the sketch with its content to a ``.sketch`` file that only its owner may read."""
        files.write(path, self._to_document())

    @classmethod
    def from_sensitive_bytes(cls, data: bytes) -> Self:
        """Rebuild a sketch from :meth:`to_sensitive_bytes`."""
        return cls.from_document(files.decode(data, allow_sensitive=True))
