"""What every sensitive sketch shares that accumulates records under a public spec."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import fields, replace
from typing import Any, Generic, Self, TypeVar

from dpsketch.bounding import CountedUsers
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.specs import UnitSpec, refuse_mismatch

__all__ = ["Accumulator", "agreed_spec"]

SpecT = TypeVar("SpecT", bound=UnitSpec)


class Accumulator(Partial, Generic[SpecT]):
    """A sensitive sketch: starts empty from a spec, merges, and is written and read inside the trust boundary."""

    _spec: SpecT
    _skipped: int
    _counted: CountedUsers

    @abstractmethod
    def _start(self, spec: SpecT) -> None:
        """Set every attribute of an empty sketch."""

    def _check_absorb(self, other: Self) -> None:
        """Refuse another sketch of the same spec whose counts cannot be added to these."""

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Add the counts of another sketch that :meth:`_check_absorb` let pass."""

    @classmethod
    def from_spec(cls, spec: SpecT) -> Self:
        """Start an empty sketch of a spec."""
        sketch = cls.__new__(cls)
        sketch._start(spec)
        return sketch

    def empty_like(self) -> Self:
        """Start an empty sketch that will merge with this one."""
        return type(self).from_spec(self._spec)

    @property
    def spec(self) -> SpecT:
        """The public spec."""
        return self._spec

    @property
    def skipped_nulls(self) -> int:
        """How many records missed a key, a coordinate or a user and were skipped. For the data holder's eyes only."""
        return self._skipped

    def merge(self, other: Self, *, disjoint_users: bool = False) -> None:
        """Add another sketch of the same spec; the result is that of one pass over both streams, bit for bit.

        Parameters
        ----------
        other : same kind of sketch
            It stays as it is. One that was merged before is refused, as is a copy of it; where the unit is a user,
            also one that shares a user.
        disjoint_users : bool, optional
            State that the two share no user. No user is then compared, and the release says that it was not checked.
        """
        if type(other) is not type(self):
            raise SpecMismatch(f"cannot merge a {type(self).__name__} with a {type(other).__name__}.")
        spec = agreed_spec(self._spec, other._spec)
        if spec.unit.level == "record" and disjoint_users:
            raise InvalidInput("disjoint_users= goes with unit=dps.per_user(max_keys=…): these sketches count records.")
        counted = self._counted.merged(other._counted, disjoint_users=disjoint_users)
        self._refuse_overlap(other)
        self._check_absorb(other)
        self._begin_change()
        self._partials |= other._partials
        self._counted = counted
        self._absorb(other)
        self._skipped += other._skipped
        self._spec = spec


def agreed_spec(ours: Any, theirs: Any) -> Any:
    """Return the spec of a merged sketch: equal but for a key type that one of the two has not seen yet."""
    if any(field.name == "key_type" for field in fields(ours)):
        key_type = ours.key_type or theirs.key_type
        ours, theirs = (replace(spec, key_type=spec.key_type or key_type) for spec in (ours, theirs))
    refuse_mismatch(ours, theirs)
    return ours
