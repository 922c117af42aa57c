"""The sensitive histogram in bounded memory: records vote in buckets, names with private counts go out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.bounding import Bounded
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.laws.votes import VoteForm
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.histogram.named import named_column
from dpsketch.sketches.histogram.votes.private import PrivateVoteHistogram
from dpsketch.sketches.histogram.votes.spec import DEFAULT_SEED, VoteHistogramSpec
from dpsketch.sketches.histogram.votes.table import KeyBytes, VoteTable, buckets_of
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.weights import checked_total

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["VoteHistogram"]


class VoteHistogram(Sketch[VoteHistogramSpec, PrivateVoteHistogram]):
    """The sensitive histogram in bounded memory: at most ``max_counters`` keys, each with the records it won by.

    Every key has a bucket, by a public hash. In a bucket, records
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
    >>> histogram = dps.VoteHistogram(unit=dps.per_record(), max_counters=64)
    >>> histogram.update(["tea"] * 900 + ["a rare one"] + ["coffee"] * 700)
    >>> histogram.release(epsilon=1.0, delta=1e-6).keys
    ['coffee', 'tea']
    """

    kind: ClassVar[str] = "histogram-votes"
    spec_type: ClassVar[Any] = VoteHistogramSpec
    release_type: ClassVar[Any] = PrivateVoteHistogram
    takes: ClassVar[tuple[str, ...]] = ("users", "counts")
    in_order: ClassVar[bool] = True

    def __init__(
        self, *, unit: Unit, max_counters: int, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        self._start(VoteHistogramSpec(max_counters, unit, seed, key_type))

    def _start(self, spec: VoteHistogramSpec) -> None:
        super()._start(spec)
        self._row_key = row_keys(spec.seed, 1, "votes")[0]
        self._table = VoteTable(spec.max_counters)

    def _parse(self, records: Any) -> Parsed:
        column, _, declared = named_column(records, self._key_type)
        # The column's own type, not that of the Arrow column: a list has none.
        return Parsed(replace(fingerprint(column, self._key_type), declared=declared), _Names(column))

    def _users_entries(self, parsed: Parsed, bounded: Bounded) -> Entries:
        """Return the keys of users that count: of each user one in each bucket."""
        places = buckets_of(bounded.fingerprints, self._row_key, self._spec.max_counters)
        first = _firsts(bounded, places)
        prints, rows = bounded.fingerprints[first], bounded.rows[first]
        starts = np.searchsorted(first, bounded.starts)
        return Entries(prints, parsed.values, np.ones(len(first), np.int64), 1, starts, rows)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        places = buckets_of(entries.prints, self._row_key, self._spec.max_counters)
        rows = np.arange(len(entries.prints)) if entries.rows is None else entries.rows
        held = KeyBytes.of(entries.values.column)
        return partial(self._table.cast, places, entries.prints, entries.amounts, rows, held)

    def _absorb(self, other: Self) -> None:
        self._table.absorb(other._table)

    def _exact(self) -> tuple[VoteTable, KeyType | None]:
        """Return the buckets and the type of their keys. Sensitive."""
        return self._table, self._key_type

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
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part), form=form)

    def _stored_arrays(self) -> dict[str, files.Array]:
        return dict(self._table.to_arrays())

    def _restore(self, document: files.Document) -> None:
        held = self._spec.key_type or self._seen
        self._table = VoteTable.from_arrays(self._spec.max_counters, self._row_key, held, document.arrays)
        self._mass = max(self._mass, checked_total(0, self._table.loads, 1, len(self._table.loads)))


class _Names(NamedTuple):
    """A column of keys, of which entries name rows."""

    column: pa.ChunkedArray

    def take(self, rows: Integers) -> _Names:
        """Return the column, which stays whole."""
        return self


def _firsts(bounded: Bounded, buckets: Integers) -> Integers:
    """Return of each user's keys the first in every bucket, in their order, which another user has no part in."""
    owners = np.repeat(np.arange(len(bounded.users)), np.diff(bounded.starts))
    _, first = np.unique((owners << 24) | buckets, return_index=True)  # a spec has at most 2²⁴ buckets
    return np.sort(first)
