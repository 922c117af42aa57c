"""The sensitive histogram: exact counts by key come in, names with private counts go out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.bounding import Cut, cut_of_records, read_users
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, typed_column
from dpsketch.laws.entries import HistogramState
from dpsketch.laws.thresholds import Form
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.histogram.disk import Disk, Limit
from dpsketch.sketches.histogram.held import Held, Opened
from dpsketch.sketches.histogram.named import named_column, names_of
from dpsketch.sketches.histogram.pairs import check_room
from dpsketch.sketches.histogram.private import PrivateHistogram
from dpsketch.sketches.histogram.rows import kept_rows, taken
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.weights import checked_total, whole_counts

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Histogram"]


_ALL = 1 << 31  # keys of one user, more than anybody has


class Histogram(Sketch[HistogramSpec, PrivateHistogram]):
    """The sensitive histogram: counts every key exactly, merges, and is released once its budget is charged.

    Use it wherever the keys, or the pairs of users and keys, can be held: no sketch answers better. Its releases hold
    the *names* of keys, of those that the mechanism lets pass or of a public list. If the distinct keys fit neither in
    memory nor on disk, use a :class:`~dpsketch.VoteHistogram`.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``. Users may come in any order, over any number of updates
        and partials: they are bounded when the histogram is released.
    grid : float, optional
        The step to which weights are rounded.
    key_type : {"int", "text"}, optional
        What the keys are. By default what a column's own type says.
    memory_limit : str, optional
        About how much memory the histogram may take, such as ``"2GB"``: what does not fit goes to disk, through DuckDB,
        into a folder that only this user can open and that is gone with the histogram. Its releases are the same. A
        ``.sketch`` file is still written and read in memory, and one user's keys must fit. By default nothing goes to
        disk.
    temp_directory : path, optional
        Goes with ``memory_limit``: where that folder is made; the system's choice by default.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.Histogram(unit=dps.per_record())
    >>> histogram.update(["tea"] * 900 + ["coffee"] * 700 + ["a rare one"])
    >>> private = histogram.release(epsilon=1.0, delta=1e-6)
    >>> private.keys
    ['coffee', 'tea']
    >>> listed = histogram.release(epsilon=1.0, delta=0, keys=["tea", "milk"])
    >>> bool(abs(listed.estimate(["tea"]).value[0] - 900) < 30)
    True
    """

    kind: ClassVar[str] = "histogram"
    spec_type: ClassVar[Any] = HistogramSpec
    release_type: ClassVar[Any] = PrivateHistogram
    chooses_bounds: ClassVar[bool] = True

    _limit: Limit | None
    _disk: Disk | None

    def __init__(
        self,
        *,
        unit: Unit,
        grid: float = 1,
        key_type: KeyType | None = None,
        memory_limit: str | None = None,
        temp_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if memory_limit is None and temp_directory is not None:
            raise InvalidInput("temp_directory= goes with memory_limit=: without it nothing goes to disk.")
        self._start(HistogramSpec(unit, grid, key_type))
        self._spec.weight_grid.refuse_without_one()
        if memory_limit is not None:
            self._limit = Limit.of(memory_limit, None if temp_directory is None else os.fspath(temp_directory))

    def _start(self, spec: HistogramSpec) -> None:
        super()._start(spec)
        self._held = Held(spec)
        # The content beyond the memory limit, if there is one.
        self._limit = self._disk = None
        # Whether a partial with another secret was merged into this one, whatever it held.
        self._apart = False
        # Whether a secret came from a seeded source.
        self._for_tests = noise_is_for_tests()

    def empty_like(self) -> Self:
        """Start an empty histogram that will merge with this one, and shares its secret hash."""
        sketch = super().empty_like()
        sketch._held = Held(self._spec, self._held)
        sketch._limit = self._limit
        return sketch

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count a batch; users are bounded at release."""
        column, found, declared = named_column(columns.records, self._key_type)
        if self._protects_users(columns.users, disjoint_users, columns.counts):
            self._add_users(column, columns.users, columns.weights)
        else:
            self._add_records(column, columns.weights, columns.counts)
        self._note_type(found, declared)

    def _add_records(self, column: pa.ChunkedArray, weights: Any, counts: Any) -> None:
        n, grid = len(column), self._spec.weight_grid
        units: Integers | int = grid.one if weights is None else grid.units(weights, n)
        multiples: Integers | int = 1 if counts is None else whole_counts(counts, n)
        mass = checked_total(self._mass, units, multiples, n)
        each = units * multiples
        amounts = None if isinstance(each, int) and each == 1 else np.ascontiguousarray(np.broadcast_to(each, (n,)))
        kept = kept_rows(column)
        self._begin_change()
        self._mass = mass
        skipped = 0
        for part in self._parts(n):
            skipped += self._held.keys.count(_part(column, part), None if amounts is None else amounts[part])[1]
            self._spill()
        self._skipped += skipped
        self._cut += cut_of_records(grid, n - skipped, kept, weights, counts)

    def _add_users(self, column: pa.ChunkedArray, users: Any, weights: Any) -> None:
        n, grid = len(column), self._spec.weight_grid
        read = read_users(users, n)
        owners, counted = read.column, self._counted.typed(read.user_type)
        units = np.full(n, grid.one, np.int64) if weights is None else grid.units(weights, n)
        mass = checked_total(self._mass, units, 1, n)
        check_room(len(self._held.users) + n, len(self._held.keys) + n)
        whole = np.ones(n, np.bool_)
        for kept in (kept_rows(column), kept_rows(owners)):
            if kept is not None:
                whole &= kept
        there = np.flatnonzero(whole & (units > 0))
        skipped = n - int(np.count_nonzero(whole))
        cut = cut_of_records(grid, len(there), there, weights, None)
        if len(there) < n:
            column, owners, units = taken(column, there), taken(owners, there), units[there]
        self._begin_change()
        self._counted = counted
        self._mass = mass
        for part in self._parts(len(units)):
            self._held.add_pairs(_part(owners, part), _part(column, part), units[part])
            self._spill()
        self._skipped += skipped
        # What counts of it is known once all records of a user are there.
        self._cut += replace(cut, records=0, counted=0)

    def _parts(self, n: int) -> list[slice]:
        """Return so many rows in parts that the memory has room for."""
        rows = n if self._limit is None else self._limit.rows
        return [slice(start, min(start + rows, n)) for start in range(0, n, max(1, rows))]

    def _spill(self) -> None:
        """Put what is held on disk, if it is more than the memory has room for."""
        if self._limit is None or self._held.nbytes <= self._limit.held or not len(self._held.keys):
            return
        if self._disk is None:
            self._disk = Disk(self._limit, self._spec.weight_grid.max_units)
        self._disk.put(self._held)
        self._held = self._held.emptied()

    @property
    def cut(self) -> Cut:
        """How much the bounds on a contribution cut. Sensitive: for the data holder's eyes only."""
        with self._turn:
            if self._spec.unit.level == "record":
                return self._cut
            # No keys are cut before a release chooses how many.
            most, disk = _ALL if self._spec.unit.chosen else self._spec.unit.max_keys, self._disk
            pairs, over, counted = self._held.counted(most) if disk is None else disk.counted(self._held, most)
        return replace(self._cut, records=pairs, left_out=over, counted=counted)

    def _absorb(self, other: Self) -> None:
        self._apart |= other._apart or not np.array_equal(self._held.keys.secret, other._held.keys.secret)
        self._held.absorb(other._held)
        self._spill()
        if other._disk is not None:
            for rows in other._disk.rows():
                if rows.users is None:
                    self._held.keys.count(rows.keys, rows.units)
                else:
                    self._held.add_pairs(rows.users, rows.keys, rows.units)
                self._spill()

    def _check_absorb(self, other: Self) -> None:
        self._held.check_absorb(other._held)

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        keys: Any = None,
        unknown: bool | None = None,
        others: bool = False,
        names_only: bool = False,
        form: Form | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateHistogram:
        """Charge the budget, draw the noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. Names that nobody listed beforehand need δ > 0.
        rho : float
            A zero-concentrated budget instead; goes with ``keys=``.
        keys : list, NumPy, Arrow, pandas or polars column, optional
            A public list: every key of it is answered, also if nobody has it. It must not come from the data.
        unknown : bool, optional
            Whether keys that are on no list may be published too, if they pass. By default: without ``keys=``.
        others : bool
            Whether to count "all other keys" as well. Free beside ``keys=``; else a tenth of ε goes to it.
        names_only : bool
            Spend all of the budget on finding names, where users have many keys: no counts are published then.
        form : {"truncated", "laplace", "gaussian", "weighted", "rounds"}, optional
            The mechanism. By default the best for the unit and budget, by public facts alone.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation; ρ where it was asked for. The exact
        joint δ of noise and threshold is paid (see :mod:`~dpsketch.laws.thresholds`), and the chance
        that two texts meet in the secret hash.

        Accuracy
        --------
        Counts carry the noise that the mechanism's words state, and nothing else: no key collides with another.
        """
        spec, budget = self._spec, Budget(epsilon, delta, rho)
        listed, of_ours = self._listed(keys)
        laws = spec.laws(
            budget, keys=keys, unknown=unknown, others=others, names_only=names_only, form=form, hashed=self._apart
        )
        with self._opened() as opened:  # before the charge: what cannot be put in order costs nothing
            permit = self._pay(spec, laws, budget, self._account(ledger, dataset, part))
            places = opened.places(listed) if of_ours else np.full(len(listed), -1, np.int64)
            drawn = permit.draw_all(HistogramState(opened.content, listed, places, opened.names))
        return PrivateHistogram(spec, drawn)

    def _listed(self, keys: Any) -> tuple[list[Any], bool]:
        """Return the keys of a public list as they are counted, each once, and whether keys of their type came.

        A list of another type than the keys that came is one that nobody has any of, unless the type was stated.
        """
        if keys is None:
            return [], True
        names = list(dict.fromkeys(names_of(keys, self._spec)))
        spelled = [str(name) for name in names] if self.key_columns else names
        _, found, _ = typed_column(spelled)
        return spelled, self._held.keys.key_type in (None, found)

    @contextmanager
    def _opened(self) -> Iterator[Opened]:
        """Give all records in the order of their keys."""
        if self._disk is None:
            yield self._held.opened()
        else:
            with self._disk.opened(self._held) as opened:
                yield opened

    def _whole(self) -> Held:
        """Return the content in memory, from which a file is written."""
        if self._disk is None:
            return self._held
        whole = self.empty_like()
        whole._limit = None
        whole._absorb(self)
        return whole._held

    def _header(self) -> dict[str, Any]:
        whole = self._whole()
        # The mass of the content: the one that was counted includes what was left out or clipped, batch by batch.
        header = {"mass": str(whole.mass), "apart": self._apart, "for_tests": self._for_tests}
        return header | whole.to_document()[0]

    def _stored_arrays(self) -> dict[str, files.Array]:
        return self._whole().to_document()[1]

    def _restore(self, document: files.Document) -> None:
        header = document.header
        self._held = Held.from_document(self._spec, header, dict(document.arrays))
        self._for_tests, self._apart = _flag(header["for_tests"]), _flag(header["apart"])
        self._mass = max(self._mass, self._held.mass)


def _part(column: pa.ChunkedArray, part: slice) -> pa.ChunkedArray:
    return column.slice(part.start, part.stop - part.start)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise FileRefused("the file's header is not one that dpsketch writes.")
    return value
