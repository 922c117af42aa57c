"""A CountSketch whose memory itself may be seized, once.

The table starts from noise instead of zeros, so that its state is private at every moment; publication adds fresh noise
on top, because whoever saw the state before could otherwise subtract it and read the records that came after.

References
----------
Dwork, Naor, Pitassi, Rothblum and Yekhanin, *Pan-private streaming algorithms* (2010), for the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch._compiled import countsketch as kernels
from dpsketch.core.drawn import receipt_from_json, receipt_to_json
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.laws.additive import PUBLICATION, STATE, SeizableCounts
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.addition import check_records
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.sketch import CountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.documents import integer_array, prepaid_header, read_prepaid
from dpsketch.sketches.frames import read_columns
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import checked_total, weighed

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["PanPrivateCountSketch"]

KIND = "counts-pan-private"


class PanPrivateCountSketch(Partial):
    """A CountSketch that is private even against someone who seizes its memory once.

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
    A record that came before the seizure moves the seized state, one that came after it only what was published since;
    so with noise σ₀ = σ₁ = Δ/μ on the state and, afresh, on the publication, each of them is (ε, δ)-private, whatever
    the moment. What is published carries both: variance σ₀² + σ₁². No buffer, no generator state and no exact count of
    records is kept. Publishing ends the sketch: the same noise is never shown twice. Its file is its state: whoever
    reads it has made the one seizure, and **a state is published once, from its newest file only**.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = dps.PanPrivateCountSketch(**shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["a", "b", "a"])
    >>> private = sketch.publish()
    """

    kind: ClassVar[str] = "counts-pan-private"

    def __init__(
        self,
        *,
        rows: int,
        width: int,
        unit: Unit,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> None:
        spec = CountSketchSpec(rows, width, unit, seed, grid, key_type).daily()
        spec.weight_grid.refuse_without_one()
        if unit.level != "record":
            raise InvalidInput(
                "a pan-private sketch protects records: hiding a user would need state kept for each user, which a "
                "seizure would show."
            )
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        (plain,) = spec.laws(budget)
        law = SeizableCounts(plain.table, plain.neighbours, plain.noise)
        self._permit = Permit.pay(spec, (law,), budget, account, note=f"pan-private counts {fingerprint_of(spec)}")
        self._prepaid = account.prepaid(self._permit.charge)
        self._spec = spec
        self._row_keys = row_keys(spec.seed, spec.rows)
        self._table: npt.NDArray[np.int64] | None = self._drawn(STATE, np.zeros((spec.rows, spec.width), np.int64))

    @property
    def spec(self) -> CountSketchSpec:
        """The public spec."""
        return self._spec

    def __repr__(self) -> str:
        spec = self._spec
        return f"<PanPrivateCountSketch {spec.rows}×{spec.width}, spec {fingerprint_of(spec)}, sensitive>"

    def update(self, keys: Any = None, *, weights: Any = None, counts: Any = None, **names: Any) -> None:
        """Add records, as :meth:`dpsketch.CountSketch.update` does at record level."""
        self._add(keys, weights=weights, counts=counts, **names)

    def _add(self, records: Any, *, weights: Any = None, counts: Any = None, **names: Any) -> None:
        given, takes = {"weights": weights, "counts": counts}, ("weights", "counts")
        for columns in read_columns(records, names, given, kind=type(self).__name__, takes=takes):
            table = self._open()
            batch = fingerprint(columns.records, self._spec.key_type)
            amounts = weighed(self._spec.weight_grid, batch, columns.weights, columns.counts)
            check_records(self._permit.laws[0].tables[0], batch.fingerprints, self._row_keys, amounts.units)
            # The noisy table stands in for the exact mass, which a seizure must not find.
            checked_total(int(np.abs(table).max()), amounts.added, 1, len(batch.fingerprints))
            self._begin_change()
            # On one thread: another thread's own table would be exact.
            units = np.ascontiguousarray(np.broadcast_to(amounts.added, batch.fingerprints.shape))
            kernels.add_weighted(table, batch.fingerprints, self._row_keys, units)

    def merge(self, other: CountSketch, *, ledger: Ledger | str | None = None) -> None:
        """Add the records of a :class:`~dpsketch.CountSketch` of the same spec, which was filled elsewhere.

        That sketch is exact while it exists: let it go at once, as one lets go of the records themselves. The state
        keeps its random ids, so as to refuse it if it came again; whoever seizes the state can count them.

        Parameters
        ----------
        other : CountSketch
            The sketch. Where this state was charged as a part, the ledger records it as of that part.
        ledger : Ledger or URL, optional
            The ledger that was charged. Needed where the state was charged as a part and read from a file.
        """
        self._use_ledger(ledger)
        self._merge(other, remembered=True)

    def merge_fresh(self, other: CountSketch, *, ledger: Ledger | str | None = None) -> None:
        """Merge a sketch that was filled for this call and ends with it, so that nobody can bring it again.

        The state does not keep its ids, and does not grow with the number of merges. ``ledger`` is as for
        :meth:`merge`.
        """
        self._use_ledger(ledger)
        self._merge(other, remembered=False)
        other._begin_change()  # never lifted: it refuses everything from here on

    def _merge(self, other: CountSketch, *, remembered: bool) -> None:
        table = self._open()
        if not isinstance(other, CountSketch):
            raise SpecMismatch(f"cannot merge a PanPrivateCountSketch with a {type(other).__name__}.")
        other._refuse_broken()
        spec = other.check_addable(table, self._spec)
        self._accept_partial(other)
        self._begin_change()
        if remembered:
            self._partials |= other.partial_ids
        other.add_to(table)
        self._spec = spec

    def snapshot(self) -> npt.NDArray[np.int64]:
        """Return a copy of the state: what someone who seizes the memory would have. It may be seen by others once."""
        return self._open().copy()

    def publish(self) -> PrivateCountSketch:
        """Add fresh noise, return what may be published, and end the sketch."""
        table, permit = self._open(), self._permit
        self._begin_change()
        self._table = None
        published = self._drawn(PUBLICATION, table)
        return PrivateCountSketch(self._spec, permit.drawn({COUNTERS: {"table": published}}))

    def _drawn(self, slot: str, table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found = self._permit.draw(self._permit.laws[0], (slot, table))
        return cast(npt.NDArray[np.int64], found["table"])

    def _to_document(self) -> files.Document:
        receipt = receipt_to_json(self._permit.receipt())
        header = {"spec": self._spec.to_json(), "receipt": receipt, **prepaid_header(self._prepaid)}
        return files.Document(KIND, True, header, {"table": self._open()})

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        spec = CountSketchSpec.from_json(document.header["spec"]).daily()
        receipt = receipt_from_json(document.header["receipt"])
        if len(receipt.laws) != 1 or not isinstance(receipt.laws[0], SeizableCounts) or spec.unit.level != "record":
            raise FileRefused("the file's law is not that of a PanPrivateCountSketch.")
        sketch = cls.__new__(cls)
        try:
            sketch._permit = Permit.restored(spec, receipt, [(COUNTERS, STATE, None)])
        except ReleaseRefused:
            raise FileRefused("the file's guarantee is not that of a PanPrivateCountSketch with its noise.") from None
        sketch._prepaid = read_prepaid(document, receipt.charge)
        sketch._spec = spec
        sketch._row_keys = row_keys(spec.seed, spec.rows)
        sketch._table = integer_array(document, "table", (spec.rows, spec.width))
        return sketch

    def _open(self) -> npt.NDArray[np.int64]:
        if self._table is None:
            raise ReleaseRefused(
                "this sketch was published, which ended it: a table shown twice on the same noise shows the records in "
                "between. Start another."
            )
        return self._table
