"""The sensitive histogram: exact counts by key come in, names with private counts go out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from dpsketch.arrays import Integers
from dpsketch.bounding import Cut, cut_of_records, read_users
from dpsketch.hashing import KeyType
from dpsketch.laws.content import RecordContent, Tables, UserContent
from dpsketch.laws.entries import HistogramState
from dpsketch.laws.thresholds import Form
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.histogram.named import named_column, names_of
from dpsketch.sketches.histogram.private import PrivateHistogram
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.store import Store, rows_of
from dpsketch.sketches.stored import StoredSketch
from dpsketch.sketches.weights import checked_total, whole_counts

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Histogram"]


class Histogram(StoredSketch[HistogramSpec, PrivateHistogram]):
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
        ``.sketch`` file is still written and read in memory. By default nothing goes to disk.
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

    _store: Store

    def __init__(
        self,
        *,
        unit: Unit,
        grid: float = 1,
        key_type: KeyType | None = None,
        memory_limit: str | None = None,
        temp_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._start(HistogramSpec(unit, grid, key_type))
        self._spec.weight_grid.refuse_without_one()
        self._bound_memory(memory_limit, temp_directory)

    def _start(self, spec: HistogramSpec) -> None:
        super()._start(spec)
        self._store = Store(by_user=spec.unit.level == "user", most=spec.weight_grid.max_units)

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count a batch; users are bounded at release."""
        column, found, declared = named_column(columns.records, self._key_type)
        n, grid, counted = len(column), self._spec.weight_grid, self._counted
        units: Integers | int = grid.one if columns.weights is None else grid.units(columns.weights, n)
        users: pa.ChunkedArray | None = None
        if self._protects_users(columns.users, disjoint_users, columns.counts):
            read = read_users(columns.users, n)
            users, counted = read.column, counted.typed(read.user_type)
        multiples: Integers | int = 1 if columns.counts is None else whole_counts(columns.counts, n)
        mass = checked_total(self._mass, units, multiples, n)
        each = units * multiples
        rows = rows_of(column, users, None if isinstance(each, int) and each == 1 else np.broadcast_to(each, (n,)))
        cut = cut_of_records(grid, n - rows.skipped, rows.kept, columns.weights, columns.counts)
        if users is not None:  # what counts is known once all records of a user are there
            cut = replace(cut, records=0, counted=0)
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._store.add(rows)
        self._skipped += rows.skipped
        self._cut += cut
        self._note_type(found, declared)

    @property
    def cut(self) -> Cut:
        """How much the bounds on a contribution cut. Sensitive: for the data holder's eyes only."""
        with self._turn:
            if self._spec.unit.level == "record":
                return self._cut
            # No keys are cut before a release chooses how many.
            kept = "held" if self._spec.unit.chosen else f"least(held, {self._spec.unit.max_keys})"
            ((pairs, over, counted),) = self._store.tables().numbers(
                f"SELECT {_sum('held')}, {_sum(f'held - {kept}')}, {_sum(f'own * {kept} // held')} FROM "
                "(SELECT count(*) AS held, sum(units) AS own FROM {pairs} GROUP BY person)"
            )
        return replace(self._cut, records=int(pairs[0]), left_out=int(over[0]), counted=int(counted[0]))

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
        joint δ of noise and threshold is paid (see :mod:`~dpsketch.laws.thresholds`).

        Accuracy
        --------
        Counts carry the noise that the mechanism's words state, and nothing else: no key collides with another.
        """
        spec, budget = self._spec, Budget(epsilon, delta, rho)
        named = None if keys is None else list(dict.fromkeys(names_of(keys, spec)))
        laws = spec.laws(budget, keys=named, unknown=unknown, others=others, names_only=names_only, form=form)
        listed = named or []
        spelled = [str(name) for name in listed] if self.key_columns else listed
        with self._opened() as tables:  # before the charge: what cannot be put in order costs nothing
            permit = self._pay(spec, laws, budget, self._account(ledger, dataset, part))
            content = UserContent(tables) if spec.unit.level == "user" else RecordContent(tables)
            drawn = permit.draw_all(HistogramState(content, spelled, tables.find(spelled), tables.names))
        return PrivateHistogram(spec, drawn)

    @contextmanager
    def _opened(self) -> Iterator[Tables]:
        """Give the tables of all records."""
        yield self._store.tables()


def _sum(amount: str) -> str:
    return f"CAST(coalesce(sum({amount}), 0) AS BIGINT)"
