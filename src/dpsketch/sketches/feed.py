"""From the batches of a source to a sketch of any kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.bounding import Cut, UserColumn, whole_users
from dpsketch.sketches.kinds import KINDS, row_of
from dpsketch.sources import Batch

__all__ = ["add_batch", "feed"]


def feed(sketch: Any, batches: Iterable[Batch], *, disjoint_users: bool = False) -> None:
    """Add the records of batches to a sketch; where its kind takes users whole, they must be sorted by user.

    All of them are one change: interrupted when some are added, the sketch refuses to go on. ``disjoint_users`` is that
    of the sketch's own ``update``.
    """
    by_user = sketch.spec.unit.level == "user" and KINDS[sketch.kind].whole_users
    cuts: list[Cut] = []
    whole = whole_users(batches, sketch.spec, cuts.append) if by_user else batches
    # A batch without rows still says what the keys of its source are.
    told = (batch for batch in whole if batch.rows or batch.key is not None)
    sketch.update_in_turn((_arguments(sketch, batch, disjoint_users) for batch in told), cuts)


def add_batch(sketch: Any, batch: Batch, *, disjoint_users: bool = False) -> None:
    """Add the records of one batch, which holds each of its users whole."""
    sketch.update_in_turn([_arguments(sketch, batch, disjoint_users)])


def _arguments(sketch: Any, batch: Batch, disjoint_users: bool) -> tuple[Any, dict[str, Any]]:
    """Return what the sketch's ``update`` takes for a batch."""
    # Records that whole_users folded carry weights, which mean nothing where each key or point counts once.
    weights = batch.weight if row_of(sketch).weighs else None
    users: Any = batch.user
    if users is not None and batch.user_type is not None:
        pattern = users.view(pa.uint64()) if batch.user_type == "uint64" else users
        users = UserColumn(pa.chunked_array([pattern]), batch.user_type)
    given = {"users": users, "weights": weights, "counts": batch.count, "disjoint_users": disjoint_users or None}
    if row_of(sketch).reads == "groups":
        values = [np.asarray(column) for column in batch.points]
        return batch.key, {"values": values, "key_types": batch.key_types} | _stated(given)
    records = np.column_stack([np.asarray(column) for column in batch.points]) if batch.points else batch.key
    return records, _stated(given)


def _stated(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
