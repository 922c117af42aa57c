"""Count records in a sensitive CountSketch; release it alone, with parties that share the noise, or day after day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.arrays import Integers
from dpsketch.bounding import Cut
from dpsketch.columns import is_canonical, valid_rows
from dpsketch.core.account import Account
from dpsketch.core.contributions import FIRST, Cells
from dpsketch.core.drawn import Drawn, Part, Receipt
from dpsketch.core.permit import Permit
from dpsketch.errors import CounterOverflow, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.hashing import KeyType, dictionary_codes, fingerprint, row_keys, typed_column
from dpsketch.laws.shares import MergedShares, OneShare, Share, ShareState
from dpsketch.noise import random_id
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.addition import SHORT, add_batch, add_column, largest_size, spread
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, CountSketchSpec
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.partials import public_names
from dpsketch.sketches.sketch import Entries, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of, refuse_mismatch
from dpsketch.sketches.weights import COUNTER_LIMIT, checked_total

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger
    from dpsketch.sketches.continual.sketch import ContinualSketch


Table = npt.NDArray[np.int64]


def release_share(
    table: Table,
    mass: int,
    partials: frozenset[str],
    spec: CountSketchSpec,
    share: Share,
    budget: Budget,
    account: Account,
    caveat: str | None,
) -> PrivateCountSketch:
    """Charge what a share guarantees by itself, add its noise, and return it.

    Parameters
    ----------
    table, mass : numpy.ndarray, int
        A sketch's counters, and the bound on each of them.
    partials : frozenset of str
        The ids of the partials in it.
    spec : CountSketchSpec
        The sketch's spec.
    share : Share
        Among whom the noise is shared.
    budget : Budget
        That of the whole.
    account : Account
        Where to charge it.
    caveat : str or None
        What the release must say about its users.
    """
    (counters,) = spec.tables()
    law = OneShare(counters, spec.unit.neighbours, replace(share, party=None), budget)
    if mass * law.shared.finer > COUNTER_LIMIT:
        raise CounterOverflow("the counters are too large for the finer steps that such small shares of noise need.")
    permit = Permit.pay(spec, (law,), law.asked, account, note=f"share of counts {fingerprint_of(spec)}")
    name = random_id() if share.party is None else str(share.party)
    state = ShareState(table, name, public_names(partials))
    drawn = permit.draw_all(state, caveat=caveat)
    return PrivateCountSketch(spec, drawn)


def merge_releases(
    releases: Sequence[PrivateCountSketch], *, missing: int = 0, disjoint_users: bool = False
) -> PrivateCountSketch:
    """Merge the shares of several parties into one release.

    Parameters
    ----------
    releases : sequence of PrivateCountSketch
        One from each party, made with ``release(…, share=Share(parties=…, honest=…))``, all of one spec and budget.
    missing : int, optional
        How many parties may be missing. Any may have been an honest one, so the guarantee is worked out again from the
        honest ones that are sure to remain; where none is, the merge is refused.
    disjoint_users : bool, optional
        State that no user has records at two parties; needed where the unit is a user, because nobody can check it.

    Privacy
    -------
    The merged release has the (ε, δ) that all parties asked for, against whoever sees it but no single share, as long
    as the stated fraction of parties is honest: dishonest ones know their own noise and can take it off. A sum of
    rounded shares is not exactly a rounded Gaussian; the difference, which
    :mod:`~dpsketch.laws.shares` bounds, is charged to δ. An attacker who sees a share by itself has what that
    share guarantees, which is less.

    Examples
    --------
    >>> import dpsketch as dps
    >>> from dpsketch.laws.shares import Share
    >>> shares = []
    >>> for party in range(3):
    ...     sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    ...     sketch.update(["tea"] * 500)
    ...     shares.append(sketch.release(epsilon=1.0, delta=1e-6, share=Share(3, honest=1.0, party=party)))
    >>> merged = merge_releases(shares)
    >>> merged.guarantee.epsilon, shares[0].guarantee.epsilon > 1.5
    (1.0, True)
    """
    law, spec = _agreed(releases)
    missing = whole_number("missing", missing, low=0, high=law.share.parties)
    if spec.unit.level == "record" and disjoint_users:
        raise InvalidInput("disjoint_users= goes with unit=dps.per_user(max_keys=…): these releases protect records.")
    if spec.unit.level == "user" and not disjoint_users:
        raise ReleaseRefused(
            "a user with records at two parties would be counted, and exposed, twice. If every user is at one party "
            "only, say disjoint_users=True."
        )
    _refuse_missing(law.share, len(releases), missing)
    merged = MergedShares(law.table, law.neighbours, law.share, law.whole, len(releases))
    holds = all(release.guarantee.holds for release in releases)
    receipt = Receipt(merged.asked, (merged,), None, holds)
    table = _summed(releases, law.shared.finer)
    return PrivateCountSketch(spec, Drawn.of(spec, (receipt,), {COUNTERS: Part(merged, {"table": table})}))


def _agreed(releases: Sequence[PrivateCountSketch]) -> tuple[OneShare, CountSketchSpec]:
    """Return the law and the spec that all shares have in common, or refuse."""
    laws = [release.law for release in releases]
    known = [law for law in laws if isinstance(law, OneShare)]
    if not known or len(known) < len(laws):
        raise ReleaseRefused(
            "merge_releases merges shares, made with release(…, share=Share(…)). Releases with full noise of their own "
            "are added with +."
        )
    key_type = next((release.spec.key_type for release in releases if release.spec.key_type), None)
    specs = [replace(release.spec, key_type=release.spec.key_type or key_type) for release in releases]
    for spec in specs:
        refuse_mismatch(specs[0], spec)
    if any(law != known[0] for law in known):
        raise SpecMismatch(
            "cannot merge: the shares differ in their budget, their number of parties or of honest ones."
        )
    if len({release.party for release in releases}) < len(releases):
        raise ReleaseRefused("one party's share was given twice; its records would count twice. Give one a party.")
    named = [name for release in releases for name in set(release.partials)]
    if len(set(named)) < len(named):
        raise ReleaseRefused(
            "one sketch is in two of the shares, by itself or merged into others; each of its records would count, and "
            "show, twice. Each party releases one share of records that no other party has."
        )
    return known[0], specs[0]


def _refuse_missing(share: Share, present: int, missing: int) -> None:
    absent = share.parties - present
    if absent < 0:
        raise ReleaseRefused(f"{present} shares were given, more than the {share.parties} parties they speak of.")
    honest = share.honest_parties
    if absent >= honest:
        raise ReleaseRefused(
            f"{absent} of {share.parties} shares are missing, and only {honest} parties are sure to be honest: maybe "
            "none of them is left, and nothing could be promised."
        )
    if absent > missing:
        raise ReleaseRefused(
            f"{absent} of {share.parties} shares are missing, and with them their noise. Wait for them, or say "
            f"missing={absent} to merge the others with a weaker guarantee."
        )


def _summed(releases: Sequence[PrivateCountSketch], finer: int) -> Table:
    """Return the sum of the tables, rounded to the sketch's own grid."""
    if sum(largest_size(release.table) for release in releases) > COUNTER_LIMIT:
        raise CounterOverflow("the sum of the shares' counters would pass what 64 bits hold.")
    total = np.zeros(releases[0].table.shape, dtype=np.int64)
    for release in releases:
        total += release.table
    rounded: Table = (total + finer // 2) // finer
    return rounded


class CountSketch(Sketch[CountSketchSpec, PrivateCountSketch]):
    """The sensitive sketch: takes records, merges, and is released once its budget is charged.

    It stores no key, has a fixed size, and its releases add and subtract. Where keys may be held until the release, a
    :class:`~dpsketch.Histogram` has smaller errors, since no key collides with another.

    Parameters
    ----------
    rows, width : int, optional
        Size of the table; rows must be odd.
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.
    key_type : {"int", "text"}, optional
        What the keys are. If it is not given, a column's own type states it (NumPy, Arrow, typed pandas and polars
        columns). Lists have none: the release then says None, and takes the type of the keys that it is asked for.

    Examples
    --------
    >>> import dpsketch as dps
    >>> sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    >>> sketch.update(["a", "b", "a"])
    >>> private = sketch.release(epsilon=1.0, delta=1e-6)
    >>> private.table.shape
    (5, 64)

    Where the unit is a user, all records of a user come in one update; nobody is counted twice.

    >>> sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_user(max_keys=2))
    >>> sketch.update(["a", "b", "a"], users=["ann", "ann", "bob"])
    >>> sketch.update(["c"], users=["ann"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpsketch.errors.InvalidInput: some users of this batch were counted before, and would count twice; ...
    """

    kind: ClassVar[str] = "counts"
    spec_type: ClassVar[Any] = CountSketchSpec
    release_type: ClassVar[Any] = PrivateCountSketch

    def __init__(
        self,
        *,
        unit: Unit,
        rows: int = 7,
        width: int = 4096,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(CountSketchSpec(rows, width, unit, seed, grid, key_type))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: CountSketchSpec) -> None:
        super()._start(spec)
        self._row_keys = row_keys(spec.seed, spec.rows)
        (self._stated,) = spec.tables()

    @property
    def _table(self) -> Integers:
        table: Integers = self._arrays[COUNTERS]
        return table

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count a batch; records without weights skip the arrays of fingerprints and amounts that others need."""
        alone = columns.weights is None and columns.counts is None and self._spec.unit.level == "record"
        keys, nulls = columns.records, 0
        if alone and _repeats(keys):
            keys, counts, nulls = _tally(keys)
            columns = replace(columns, counts=counts)
        column, found, declared = typed_column(keys, self._key_type)  # once: a stream can be read once
        plain = columns.counts is None and len(column) > SHORT and not pa.types.is_dictionary(column.type)
        if not (alone and plain and self._spec.weight_grid.one == 1):
            # The column's own type, not that of the Arrow column: a list has none.
            batch = replace(fingerprint(column, self._key_type), declared=declared)
            super()._count(replace(columns, records=batch), disjoint_users)
            self._skipped += nulls
            return
        self._protects_users(columns.users, disjoint_users)
        first = fingerprint(column.slice(0, FIRST), found or self._key_type).fingerprints
        self._check_sample(Entries(first, None, 1, 1, None, None))
        kept = len(column) - column.null_count
        mass = checked_total(self._mass, 1, 1, kept)
        self._begin_change()
        self._mass = mass
        self._skipped += column.null_count
        self._note_cut(Cut(kept, 0, 0, kept, kept))
        add_column(self._table, column, self._row_keys)
        self._note_type(found or self._key_type, declared)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        if entries.starts is not None:
            return partial(self._add_users, entries.starts, entries)
        self._check_sample(entries)
        return partial(add_batch, self._table, entries.prints, self._row_keys, entries.added)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        levels = [(entries.prints, entries.amounts)]
        return {COUNTERS: spread(levels, self._row_keys[np.newaxis], self._spec.width, entries.starts)}

    def _add_users(self, starts: Integers, entries: Entries) -> None:
        add, keys = self._spec.user_clip.add, (starts, entries.prints, entries.amounts)
        self._clipped += add(self._table, self._stated, *keys, self._row_keys)

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
        share: Share | None = None,
    ) -> PrivateCountSketch:
        """Charge the budget, add noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ > 0: rounded Gaussian noise, analytically calibrated. δ = 0: discrete Laplace noise
            at the L1 sensitivity.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.
        share : Share, optional
            Add one of several parties' shares of the noise only, to be merged by ``dps.merge_releases``. What is
            stated and charged here is the guarantee of the share by itself.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, at the L2 (δ > 0, ρ) or L1 (δ = 0)
        distance of :meth:`CountSketchSpec.tables`. Two releases of one sketch compose: each is charged.
        """
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        if share is None:
            return self._release(budget, account)
        caveat = self._counted.caveat
        return release_share(self._table, self._mass, self._partials, self._spec, share, budget, account, caveat)


def _repeats(keys: Any) -> bool:
    """Say whether keys are a dictionary whose values come twice on average: each is then added once, as so many.

    Values of other types are turned into keys first, or into none: they are then counted by row, and refused alike
    however many rows there are.
    """
    coded = isinstance(keys, pa.DictionaryArray) and is_canonical(keys.type)
    return coded and 2 * len(keys.dictionary) <= len(keys) and not keys.dictionary.null_count


def _tally(keys: pa.DictionaryArray) -> tuple[pa.Array, npt.NDArray[np.int64], int]:
    """Return a dictionary's values, how many rows have each, and how many are null."""
    codes = dictionary_codes(keys)
    if keys.indices.null_count:
        codes = codes[valid_rows(keys.indices)]
    return keys.dictionary, np.bincount(codes, minlength=len(keys.dictionary)), len(keys) - len(codes)


def ContinualCountSketch(  # noqa: N802  named as the sketch that it starts
    *,
    rows: int,
    width: int,
    unit: Unit,
    seed: int = DEFAULT_SEED,
    grid: float = 1,
    key_type: KeyType | None = None,
    **stream: Any,
) -> ContinualSketch:
    """Start a CountSketch that is published every day, at one price for all days.

    Parameters
    ----------
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`. Where the unit is a user, its bounds are for each day.
    key_type : {"int", "text"}
        What the keys are. It must be stated: a day without records must not differ from others by its type.
    **stream
        ``days``, ``epsilon``, ``delta``, ``rho``, ``objective``, ``user_days``, ``days_apart``, ``design``,
        ``first_day``, ``ledger``, ``dataset`` and ``part``, as for :class:`~dpsketch.ContinualSketch`, which says what
        is promised and how accurate it is.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = dps.ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["tea", "tea", "milk"])
    >>> monday = sketch.publish_day()
    >>> tuesday = sketch.day(["tea"] * 5)
    >>> change = sketch.between(2, 2) - sketch.between(1, 1)
    >>> sketch.days_published, sketch.design.name
    (2, 'recurrence')
    """
    from dpsketch.sketches.continual.sketch import ContinualSketch

    sketch = CountSketch(rows=rows, width=width, unit=unit, seed=seed, grid=grid, key_type=key_type)
    return ContinualSketch(sketch, **stream)


def PanPrivateCountSketch(  # noqa: N802
    *,
    rows: int,
    width: int,
    unit: Unit,
    seed: int = DEFAULT_SEED,
    grid: float = 1,
    key_type: KeyType | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    ledger: Ledger | str | None = None,
    dataset: str | None = None,
    part: str | None = None,
) -> ContinualSketch:
    """Start a CountSketch that is private even against someone who seizes its memory once: a stream of one day.

    Parameters
    ----------
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`; the unit must be a record.
    key_type : {"int", "text"}
        What the keys are. It must be stated: a type read off keys would show, in a seized state, that some had come.
    epsilon, delta, rho : float
        The guarantee against one seizure and the publication together. It is fixed, and charged, at the start, because
        the first noise is drawn then.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge.

    Privacy
    -------
    The table starts from noise instead of zeros, so that its state is private at every moment; publication adds fresh
    noise, because an attacker who saw the state could otherwise subtract it and read the records that came after. Each
    record is (ε, δ)-private, whatever the moment (:mod:`dpsketch.laws.designs` has the proof). What is published
    carries both noises. ``publish`` ends the sketch. Its file is its state: reading the file is the
    one seizure, and **a state is published once, from its newest file only**.

    Accuracy
    --------
    A counter has 64 bits and wraps round: a state that refused or stopped counting would tell of the records. Choose a
    grid on which all records together stay below 2⁶¹ steps; on a grid of 1 they do.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = dps.PanPrivateCountSketch(**shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["a", "b", "a"])
    >>> private = sketch.publish()
    """
    shape: Any = {"rows": rows, "width": width, "unit": unit, "seed": seed, "grid": grid, "key_type": key_type}
    terms: Any = {"epsilon": epsilon, "delta": delta, "rho": rho, "ledger": ledger, "dataset": dataset, "part": part}
    return ContinualCountSketch(**shape, **terms, days=1, design="pan-private")
