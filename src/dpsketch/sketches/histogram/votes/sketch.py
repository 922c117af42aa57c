"""The sensitive histogram in bounded memory: records vote in buckets, names with private counts go out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.bounding import Bounded, Cut, bound, cut_of_records, cut_of_users
from dpsketch.hashing import KeyBatch, KeyType, fingerprint, row_keys
from dpsketch.laws.votes import VoteForm
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import Accumulator, stored_type
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.histogram.named import named_column
from dpsketch.sketches.histogram.votes.private import PrivateVoteHistogram
from dpsketch.sketches.histogram.votes.spec import DEFAULT_SEED, VoteHistogramSpec
from dpsketch.sketches.histogram.votes.table import Keys, VoteTable, buckets_of
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import checked_total, whole_counts

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["VoteHistogram"]


class VoteHistogram(Accumulator[VoteHistogramSpec]):
    """The sensitive histogram in bounded memory: at most ``max_counters`` keys, each with the records it won by.

    ``dps.Histogram(unit=…, max_counters=…)`` starts one. Every key has a bucket, by a public hash. In a bucket, records
    of different keys cancel out, and what is left is of its majority key. Use it where the distinct keys can neither be
    held nor spilled; make it five to ten times as large as the list of keys that is wanted.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, with weights of 1.
    max_counters : int
        How many buckets.
    seed : int, optional
        Seed of the hash. Histograms merge only if it is the same, hence the fixed default.
    key_type : {"int", "text"}, optional
        What the keys are. By default what a column's own type says.

    Notes
    -----
    Unlike other sketches, what it holds depends on the order of the records and on how they were split: a merge is not
    one pass over both streams. What always holds: one record moves one of a bucket's two loads by 1, and nothing else
    but a key that comes or goes where the bucket's majority is 0; and a key's majority c, its true count f, and u, half
    of the bucket's load and majority together, are c ≤ f ≤ u.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.Histogram(unit=dps.per_record(), max_counters=64)
    >>> histogram.update(["tea"] * 900 + ["a rare one"] + ["coffee"] * 700)
    >>> histogram.release(epsilon=1.0, delta=1e-6).keys
    ['coffee', 'tea']
    """

    kind: ClassVar[str] = "histogram-votes"
    in_order: ClassVar[bool] = True

    def __init__(
        self, *, unit: Unit, max_counters: int, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        self._start(VoteHistogramSpec(max_counters, unit, seed, key_type))

    def _start(self, spec: VoteHistogramSpec) -> None:
        self._spec = spec
        self._row_key = row_keys(spec.seed, 1, "votes")[0]
        self._table = VoteTable(spec.max_counters)
        self._mass = 0

    def __repr__(self) -> str:
        return f"<VoteHistogram of {self._spec.max_counters} buckets, spec {fingerprint_of(self._spec)}, sensitive>"

    @takes_frames
    def update(self, keys: Any, *, users: Any = None, counts: Any = None, disjoint_users: bool = False) -> None:
        """Add records, in their order.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor")``; ``count=`` names what ``counts=`` holds.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Integers or text. Null keys are skipped and counted in :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. All records of a user must
            come in one update. A user counts on at most ``max_keys`` keys, and on one in each bucket.
        counts : whole numbers, optional
            So many equal records at once; refused where the unit is a user.
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch; nothing is then compared or remembered.
        """
        column, _, declared = named_column(keys, self._key_type)
        batch = fingerprint(column, self._key_type)
        counted = self._counted
        if not self._protects_users(users, disjoint_users, counts):
            prints, skipped = batch.fingerprints, batch.skipped
            rows = np.arange(len(prints)) if batch.kept is None else np.flatnonzero(batch.kept)
            times = np.ones(len(rows), np.int64)
            if counts is not None:
                times = whole_counts(counts, len(column))[rows]
            cut = cut_of_records(self._spec.weight_grid, len(rows), batch.kept, None, counts).keys_alone
            places = buckets_of(prints, self._row_key, self._spec.max_counters)
        else:
            bounded = self._bounded(users, batch)
            counted = self._counted.extended(bounded, disjoint_users=disjoint_users)
            places = buckets_of(bounded.fingerprints, self._row_key, self._spec.max_counters)
            first = _firsts(bounded, places)
            prints, rows, places = bounded.fingerprints[first], bounded.rows[first], places[first]
            times, skipped = np.ones(len(rows), np.int64), bounded.skipped
            cut = cut_of_users(self._spec.weight_grid, bounded, None).keys_alone
            cut = replace(cut, left_out=cut.left_out + len(bounded.rows) - len(first))
        mass = checked_total(self._mass, 1, times, len(times))
        held = Keys.of(column)
        self._begin_change()
        self._counted = counted
        self._mass = mass
        self._table.cast(places, prints, times, rows, held)
        self._skipped += skipped
        self._cut += cut
        self._note_type(batch.key_type, declared)

    def _bounded(self, users: Any, batch: KeyBatch) -> Bounded:
        return bound(users, batch, 1, max_keys=self._spec.unit.max_keys, max_units=1, seed=self._spec.seed)

    def _note_cut(self, cut: Cut) -> None:
        super()._note_cut(cut.keys_alone)  # each counts once, whatever its weight

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._mass, other._mass, 1, 1)

    def _absorb(self, other: Self) -> None:
        self._mass += other._mass
        self._table.absorb(other._table)

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        form: VoteForm | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateVoteHistogram:
        """Charge the budget, draw the noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. Names that nobody listed beforehand need δ > 0.
        rho : float
            Refused: names need a δ.
        form : {"loads", "truncated", "gaussian"}, optional
            What is published of a bucket. "loads": u and l, with counts near the true ones. The others: its majority
            alone, by which more keys pass, and whose counts are too low by what the bucket lost to other keys. By
            default "loads" for records and the better of the others for users.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, where neighbours are streams: the order
        of all other records, and the partial that each is counted in, stay. The exact joint δ of noise and threshold is
        paid (see :mod:`~dpsketch.laws.votes`). Keys are compared by their bytes.

        Accuracy
        --------
        See :class:`~dpsketch.PrivateVoteHistogram`.
        """
        spec, budget = self._spec, Budget(epsilon, delta, rho)
        permit = self._pay(spec, spec.laws(budget, form), budget, self._account(ledger, dataset, part))
        drawn = permit.draw_all((self._table, self._key_type), caveat=self._counted.caveat)
        return PrivateVoteHistogram(spec, drawn)

    def _to_document(self) -> files.Document:
        arrays: dict[str, files.Array] = dict(self._table.to_arrays())
        return files.Document(self.kind, True, {"spec": self._spec.to_json()}, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(VoteHistogramSpec.from_json(document.header["spec"]))
        held = sketch._spec.key_type or stored_type(document)
        sketch._table = VoteTable.from_arrays(sketch._spec.max_counters, sketch._row_key, held, document.arrays)
        sketch._mass = checked_total(0, sketch._table.loads, 1, len(sketch._table.loads))
        return sketch


def _firsts(bounded: Bounded, buckets: Integers) -> Integers:
    """Return of each user's keys the first in every bucket, in their order, which another user has no part in."""
    owners = np.repeat(np.arange(len(bounded.users)), np.diff(bounded.starts))
    _, first = np.unique((owners << 24) | buckets, return_index=True)  # a spec has at most 2²⁴ buckets
    return np.sort(first)
