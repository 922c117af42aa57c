"""Whom a sketch has counted, so that nobody is counted twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpsketch._compiled import bounding as kernels
from dpsketch.bounding.groups import Bounded, Prints
from dpsketch.columns import USER_TYPES, UserType
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch

__all__ = ["CountedUsers"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CountedUsers:
    """Whom a sketch has counted; refuses to count anyone twice. Sensitive.

    Attributes
    ----------
    runs : tuple of numpy.ndarray of uint64
        Fingerprints of users, strictly increasing in each run, each run more than twice as long as the next.
    user_type : UserType or None
        The type of the users' columns. A sketch takes one type only: one person has other values in other types.
    stated : bool
        Whether the caller stated at some time that users are disjoint. That was not checked, and a release says so.
    complete : bool
        Whether every counted user is remembered. Otherwise none is, and nothing can be added without such a statement.
    """

    runs: tuple[Prints, ...] = ()
    user_type: UserType | None = None
    stated: bool = False
    complete: bool = True

    def __repr__(self) -> str:
        return "<CountedUsers; sensitive, content not shown>"

    def typed(self, found: UserType | None) -> CountedUsers:
        """Return this for users of a type, None if a batch does not say; refuse another type than before."""
        if found is None or found == self.user_type:
            return self
        if self.user_type is not None:
            raise SpecMismatch(
                f"these users are {USER_TYPES[found]}, and those counted before are {USER_TYPES[self.user_type]}: one "
                "person could count as two. Nothing was added. Convert the columns of users to one type."
            )
        return replace(self, user_type=found)

    def extended(self, batch: Bounded, *, disjoint_users: bool = False) -> CountedUsers:
        """Return this with the users of a batch.

        Parameters
        ----------
        batch : Bounded
            The batch that is about to be counted.
        disjoint_users : bool
            The caller states that no user of this batch is in any other. Nothing is compared, and nothing remembered.

        Raises
        ------
        InvalidInput
            If a user of the batch was counted before, or nobody remembers who was.
        SpecMismatch
            If the users are of another type than those counted before.
        """
        user_type = self.typed(batch.user_type).user_type
        if disjoint_users:
            return CountedUsers((), user_type, stated=True, complete=False)
        _refuse_forgetful(self.complete)
        prints = _increasing(batch.users)
        if any(kernels.share(run, prints) for run in self.runs):
            raise InvalidInput(
                "some users of this batch were counted before, and would count twice; nothing was added. Give all "
                "records of a user in one update, or sort by user (the command line does)."
            )
        return replace(self, runs=_compact((*self.runs, prints)), user_type=user_type)

    def merged(self, other: CountedUsers, *, disjoint_users: bool = False) -> CountedUsers:
        """Return the users of two sketches together.

        Parameters
        ----------
        other : CountedUsers
            Those of the other sketch.
        disjoint_users : bool
            The caller states that the sketches share no user. Nothing is compared; both sides' users stay remembered.

        Raises
        ------
        InvalidInput
            If the sketches share a user, or one of them does not remember its own.
        SpecMismatch
            If the users of the two are of different types.
        """
        user_type = self.typed(other.user_type).user_type
        complete = self.complete and other.complete
        if not disjoint_users:
            _refuse_forgetful(complete or not (self._anyone and other._anyone))
            ours, theirs = self.to_array(), other.to_array()
            if kernels.share(*sorted((ours, theirs), key=len, reverse=True)):
                raise InvalidInput(
                    "cannot merge: some users are in both sketches, and would count twice. Partition the records by "
                    "user, so that each is in one sketch only."
                )
        runs = _compact((*self.runs, *other.runs)) if complete else ()
        stated = self.stated or other.stated or disjoint_users
        return CountedUsers(runs, user_type, stated, complete)

    @property
    def _anyone(self) -> bool:
        return bool(self.runs) or not self.complete

    def to_array(self) -> Prints:
        """Return the fingerprints of the users that are remembered, strictly increasing."""
        union = np.empty(0, np.uint64)
        for run in reversed(self.runs):
            union = _unite(run, union)
        return union

    def to_json(self) -> dict[str, Any]:
        """Return all but the fingerprints as JSON-ready values."""
        return {"type": self.user_type, "stated": self.stated, "complete": self.complete}

    @classmethod
    def from_stored(cls, prints: Any, value: dict[str, Any]) -> Self:
        """Rebuild from :meth:`to_array` and :meth:`to_json`; a file may have been written by anyone."""
        user_type, stated, complete = (value[name] for name in ("type", "stated", "complete"))
        known = user_type in (None, *USER_TYPES) and isinstance(stated, bool) and isinstance(complete, bool)
        known &= isinstance(prints, np.ndarray) and prints.ndim == 1 and prints.dtype == np.uint64
        known = known and bool(np.all(prints[1:] > prints[:-1])) and (complete or (stated and len(prints) == 0))
        if not known:
            raise FileRefused("the file's list of counted users is not one that dpsketch writes.")
        return cls((prints.copy(),) if len(prints) else (), user_type, stated, complete)

    @property
    def caveat(self) -> str | None:
        """What a release must say about the users, if anything."""
        if not self.stated:
            return None
        return (
            "That no user was counted twice is the data holder's statement (disjoint_users=True); it was not checked."
        )


def _refuse_forgetful(complete: bool) -> None:
    if not complete:
        raise InvalidInput(
            "a user counted twice would go unseen, because disjoint_users=True was stated before and users are no "
            "longer remembered. State it here too, if it is true, or start anew without it."
        )


def _increasing(prints: Prints) -> Prints:
    """Return the distinct values in order; sorting is several times faster than ``np.unique``, which hashes."""
    ordered = np.sort(prints)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _unite(a: Prints, b: Prints) -> Prints:
    if len(a) == 0 or len(b) == 0:
        return b if len(a) == 0 else a
    union = np.empty(len(a) + len(b), np.uint64)
    return union[: kernels.unite(a, b, union)]


def _compact(runs: Iterable[Prints]) -> tuple[Prints, ...]:
    """Merge runs until each is more than twice as long as the next: many small updates then cost n log n in all."""
    stack: list[Prints] = []
    for run in sorted(runs, key=len, reverse=True):
        stack.append(run)
        while len(stack) > 1 and len(stack[-2]) <= 2 * len(stack[-1]):
            last = stack.pop()
            stack[-1] = _unite(stack[-1], last)
    return tuple(run for run in stack if len(run))
