"""Plans of tables: groups of a guess are drawn by the law of the release, and their intervals are measured.

The model of the data is that of :class:`~dpsketch.sketches.histogram.predict.Holdings`: users are alike, each with the
same number of records, and each record lies in a group by the guessed sizes. Values lie evenly between their bounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dpsketch.arrays import Floats, Integers
from dpsketch.errors import InvalidInput
from dpsketch.laws.bounds import BINS, EDGES
from dpsketch.laws.centred import CentredTable, TableState
from dpsketch.laws.choice import RANGES, range_of
from dpsketch.laws.content import Block
from dpsketch.laws.corners import CornerTable
from dpsketch.laws.groups import SCALE, Measure
from dpsketch.laws.ranks import RankDraws
from dpsketch.laws.rounds import WEIGHT_ONE, unit_weights
from dpsketch.numbers import number_text
from dpsketch.plan.proposal import Amount, Guess, Proposal, require_reach
from dpsketch.privacy import Budget
from dpsketch.sketches.histogram.predict import Holdings
from dpsketch.sketches.table import Column, Table, TableSpec, count
from dpsketch.sketches.table.columns import Over
from dpsketch.sketches.table.decoded import decode
from dpsketch.sketches.table.spec import BYTES_A_RECORD

__all__ = ["plan_table"]

_CONFIDENCE = 0.95
# The release is rehearsed this often, and a typical group is the mean of this many in the middle.
_REHEARSALS, _TYPICAL = 3, 24
# Pairs of a user and a group that stand for all of one group; fewer where there are many groups.
_PAIRS, _MOST_PAIRS = 64, 1 << 22
_PEOPLE = 4096
_TIMED = 50_000


def plan_table(
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None,
    limit: int | None,
    listed: bool,
    columns: Sequence[Column] | None,
) -> Proposal:
    """Predict the half-width of each column's interval in a typical group, and from which size on groups are named.

    The groups are the keys of the guess. Where the unit is a user, a mean is predicted over records and over users.
    """
    by_user = amount.unit.level == "user"
    if by_user and guess.users is None:
        raise InvalidInput("a plan for users needs a guess of their number: users=.")
    asked = tuple(columns or (count(),))
    spec = TableSpec(amount.unit, ("group",), asked, "user" if by_user else None)
    memory = math.ceil(BYTES_A_RECORD * guess.records)
    rehearsal = _Rehearsal(spec, amount, guess, listed=listed)
    also, units = rehearsal.figures, "users" if by_user else "records"
    widths = rehearsal.widths
    for place, column in enumerate(asked):
        if by_user and column.kind == "mean" and amount.delta != 0:
            other: Over = "users" if column.over == "records" else "records"
            twin = replace(column, over=other, label=column.names[0])
            changed = replace(spec, columns=(*asked[:place], twin, *asked[place + 1 :]))
            named = _Rehearsal(changed, amount, guess, listed=listed).widths[column.names[0]]
            widths = {**widths, f"{column.names[0]} over {other}": named}
    first, error = next(iter(widths.items()))
    require_reach(target_error, error, "whatever the size")
    notes = [f"Mechanism: {spec.words((rehearsal.law,))}.", *rehearsal.notes]
    if limit is not None and memory > limit:
        notes.append(f"With --memory-limit {limit} the records beyond it go to disk, as they take {memory:,} bytes.")
        memory = limit
    return Proposal(
        "table",
        {},
        amount.budget,
        error,
        f"{first}: half of a 95% interval, in a group of {number_text(also['typical_size'])} {units}",
        memory,
        _seconds(spec) * guess.records,
        {**also, **widths},
        tuple(notes),
        listed,
    )


class _Rehearsal:
    """Releases of made-up groups, drawn by the law that a release would have.

    Attributes
    ----------
    law : CentredTable or CornerTable
        The law.
    widths : dict
        Half of a 95% interval by the name of a number: its mean over typical groups.
    figures : dict
        The number of groups that are named, the size from which on they are, the size of a typical group, and the bound
        on the groups of a user.
    notes : list of str
        Assumptions of the plan.
    """

    def __init__(self, spec: TableSpec, amount: Amount, guess: Guess, *, listed: bool) -> None:
        found = spec.laws(Budget(**amount.budget), groups=range(guess.keys) if listed else None)[0]
        self.law = cast("CentredTable | CornerTable", found)
        self.notes: list[str] = []
        known = {place: self._range_of(spec, name, guess) for place, name in enumerate(spec.values)}
        names = [name for column in spec.columns for name in column.names]
        widths: dict[str, list[float]] = {name: [] for name in names}
        figures: dict[str, list[float]] = {"typical_size": [], "found": [], "named_from": [], "max_keys": []}
        for seed in range(_REHEARSALS):
            content = _Content(spec, guess, known, np.random.default_rng(seed))
            state = TableState(cast("Any", content), list(range(guess.keys)) if listed else [])
            arrays = self.law.draw(state, cast("Any", _Noise(self.law)))
            groups = self.law.listed(arrays)
            middle, decoded = _middle(groups), decode(spec, self.law, arrays)
            figures["found"].append(groups)
            figures["max_keys"].append(self.law.rows_of_a_user(arrays))
            figures["named_from"].append(self._named_from(content))
            if not groups:
                continue
            figures["typical_size"].append(float(content.sizes[middle].mean()))
            for column in spec.columns:
                for name, answer in zip(column.names, decoded.answers(column, _CONFIDENCE), strict=True):
                    widths[name].append(float((answer.high - answer.low)[middle].mean()) / 2)
        if not figures["typical_size"]:
            raise InvalidInput(
                f"no group would be named: groups are named from about {figures['named_from'][0]:.0f} on, and the "
                "largest is smaller. Give a public list of groups, or a larger budget."
            )
        if listed:
            del figures["found"], figures["named_from"]
        if spec.unit.level == "record":
            del figures["max_keys"]
        self.figures = {name: float(np.mean(each)) for name, each in figures.items()}
        self.widths = {name: float(np.mean(each)) for name, each in widths.items()}

    def _range_of(self, spec: TableSpec, name: str, guess: Guess) -> tuple[float, float]:
        """Return where single values of a column are taken to lie, and note what no column of the table states."""
        asked = [each for each in spec.measures() if each.value == spec.values.index(name) and each.stated is not None]
        for measure in asked:
            if measure.stated is not None and (measure.kind != "total" or spec.unit.level == "record"):
                return measure.stated
        for measure in asked:
            if measure.stated is not None:
                records = _records_of_a_user(spec, guess)
                low, high = (end / records for end in measure.stated)
                self.notes.append(
                    f"Values of {name} are taken to lie between {number_text(low)} and {number_text(high)}: the stated "
                    f"range of a user's total, divided by the {number_text(records)} records that a user has in a "
                    "group on average."
                )
                return low, high
        self.notes.append(
            f"Values of {name} are taken to lie between 0 and 1: read its errors as parts of the largest value, or "
            "state bounds."
        )
        return 0.0, 1.0

    def _named_from(self, content: _Content) -> float:
        """Return the size at which a group is as likely named as not."""
        if isinstance(self.law, CornerTable):
            return (self.law.cutoff or 0) / self.law.corner
        return min(
            (cutoff / weight for cutoff, weight in zip(self.law.cutoffs, content.spoken, strict=True)), default=0.0
        )


def _records_of_a_user(spec: TableSpec, guess: Guess) -> float:
    """Return the mean number of records of a user in a group, over the groups that the user is in."""
    holdings = Holdings.of(guess.counts, spec.unit, guess.users)
    if holdings.chances is None:
        return 1.0
    return max(1.0, float(guess.counts.sum()) / max(holdings.users * holdings.held, 1e-300))


def _middle(groups: int) -> slice:
    """Return the places of typical groups, of some that are ordered by size."""
    first = max(0, (groups - _TYPICAL) // 2)
    return slice(first, min(groups, first + _TYPICAL))


class _Noise:
    """A stand-in for a handle in a rehearsal, with the noise of the law's slots. The data are made up: no charge."""

    def __init__(self, law: CentredTable | CornerTable) -> None:
        self._slots = law.slots()

    def add(self, values: Integers, slot: str, *, member: Any = None) -> Integers:
        return self.adder(slot, member=member)(values)

    def adder(self, slot: str, *, member: Any = None) -> Callable[[Integers], Integers]:
        declared = self._slots[slot]
        noise = declared[member] if isinstance(declared, Mapping) else declared

        def add(chunk: Integers) -> Integers:
            noisy: Integers = chunk + noise.sample(chunk.size).reshape(chunk.shape)
            return noisy

        return add

    def draw(self, slot: str, mass: Integers) -> Integers:
        """Draw quantiles of typical groups only: exact draws take time."""
        draws: RankDraws = self._slots[slot]
        found = np.zeros((len(mass), 3, len(draws.shares)), np.int64)
        middle = _middle(len(mass))
        found[middle] = draws.draw(mass[middle])
        return found


class _Content:
    """The groups of a guess, as laws ask for the records of a table. Places go from the largest group on.

    Attributes
    ----------
    heads : numpy.ndarray
        The number of users, or records, of each group.
    rows : numpy.ndarray
        The places of the groups that became rows.
    sizes : numpy.ndarray
        The number of users, or records, of each of these groups that count.
    spoken : list of float
        The mean weight that a user of a group gave to it, by round.
    """

    def __init__(
        self, spec: TableSpec, guess: Guess, values: Mapping[int, tuple[float, float]], rng: np.random.Generator
    ) -> None:
        self._spec, self._values, self._rng = spec, values, rng
        holdings = Holdings.of(guess.counts, spec.unit, guess.users)
        self._users, self._chances = holdings.users, holdings.chances
        self.heads: Floats = guess.counts if self._chances is None else self._users * self._chances
        # Records of one user in each group, on average over all users.
        self._each = guess.counts / max(self._users, 1.0)
        self.rows: Integers = np.empty(0, np.int64)
        self.sizes: Floats = np.empty(0)
        self.spoken: list[float] = []

    def places(self) -> Integers:
        return np.arange(len(self.heads))

    def find(self, names: list[Any]) -> Integers:
        return np.array(names, np.int64)

    def names(self, places: Integers) -> list[Any]:
        return [int(place) for place in places]

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        left = np.setdiff1d(self.places(), known)
        weight = float(WEIGHT_ONE)
        if self._chances is not None:
            held = self._held(self._chances[left], float(self._each[left].sum()))
            spoken = np.minimum(1.0, cap / np.maximum(held, 1)) * unit_weights(cap)[np.minimum(held, cap)]
            if held.any():  # else one more group has all of its users' weight
                weight = float(held @ spoken / held.sum())  # of a pair, so that users count by their groups
        self.spoken.append(weight)
        sums = np.rint(self.heads[left] * weight).astype(np.int64)
        yield Block(left[sums > 0], sums[sums > 0])

    def keep(self, asked: Integers, most: Callable[[Integers], int]) -> _Kept:
        self.rows = asked
        others = np.setdiff1d(self.places(), asked)
        if self._chances is None:
            heads = np.append(self.heads[asked], self.heads[others].sum())
            self.sizes = heads[:-1]
            return _Kept(self._spec, self._values, heads, np.zeros(len(heads)), float(heads.sum()), self._rng)
        each = np.append(self._each[asked], self._each[others].sum())
        chances = -np.expm1(-each)
        held = self._held(chances, float(each.sum()))
        ranges = np.bincount(range_of(held[held > 0]), minlength=RANGES)
        cap = most(np.rint(ranges * self._users / _PEOPLE).astype(np.int64))
        kept = float(np.minimum(held, cap).sum() / max(held.sum(), 1))
        more = each / np.maximum(chances, 1e-300) - 1  # records of a user in a group that it is in, beyond the first
        people = self._users * float(np.mean(held > 0))
        heads = kept * self._users * chances
        self.sizes = heads[:-1]
        return _Kept(self._spec, self._values, heads, more, people, self._rng)

    def _held(self, chances: Floats, records: float) -> Integers:
        """Return the number of rows of each of some users: binomial, with the mean of the chances.

        Its largest value is the one that gives it their variance too, but no more than the records of a user.
        """
        mean, square = float(chances.sum()), float(chances @ chances)
        if not mean:
            return np.zeros(_PEOPLE, np.int64)
        trials = max(math.ceil(mean), min(round(mean**2 / square), round(records)))
        return self._rng.binomial(trials, mean / trials, _PEOPLE)


class _Kept:
    """Rows of a guess, each with some pairs that stand for all: numbers of records, and means of values."""

    def __init__(
        self, spec: TableSpec, values: Mapping[int, tuple[float, float]], heads: Floats, more: Floats, units: float,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self._by_user, self._values, self._heads, self._units = spec.unit.level == "user", values, heads, units
        pairs = max(1, min(_PAIRS, _MOST_PAIRS // len(heads)))
        self._records: Floats = np.asarray(
            1.0 + rng.poisson(np.maximum(more, 0.0)[:, None], (len(heads), pairs)), np.float64
        )
        # The mean of c even numbers has the mean ½ and the variance 1/(12c).
        self._places = {
            value: 0.5 + (rng.random((len(heads), pairs)) - 0.5) / np.sqrt(self._records) for value in values
        }

    def users(self) -> Integers:
        found: Integers = np.rint(self._heads).astype(np.int64)
        return found

    def shape(self, measure: Measure) -> Integers:
        if measure.kind in ("record_mean", "quantiles"):
            parts = np.diff(self._below(measure, EDGES), prepend=0.0, append=1.0)
        else:
            bins = np.searchsorted(EDGES, self._amount(measure), side="right").ravel()
            weights = np.repeat(self._heads, self._records.shape[1])
            parts = np.bincount(bins, weights, minlength=BINS) / max(weights.sum(), 1.0)
        found: Integers = np.rint(parts * self._units).astype(np.int64)
        return found

    def centred(self, measure: Measure, bounds: tuple[float, float], records: int) -> Integers:
        placed = 2 * self._placed(measure, bounds) - 1
        if measure.kind == "record_mean":
            placed *= np.minimum(self._records, records) / records
        found: Integers = np.rint(self._heads * SCALE * placed.mean(axis=1)).astype(np.int64)
        return found

    def cells(self, measures: Sequence[tuple[Measure, tuple[float, float]]], steps: int) -> Integers:
        placed = [self._placed(measure, bounds) for measure, bounds in measures]
        found = []
        for cell in range(1 << len(placed)):
            product = np.ones_like(self._records)
            for place, each in enumerate(placed):
                product *= steps * (each if cell >> place & 1 else 1 - each)
            found.append(self._heads * product.mean(axis=1))
        cells: Integers = np.rint(np.stack(found, axis=1)).astype(np.int64)
        return cells

    def leaves(self, measure: Measure, edges: Sequence[float], scale: int) -> Integers:
        return self._spread(np.append(self._below(measure, edges), 1.0), scale)

    def slots(self, measure: Measure, edges: Sequence[float], firsts: Integers, scale: int) -> Integers:
        below = np.concatenate([[0.0], self._below(measure, edges), [1.0]])
        return self._spread(np.interp(np.arange(1, firsts[-1] + 1), firsts, below), scale)

    def _spread(self, below: Floats, scale: int) -> Integers:
        """Return the mass of each part of every row, from the share of values below its end."""
        mass: Integers = np.rint(self._heads[:, None] * scale * below).astype(np.int64)
        found: Integers = np.diff(mass, axis=1, prepend=0)
        return found

    def _below(self, measure: Measure, edges: Sequence[float]) -> Floats:
        """Return the share of single values below each edge."""
        low, high = self._values[measure.value]
        found: Floats = np.clip((np.asarray(edges) - low) / max(high - low, 1e-300), 0.0, 1.0)
        return found

    def _placed(self, measure: Measure, bounds: tuple[float, float]) -> Floats:
        """Return where the number of each pair lies between bounds, from 0 to 1."""
        found: Floats = np.clip((self._amount(measure) - bounds[0]) / max(bounds[1] - bounds[0], 1e-300), 0.0, 1.0)
        return found

    def _amount(self, measure: Measure) -> Floats:
        records: Floats = self._records
        if measure.kind == "count":
            return records
        low, high = self._values[measure.value]
        mean: Floats = low + (high - low) * self._places[measure.value]
        return records * mean if measure.kind == "total" and self._by_user else mean


def _seconds(spec: TableSpec) -> float:
    """Return about how long a record takes to be added, on this machine."""
    table = Table.from_spec(spec)
    numbers = np.arange(_TIMED)
    columns = dict.fromkeys((*spec.by, *spec.values), numbers % 1000)
    if spec.user is not None:
        columns[spec.user] = numbers // 4
    frame = pa.table({name: pa.array(each) for name, each in columns.items()})
    began = time.perf_counter()
    table.update(frame)
    return (time.perf_counter() - began) / _TIMED
