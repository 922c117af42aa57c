"""The sensitive CountSketch: records come in, one release goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch.canonical import is_canonical
from dpsketch.columns import valid_rows
from dpsketch.core.contributions import FIRST
from dpsketch.hashing import KeyType, dictionary_codes, fingerprint, row_keys, typed_column
from dpsketch.laws.shares import Share
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import agreed_spec
from dpsketch.sketches.countsketch.addition import SHORT, add_batch, add_column, check_records
from dpsketch.sketches.countsketch.parties import release_share
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.keyed import TableSketch
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import checked_total, weighed

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["CountSketch"]


class CountSketch(TableSketch[CountSketchSpec]):
    """The sensitive sketch: takes records, merges, and is released once its budget is charged.

    It stores no key, has a fixed size, and its releases add and subtract. Where keys may be held until the release, a
    :class:`~dpsketch.Histogram` has smaller errors, since no key collides with another.

    Parameters
    ----------
    rows, width : int
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

    def __init__(
        self,
        *,
        rows: int,
        width: int,
        unit: Unit,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(CountSketchSpec(rows, width, unit, seed, grid, key_type))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: CountSketchSpec) -> None:
        self._spec = spec
        self._row_keys = row_keys(spec.seed, spec.rows)
        self._table = np.zeros((spec.rows, spec.width), dtype=np.int64)
        (self._stated,) = spec.tables()

    def __repr__(self) -> str:
        spec = self._spec
        return f"<CountSketch {spec.rows}×{spec.width}, spec {fingerprint_of(spec)}, sensitive>"

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        protects_users, nulls = self._protects_users(users, disjoint_users, counts), 0
        alone = not protects_users and weights is None and counts is None
        if alone and _repeats(keys):
            keys, counts, nulls = _tally(keys)
        column, found, declared = typed_column(keys, self._key_type)  # once: a stream can be read once
        plain = counts is None and len(column) > SHORT and not pa.types.is_dictionary(column.type)
        if alone and plain and self._spec.weight_grid.one == 1:
            first = fingerprint(column.slice(0, FIRST), found or self._key_type).fingerprints
            check_records(self._stated, first, self._row_keys, 1)
            self._admit(len(column) - column.null_count, column.null_count)
            add_column(self._table, column, self._row_keys)
            self._note_type(found or self._key_type, declared)
            return
        batch = fingerprint(column, self._key_type)
        if protects_users:
            bounded = self._bounded(batch, users, weights)
            self._admit_users(bounded, weights, disjoint_users)
            self._clipped += self._spec.user_clip.add(self._table, self._stated, bounded, self._row_keys)
        else:
            amounts = weighed(self._spec.weight_grid, batch, weights, counts)
            check_records(self._stated, batch.fingerprints, self._row_keys, amounts.units)
            self._admit_records(batch, amounts.added, weights, counts)
            self._skipped += nulls
            add_batch(self._table, batch.fingerprints, self._row_keys, amounts.added)
        self._note_type(batch.key_type, declared)  # not the batch's: a column has a type, a list none

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self._table += other._table

    def check_addable(self, table: npt.NDArray[np.int64], spec: CountSketchSpec) -> CountSketchSpec:
        """Return the spec of the sum with the table of another sketch that counts records, or refuse to add to it."""
        agreed: CountSketchSpec = agreed_spec(spec, self._spec, spec.key_type, self._key_type)
        # A table that began from noise stands in for its exact mass.
        checked_total(int(np.abs(table).max()), self._mass, 1, 1)
        return agreed

    def add_to(self, table: npt.NDArray[np.int64]) -> None:
        """Add the counters to a table that :meth:`check_addable` let pass."""
        table += self._table

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
        spec, budget, caveat = self._spec, Budget(epsilon, delta, rho), self._counted.caveat
        account = self._account(ledger, dataset, part)
        if share is not None:
            return release_share(self._table, self._mass, self._partials, spec, share, budget, account, caveat)
        permit = self._pay(spec, spec.laws(budget), budget, account)
        return PrivateCountSketch(spec, permit.draw_all(self._exact(), caveat=caveat))

    def _exact(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact tables by name. Sensitive."""
        return {COUNTERS: self._table}

    def _to_document(self) -> files.Document:
        header: dict[str, Any] = {"spec": self._spec.to_json(), "mass": str(self._mass)}
        if self._spec.clip is not None:
            header["clipped"] = self._clipped
        return files.Document("counts", True, header, {"table": self._table})

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(CountSketchSpec.from_json(document.header["spec"]))
        sketch._table[:] = integer_array(document, "table", sketch._table.shape)
        sketch._mass = int(document.header["mass"])
        if sketch._spec.clip is not None:
            sketch._clipped = int(document.header["clipped"])
        return sketch


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
