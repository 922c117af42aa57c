"""Tables of groups: a unit's move is exact, and the noise of rows is that of releases with many rows of nobody.

A release of a public list of groups in which nobody is shows its noise, row by row. Rows carry noise of their own. As
many of them as a unit may leave and enter are one run: four of a user with two groups, two of a record. What shapes and
ranges of users tell, a few hundredths of the budget, is left to the unit.

A name that one record holds alone shows with probability δ. Many of them in one release are as many runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.arrays import Floats
from dpsketch.audit.bounds import clopper_pearson
from dpsketch.audit.findings import GAUSSIAN, PURE, Attacked, AuditRow, Finding, printed_promise, spent
from dpsketch.audit.losses import bisected, gaussian_bound, laplace_bound, seen_numbers
from dpsketch.laws.centred import USERS, CentredTable, column_of
from dpsketch.laws.corners import CELLS
from dpsketch.laws.groups import SCALE
from dpsketch.sketches.table import Table, columns
from dpsketch.sketches.table.private import PrivateTable

__all__ = ["TABLES"]

# A unit's records: group and value. The bounds of values are 0 and 1.
Records = list[tuple[str, float]]

_KEYS, _MOST_GROUPS = 2, 4000
_LISTS = {"user": ["a", "b", "c"], "record": ["a"]}
# Runs are cheap: a release has many.
_RUNS_A_TRIAL = 4
_REST: Records = [("a", 0.5), ("c", 0.5)]
_NAMES = Attacked(epsilon=1.0, delta=0.01)
# What the unit holds in the two datasets, by pair.
_PAIRS: dict[str, dict[str, tuple[Records, Records]]] = {
    "add_remove": {"worst": ([], [("a", 9.0), ("b", 9.0)]), "clipped": ([], [("a", -1e9)] * 50 + [("b", 1e9)] * 50)},
    "replace": {
        "worst": ([("a", 9.0), ("b", 9.0)], [("c", 9.0), ("elsewhere", 9.0)]),
        "colliding": ([("a", 9.0), ("b", 9.0)], [("a", -9.0), ("b", -9.0)]),
        "clipped": ([("a", -1e9)] * 50 + [("b", 1e9)] * 50, [("c", 1e9)]),
    },
}
_WORDS = {
    "worst": "a unit in groups of its own, at a bound",
    "colliding": "a unit in the groups of the other, at the other bound",
    "clipped": "a unit that holds far more than the bounds let pass",
    "alone": "a record in a group that nobody else is in",
}


@dataclass(frozen=True, slots=True)
class Grouped(AuditRow):
    """A table at one unit and relation."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release until there are four times ``trials`` runs, and bound ε from below on each pair."""
        if self.subject == "groups-names":
            return [self._names(trials, confidence)]
        asked = GAUSSIAN if self.subject == "groups-gaussian" else PURE
        claim = printed_promise(self._released([], asked).guarantee)
        noise, found = self._noise(_RUNS_A_TRIAL * trials, asked), []
        for pair, sides in _PAIRS[self.relation].items():
            first, second = (self._exact(side) for side in sides)
            seen, shift = seen_numbers(noise, second - first)
            if asked["delta"]:
                bound = gaussian_bound(seen, shift, claim.delta, confidence)
            else:
                bound = laplace_bound(seen, shift, confidence)
            found.append(self.finding((pair, _WORDS[pair]), claim, bound, "known shift", len(noise), "law"))
        return found

    def _table(self) -> Table:
        asked = [columns.users(), columns.sum("x", bounds=(0, 1))]
        if self.subject == "groups-gaussian":
            asked.append(columns.mean("x", bounds=(0, 1), over="users"))
        if self.level == "user":
            return Table(by="group", columns=asked, user="user", max_keys=_KEYS, neighbours=self.relation)
        return Table(by="group", columns=asked, neighbours=self.relation)

    def _released(self, records: Records, budget: Mapping[str, Any], groups: Sequence[str] = ()) -> PrivateTable:
        """Release a table of what the unit holds beside others; of a record, the first one alone."""
        held = records if self.level == "user" else records[:1]
        rows = [*((f"other {i}", *each) for i, each in enumerate(_REST)), *(("unit", *each) for each in held)]
        users, names, values = zip(*rows, strict=True)
        table = self._table()
        table.update(pa.table({"user": users, "group": names, "x": values}))
        return table.release(**budget, groups=groups or _LISTS[self.level])

    def _exact(self, records: Records) -> Floats:
        """Return the numbers of all rows, at so large a budget that next to nothing is added."""
        budget = {"rho": 1e9} if self.subject == "groups-gaussian" else {"epsilon": 1e5, "delta": 0.0}
        return _numbers(self._released(records, budget)).ravel()

    def _noise(self, wanted: int, asked: Attacked) -> Floats:
        """Return the noise of runs: of rows that nobody is in, as many at a time as a unit may move."""
        rows, runs = len(_LISTS[self.level]) + 1, list[Floats]()
        groups = [f"group {i}" for i in range(min(rows * wanted, _MOST_GROUPS))]
        while sum(map(len, runs)) < wanted:
            numbers = _numbers(self._released([], spent(asked, self.noise), groups))[:-1]
            runs.append(numbers.reshape(len(numbers) // rows, -1))
        return np.concatenate(runs)[:wanted]

    def _names(self, trials: int, confidence: float) -> Finding:
        """Release records that are each alone in their group, and count the names that show; none may without them."""
        runs, table = 10 * trials, self._table()
        table.update(pa.table({"group": [f"name {i}" for i in range(runs)], "x": np.full(runs, 0.5)}))
        claim = printed_promise(table.release(**_NAMES).guarantee)
        private = table.release(epsilon=_NAMES["epsilon"], delta=_NAMES["delta"] / self.noise**3)
        wrong = (1 - confidence) / 2
        never = float(clopper_pearson(np.array([0.0]), runs, wrong)[1][0])

        def bound(shown: float) -> float:
            """Return ε at δ from how many names show with their record; none show without."""
            beyond = float(clopper_pearson(np.array([shown]), runs, wrong)[0][0]) - claim.delta
            return max(0.0, math.log(beyond / never)) if beyond > 0 else 0.0

        caught = bisected(lambda share: bound(runs * claim.delta / share**3) > claim.epsilon, 0.5, 1.0, 5e-3)
        found = bound(len(private.groups))
        return self.finding(("alone", _WORDS["alone"]), claim, found, "shown names", runs, "sampled", caught)


def _numbers(private: PrivateTable) -> Floats:
    """Return the published numbers by row; those with Gaussian noise in units of what a row may add."""
    law, arrays = private.law, private.drawn.parts["table"].arrays
    if not isinstance(law, CentredTable):
        return np.asarray(arrays[CELLS], np.float64)
    measured = [np.asarray(arrays[column_of(place)], np.float64) / SCALE for place in range(len(law.measures))]
    return np.stack([np.asarray(arrays[USERS], np.float64), *measured], axis=1)


_ALL = [
    *(Grouped("groups-gaussian", "user", relation) for relation in ("add_remove", "replace")),
    *(Grouped("groups-corners", "record", relation) for relation in ("add_remove", "replace")),
    *(Grouped("groups-names", "record", relation) for relation in ("add_remove", "replace")),
]
TABLES: dict[str, Grouped] = {row.name: row for row in _ALL}
