"""Sketches that count keys: how records come to them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.partials import Partial

__all__ = ["KeyedPartial"]


class KeyedPartial(Partial):
    """A sensitive sketch of keys, each record's with a weight, and with a user where users are protected."""

    @takes_frames
    def update(
        self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None, disjoint_users: bool = False
    ) -> None:
        """Add records.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor", weight="n")``; ``count=`` names what ``counts=`` holds.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Integers or text, as far as the spec takes them. Null keys are skipped and counted in
            :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. All records of a user must
            come in one update: the sketch remembers whom it has counted, and refuses them later. Null users are
            skipped like null keys.
        weights : numbers, optional
            A record's weight, rounded to the grid and clipped to ``unit.max_weight``. Default 1. Where the unit is a
            user, the weights of a user's records of one key are added up and clipped together.
        counts : whole numbers, optional
            So many equal records at once. Not clipped, since each is a record of its own; refused where the unit is a
            user.
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch that this one is merged with. Nothing is
            then compared or remembered, every later update and merge must state it too, and the release says that it
            was not checked. For users too many to remember, at eight bytes each.
        """
        self._update(keys, users, weights, counts, disjoint_users)

    @abstractmethod
    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        """Add records, as one change."""
