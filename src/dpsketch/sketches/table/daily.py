"""A day of a stream of tables: exact head counts and centred columns of a public list of groups.

A stream adds up the contributions of days, and so the bounds of a contribution must be known before the first record:
groups are a public list, and the bounds of users and values are stated. A pair of a user and a row, which is a record
where the unit is one, then adds STEPS to the head count of its row, and between −STEPS and STEPS to the centred column
of each measure (:mod:`dpsketch.laws.centred` has the form). Values between two steps are rounded at random. Each day
bounds its users by itself; the stream bounds their days.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.names import are_names, stored_names
from dpsketch.sketches.histogram.named import of_one_type, read_names
from dpsketch.sketches.table.sketch import Table, listed_groups
from dpsketch.sketches.table.spec import DAY_STEPS, DAY_USERS, TableSpec, day_column

__all__ = ["TableDay"]


class TableDay(Table):
    """The records of one day of a stream of tables. Sensitive."""

    # The public list of groups, each once: whole numbers, or the bytes of texts.
    listed: list[Any]

    @classmethod
    def of_keys(cls, spec: TableSpec, keys: Any) -> Self:
        """Start the day of a stream that publishes a public list of groups."""
        if keys is None:
            raise InvalidInput(
                "a stream of tables publishes a public list of groups: say keys=[…]. To find the names of groups, "
                "release a table for each day, as a part of its dataset."
            )
        names, types = listed_groups(keys, spec)
        if not names:
            raise InvalidInput("keys= is a list of at least one group.")
        numbers = len(spec.by) == 1 and isinstance(names[0], int)
        day = cls.from_spec(replace(spec, types=types, key_type="int" if numbers else "text").daily())
        day.listed = list(map(_plain, names))
        return day

    def empty_like(self) -> Self:
        """Start an empty day of the same list."""
        day = super().empty_like()
        day.listed = self.listed
        return day

    def lists(self, keys: Any) -> bool:
        """Say whether this is the public list, whatever its order."""
        names, _ = listed_groups(keys, self._spec)
        return set(map(_plain, names)) == set(self.listed)

    def _add(self, records: Any, **given: Any) -> None:
        """Add records, as part of a change. The spec takes no types of columns from them: all days have the same."""
        spec = self._spec
        super()._add(records, **given)
        self._spec = spec

    def _exact(self) -> dict[str, Integers]:
        """Return the day's head counts and centred columns. Sensitive.

        Privacy
        -------
        Each user keeps at most ``max_keys`` rows, and each kept pair adds what the module says at most.
        """
        spec, rows = self._spec, len(self.listed) + 1
        if self._store.key_type is None:
            return {table.name: np.zeros(rows, np.int64) for table in spec.shares()}
        names = read_names(stored_names(self.listed), spec)
        with self._opened() as content:
            places = content.find([str(name) if spec.key_columns else name for name in names])
            kept = content.keep(places, lambda _: spec.unit.max_keys)
            found = {DAY_USERS: DAY_STEPS * kept.users()}
            for measure in spec.measures():
                assert measure.stated is not None
                below, above = kept.cells([(measure, measure.stated)], DAY_STEPS).T
                found[day_column(measure)] = above - below
        return found

    def _to_document(self) -> files.Document:
        document = super()._to_document()
        return replace(document, arrays={**document.arrays, "listed": stored_names(self.listed)})

    def _restore(self, document: files.Document) -> None:
        listed = document.arrays.get("listed")
        names = read_names(listed, self._spec)
        if not names or not are_names(listed) or not of_one_type(names, self._spec.key_type):
            raise FileRefused("the file's groups are not those of a stream.")
        self.listed = [_plain(name) for name in names]
        super()._restore(document)


def _plain(name: Any) -> Any:
    """Return the name of a group as a stream holds it: a whole number, or the bytes of a text."""
    return name if isinstance(name, int | bytes) else str(name).encode()
