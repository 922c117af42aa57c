"""The ordered domain: from a column of whole numbers to offsets from its start, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.columns import valid_rows
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint, to_arrow
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.sketches.sketch import Parsed
from dpsketch.sketches.specs import Spec

__all__ = ["Domain", "DomainSpec", "Outside"]

Outside = Literal["refuse", "clamp"]


@dataclass(frozen=True, slots=True)
class Domain:
    """The whole numbers from ``start`` to ``start + 2^bits − 1``.

    Attributes
    ----------
    bits : int
        Its size is a power of two.
    start : int
        The smallest value.
    outside : {"refuse", "clamp"}
        What happens to a value outside: the batch is refused, or the value counts as the nearest end.
    """

    bits: int
    start: int
    outside: Outside

    def __post_init__(self) -> None:
        hold_whole(self, "bits", low=1, high=64)
        hold_whole(self, "start", low=-(2**63), high=2**63 - 1)
        if self.end >= 2**64 or (self.start < 0 and self.end >= 2**63):
            raise InvalidInput("start and 2**bits must leave the domain within 64-bit integers, signed or unsigned.")
        if self.outside not in ("refuse", "clamp"):
            raise InvalidInput(f"outside is 'refuse' or 'clamp', not {self.outside!r}.")

    @property
    def end(self) -> int:
        """The largest value."""
        return self.start + (1 << self.bits) - 1

    def offsets(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        """Return each value's distance from the start; a null becomes some offset, to be left out by its place."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        found = np.zeros(len(column), np.uint64)
        place = 0
        for chunk in column.chunks:
            if not pa.types.is_null(chunk.type):
                found[place : place + len(chunk)] = self._shifted(*_numbers(chunk))
            place += len(chunk)
        return found

    def _shifted(self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        below, above = (values < self.start) & ~missing, (values > self.end) & ~missing
        if self.outside == "refuse" and (below.any() or above.any()):
            raise InvalidInput(
                f"a value lies outside [{self.start}, {self.end}]; nothing was added. Build the sketch with other "
                "bits= or start=, or with outside='clamp', which counts it as the nearest end."
            )
        # Modulo 2⁶⁴, which is exact for every value inside the domain.
        shifted = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        shifted = shifted - np.uint64(self.start % 2**64)
        shifted[below] = 0
        shifted[above] = (1 << self.bits) - 1
        return shifted

    def offset(self, name: str, value: Any) -> int:
        """Return the distance from the start of a value that is asked for; refuse one outside."""
        return whole_number(name, value, low=self.start, high=self.end) - self.start


@dataclass(frozen=True, slots=True)
class DomainSpec(Spec):
    """A spec with fields ``bits``, ``start`` and ``outside``: keys are whole numbers of an ordered domain."""

    if TYPE_CHECKING:

        @property
        def bits(self) -> int:
            """The size of the domain is a power of two."""

        @property
        def start(self) -> int:
            """The smallest value."""

        @property
        def outside(self) -> Outside:
            """The treatment of a value outside."""

    @property
    def key_type(self) -> Literal["int"]:
        """The type of the keys."""
        return "int"

    @property
    def domain(self) -> Domain:
        """All values that can be counted."""
        return Domain(self.bits, self.start, self.outside)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"of {self.bits} bits"

    def parse(self, records: Any) -> Parsed:
        """Read a column of values; they count by their distance from the start of the domain."""
        column = to_arrow(records, "int")
        return Parsed(fingerprint(column, "int"), self.domain.offsets(column))


def _numbers(chunk: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values, 0 where one is missing, and where that is."""
    if pa.types.is_integer(chunk.type):  # fill_null and to_numpy would import pandas
        kind = np.dtype(chunk.type.to_pandas_dtype())
        values = np.frombuffer(chunk.buffers()[1] or b"", kind, len(chunk), chunk.offset * kind.itemsize)
        missing = ~valid_rows(chunk)
        return (np.where(missing, kind.type(0), values) if chunk.null_count else values), missing
    return chunk.fill_null(0).to_numpy(zero_copy_only=False), chunk.is_null().to_numpy(zero_copy_only=False)
