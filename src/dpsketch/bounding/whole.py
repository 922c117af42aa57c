"""Cut a source that is sorted by user into batches that hold each user whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.bounding.cuts import Cut, cut_by_folding
from dpsketch.bounding.groups import bound, point_fingerprints
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.privacy import Unit

if TYPE_CHECKING:
    from dpsketch.sources import Batch

__all__ = ["BoundedSpec", "WeightSteps", "whole_users"]

# The records of the user being read are folded once they take so many bytes.
_FOLD_BYTES = 1 << 25


class WeightSteps(Protocol):
    """How weights become whole units; a sketch's ``WeightGrid``."""

    @property
    def step(self) -> float:
        """What one unit weighs."""

    @property
    def max_units(self) -> int:
        """The most units on one key."""

    @property
    def one(self) -> int:
        """The units of a record without a stated weight."""

    def units(self, weights: Any, n: int) -> npt.NDArray[np.int64]:
        """Turn weights into units."""


class BoundedSpec(Protocol):
    """What bounding needs to know of a sketch's spec."""

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""

    @property
    def seed(self) -> int:
        """What orders a user's keys."""

    @property
    def weight_grid(self) -> WeightSteps:
        """How weights become units."""


def whole_users(
    batches: Iterable[Batch], spec: BoundedSpec, cut: Callable[[Cut], None] | None = None
) -> Iterator[Batch]:
    """Cut batches that are sorted by user anew, so that each user lies in one batch.

    A user's records that span batches are held until the user ends. When they take more than 32 MB they are folded to
    the ``max_keys`` keys that :func:`bound` would keep of them, each with its weight, so that memory stays bounded
    whatever one user has. Folding changes no sketch, only the number of rows and the batch's ``weight``.

    Parameters
    ----------
    batches : iterable of Batch
        As from ``open_source(…, sort_by_user=True)``. If they are not sorted, nobody is lost or counted twice: the
        sketch refuses the second batch that holds a user.
    spec : BoundedSpec
        The spec of the sketch that the batches are for.
    cut : callable, optional
        Is told what folding cuts of a user, which the sketch cannot see any more. A key that a later fold leaves out
        is one record to it, however many there were.
    """
    current: _OpenUser | None = None
    for batch in batches:
        if batch.rows == 0:
            yield batch
            continue
        if batch.user is None:
            raise InvalidInput("whole_users needs to know whose each record is: name the user's column.")
        user = batch.user
        start = 0
        if current is not None and current.user == user[0]:
            start = _run_end(user)
            current.add(_cut(batch, 0, start))
            if start == batch.rows:
                continue
        if current is not None:
            yield current.whole()
        last: int = start + user.slice(start).index(user[-1]).as_py()  # index(…, start) would import pandas
        if last > start:
            yield _cut(batch, start, last)
        current = _OpenUser(user[-1], spec, cut)
        current.add(_cut(batch, last, batch.rows))
    if current is not None:
        yield current.whole()


class _OpenUser:
    """The user being read, who may go on in the next batch."""

    def __init__(self, user: Any, spec: BoundedSpec, cut: Callable[[Cut], None] | None) -> None:
        self.user = user
        self._spec = spec
        self._cut = cut
        self._pieces: list[Batch] = []
        self._bytes = 0
        self._limit = _FOLD_BYTES

    def add(self, piece: Batch) -> None:
        self._pieces.append(piece)
        self._bytes += _bytes(piece)
        if self._bytes > self._limit:
            folded, cut = _fold(self.whole(), self._spec)
            if self._cut is not None:
                self._cut(cut)
            self._pieces = [folded]
            self._bytes = _bytes(folded)
            # A user may keep more keys than that: fold again only when half of what is held is new.
            self._limit = max(_FOLD_BYTES, 2 * self._bytes)

    def whole(self) -> Batch:
        return _join(self._pieces, self._spec.weight_grid)


def _run_end(user: pa.Array) -> int:
    """Return where the first user of a column ends."""
    import pyarrow.compute as pc

    same = pc.equal(user, user[0])
    other: int = pc.invert(same).index(same[0]).as_py()  # True itself would become a scalar, which imports pandas
    return len(user) if other < 0 else other


def _bytes(batch: Batch) -> int:
    return sum(column.nbytes for column in (batch.key, batch.user, batch.weight, *batch.points) if column is not None)


def _cut(batch: Batch, start: int, stop: int) -> Batch:
    key, user, weight, *points = (
        None if column is None else column.slice(start, stop - start)
        for column in (batch.key, batch.user, batch.weight, *batch.points)
    )
    skipped = batch.skipped if start == 0 else 0
    return replace(batch, key=key, user=user, weight=weight, points=tuple(points), rows=stop - start, skipped=skipped)


def _join(pieces: Sequence[Batch], grid: WeightSteps) -> Batch:
    if len(pieces) == 1:
        return pieces[0]
    weights = [piece.weight for piece in pieces]
    if any(weight is not None for weight in weights):  # a folded piece has weights where its source has none
        each = grid.one * grid.step
        weights = [
            pa.array(np.full(piece.rows, each)) if weight is None else weight
            for piece, weight in zip(pieces, weights, strict=True)
        ]
    columns = zip(*((piece.key, piece.user, *piece.points) for piece in pieces), strict=True)
    key, user, *points = (_concatenated(column) for column in columns)
    return replace(
        pieces[0],
        key=key,
        user=user,
        weight=_concatenated(weights),
        points=tuple(points),
        rows=sum(piece.rows for piece in pieces),
        skipped=sum(piece.skipped for piece in pieces),
    )


def _concatenated(columns: Sequence[pa.Array | None]) -> pa.Array | None:
    arrays = [column for column in columns if column is not None]
    if not arrays:
        return None
    # A column that held nothing but nulls so far has no type.
    kind = next((array.type for array in arrays if not pa.types.is_null(array.type)), pa.null())
    return pa.concat_arrays([array.cast(kind) for array in arrays])


def _fold(batch: Batch, spec: BoundedSpec) -> tuple[Batch, Cut]:
    """Reduce one user's records to those that bounding keeps, one for each key, and say what that cuts."""
    grid = spec.weight_grid
    keys = point_fingerprints(batch.points) if batch.key is None else fingerprint(batch.key)
    units = grid.one if batch.weight is None else grid.units(batch.weight, batch.rows)
    kept = bound(batch.user, keys, units, max_keys=spec.unit.max_keys, max_units=grid.max_units, seed=spec.seed)
    rows = pa.array(kept.rows)
    key, user, *points = (
        None if column is None else column.take(rows) for column in (batch.key, batch.user, *batch.points)
    )
    weight = pa.array(kept.units * grid.step)
    folded = replace(
        batch,
        key=key,
        user=user,
        weight=weight,
        points=tuple(points),
        rows=len(rows),
        skipped=batch.skipped + kept.skipped,
    )
    return folded, cut_by_folding(grid, kept, batch.weight)
