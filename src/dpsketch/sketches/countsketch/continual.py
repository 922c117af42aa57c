"""Counts published day after day, with an error that grows with the logarithm of the days.

Were each day's total released afresh, a record of the first day would be in all of them, and a year would need noise
for 365 looks at it. Instead the days are the leaves of a binary tree, and each node, a block of 2^l days, is published
once, with noise of its own, on the evening it is complete. A record is in one node of each height; any run of days is
the sum of few nodes.

References
----------
Dwork, Naor, Pitassi and Rothblum, *Differential privacy under continual observation* (2010); Chan, Shi and Song,
*Private and continual release of statistics* (2011). Changed here: only blocks that end within the stated days are
ever published, so a record is in ⌊log₂ days⌋ + 1 nodes, and the noise is Gaussian, exact and on integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch._compiled import countsketch as kernels
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.noise import noise_from_json
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Guarantee, Unit
from dpsketch.sketches.countsketch.adding import sum_of_tables
from dpsketch.sketches.countsketch.clipping import sqrt_up
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED, CountSketchSpec, stated_type, text_spec
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_header
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.permit import Calibration, Part, Permit, Share, additive, obtain
from dpsketch.sketches.specs import Sensitivity, fingerprint_of
from dpsketch.sketches.weights import checked_total, record_units

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["ContinualCountSketch", "blocks", "tree_sensitivity"]

KIND = "counts-continual"

_NODES = "the nodes"


def blocks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the nodes (height, index) whose days, counted from 0, make up ``first`` up to but not including ``last``.

    Node (l, i) holds the days from i·2^l on. At most two of each height are needed, and one where ``first`` is 0.

    Examples
    --------
    >>> list(blocks(0, 6)), list(blocks(3, 6))
    ([(2, 0), (1, 2)], [(0, 3), (1, 2)])
    """
    while first < last:
        height = (last - first).bit_length() - 1
        if first:
            height = min(height, (first & -first).bit_length() - 1)
        yield height, first >> height
        first += 1 << height


def tree_sensitivity(spec: CountSketchSpec, days: int) -> Sensitivity:
    """Return how far one record moves all nodes of the tree together.

    A record moves by w one cell of every row of every node above its day: at most h = ⌊log₂ days⌋ + 1 of them, because
    only blocks that end within the days are published. L1 hkw, L2 w√(hk); twice that for a record replaced, whose day
    may change as well.
    """
    heights = days.bit_length()
    weight = spec.weight_grid.max_units
    times = 2 if spec.unit.neighbours == "replace" else 1
    return Sensitivity(times * heights * spec.rows * weight, times * sqrt_up(weight**2 * spec.rows * heights))


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """Records of today that were checked, and what the sketch is to note with them. Sensitive."""

    key_type: KeyType | None
    fingerprints: npt.NDArray[np.uint64]
    units: npt.NDArray[np.int64]
    mass: int
    skipped: int


class ContinualCountSketch(Partial):
    """A CountSketch that is published every day, at one price for all days.

    Parameters
    ----------
    days : int
        At most so many days will be published; the noise grows with the logarithm of it.
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`; the unit must be a record.
    key_type : {"int", "text"}
        What the keys are. State it: a day without records must not differ from others by its type. Without it keys are
        text, with a warning; a later version will ask for it.
    epsilon, delta, rho : float
        The guarantee for all publications together. It is fixed, and charged, at the start.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge.

    Privacy
    -------
    (ε, δ)-differential privacy of everything published over all days together, for one record of any day: every node
    of the tree carries fresh noise for the L2 (δ > 0, ρ) or L1 (δ = 0) sensitivity of :func:`tree_sensitivity`, is
    published once, and totals are sums of nodes. What is counted today and the open sums of earlier days are exact,
    hence sensitive; they leave by ``to_sensitive_bytes`` only. **Restart from the newest bytes only, written before the
    day's release is shown:** a node published twice, with noise drawn twice, is not covered.

    Accuracy
    --------
    The total after day d is a sum of as many nodes as d has ones in binary, at most ⌊log₂ d⌋ + 1; a run of days one of
    at most 2·log₂ of its length. The noise of a counter has that many times the variance of a node's.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["tea", "tea", "milk"])
    >>> monday = sketch.publish_day()
    >>> tuesday = sketch.day(["tea"] * 5)
    >>> sketch.days_published, len(tuesday.noise)
    (2, 1)
    """

    kind: ClassVar[str] = "counts-continual"

    def __init__(
        self,
        *,
        days: int,
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
        spec = CountSketchSpec(rows, width, unit, seed, grid, stated_type(key_type, type(self).__name__))
        spec.weight_grid.refuse_without_one()
        days = whole_number("days", days, low=1, high=2**20)
        if unit.level != "record":
            raise InvalidInput(
                "a ContinualCountSketch protects records: a user with records on many days is in most nodes of the "
                "tree. Use unit=dps.per_record(…), or one CountSketch of users for each period."
            )
        nodes = Share(_NODES, tree_sensitivity(spec, days), pieces=_nodes_in(days))
        calibrated = additive(Budget(epsilon, delta, rho), nodes)
        note = f"counts of up to {days} days {fingerprint_of(spec)}"
        self._start(spec, days, obtain(calibrated, unit, self._account(ledger, dataset, part), note=note))

    def _start(self, spec: CountSketchSpec, days: int, permit: Permit) -> None:
        self._spec = spec
        self._days = days
        self._permit = permit
        self._row_keys = row_keys(spec.seed, spec.rows)
        self._today = np.zeros((spec.rows, spec.width), dtype=np.int64)
        self._open = np.zeros((days.bit_length(), spec.rows, spec.width), dtype=np.int64)
        self._nodes: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        self._published = 0
        self._mass = 0
        self._skipped = 0

    @property
    def spec(self) -> CountSketchSpec:
        """The public spec."""
        return self._spec

    @property
    def guarantee(self) -> Guarantee:
        """What all publications together promise."""
        caveat = f"It covers all publications of up to {self._days} days."
        return self._permit.calibration.guarantee(self._spec.unit, caveat=caveat, for_tests=self._permit.for_tests)

    @property
    def days(self) -> int:
        """How many days may be published."""
        return self._days

    @property
    def days_published(self) -> int:
        """How many days have been published."""
        return self._published

    @property
    def skipped_nulls(self) -> int:
        """How many records had a null key and were skipped. Sensitive: for the data holder's eyes."""
        return self._skipped

    @property
    def memory(self) -> int:
        """Bytes of all tables at the end: the open sums, and every node published, about two a day."""
        return self._spec.memory * (1 + self._days.bit_length() + 2 * self._days)

    def __repr__(self) -> str:
        spec = self._spec
        return (
            f"<ContinualCountSketch {spec.rows}×{spec.width}, {self._published} of {self._days} days, "
            f"spec {fingerprint_of(spec)}, sensitive>"
        )

    @takes_frames
    def update(self, keys: Any, *, weights: Any = None, counts: Any = None) -> None:
        """Add records of today, as :meth:`dpsketch.CountSketch.update` does at record level."""
        prepared = self._prepare(keys, weights, counts)
        self._begin_change()
        self._add(prepared)

    def _prepare(self, keys: Any, weights: Any, counts: Any) -> Prepared:
        """Check records; change nothing."""
        self._refuse_after_the_end()
        batch = fingerprint(keys, self._spec.key_type)
        units = record_units(self._spec.weight_grid, batch, weights, counts)
        mass = checked_total(self._mass, units, 1, len(units))
        return Prepared(batch.key_type, batch.fingerprints, units, mass, batch.skipped)

    def _add(self, batch: Prepared) -> None:
        kernels.add_weighted(self._today, batch.fingerprints, self._row_keys, batch.units)
        self._mass = batch.mass
        self._skipped += batch.skipped

    def publish_day(self) -> PrivateCountSketch:
        """End the day: publish the nodes that it completes, and return the release of the total so far.

        Interrupted, the sketch refuses to go on: no node is drawn twice, and no day counted twice.
        """
        self._refuse_after_the_end()
        self._begin_change()
        return self._end_day()

    def _end_day(self) -> PrivateCountSketch:
        self._open += self._today
        self._today[:] = 0
        self._published += 1
        for height in range(len(self._open)):
            if self._published % (1 << height):
                break
            node = height, (self._published >> height) - 1
            self._nodes[node] = self._permit.add_noise(self._open[height], _NODES, node)
            self._open[height] = 0
        return self._between(1, self._published)

    @takes_frames
    def day(self, keys: Any, *, weights: Any = None, counts: Any = None) -> PrivateCountSketch:
        """Add a whole day's records and publish it: :meth:`update` and :meth:`publish_day` as one change."""
        prepared = self._prepare(keys, weights, counts)
        self._begin_change()
        self._add(prepared)
        return self._end_day()

    def total(self) -> PrivateCountSketch:
        """Return the release of all days published so far. Costs nothing: it is made of what is public."""
        return self.between(1, self._published)

    def between(self, first: int, last: int) -> PrivateCountSketch:
        """Return the release of the days ``first`` to ``last``, both included and counted from 1. Costs nothing."""
        if self._published == 0:
            raise ReleaseRefused("no day has been published yet: publish_day() ends a day.")
        last = whole_number("last", last, low=1, high=self._published)
        first = whole_number("first", first, low=1, high=last)
        return self._between(first, last)

    def _between(self, first: int, last: int) -> PrivateCountSketch:
        chosen = list(blocks(first - 1, last))
        table = sum_of_tables([self._nodes[node] for node in chosen], [1] * len(chosen))
        laws = (self._permit.calibration.law(_NODES),) * len(chosen)
        return PrivateCountSketch(self._spec, table, laws, self.guarantee, self._permit.charge)

    def _refuse_after_the_end(self) -> None:
        if self._published == self._days:
            raise ReleaseRefused(
                f"all {self._days} days have been published, and the noise was calibrated for so many. Start another "
                "sketch, at its own price."
            )

    def _to_document(self) -> files.Document:
        header = release_header(
            self._spec.to_json(),
            self.guarantee,
            self._permit.charge,
            days=self._days,
            published=self._published,
            noise=self._permit.calibration.law(_NODES).to_json(),
            mass=str(self._mass),
            skipped=self._skipped,
        )
        shape = (len(self._nodes), *self._today.shape)
        nodes = np.array([self._nodes[node] for node in _published_nodes(self._published, self._days)], dtype=np.int64)
        arrays: dict[str, files.Array] = {"today": self._today, "open": self._open, "nodes": nodes.reshape(shape)}
        return files.Document(KIND, True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header = document.header
        days = whole_number("days", header["days"], low=1, high=2**20)
        published = whole_number("published", header["published"], low=0, high=days)
        spec = text_spec(CountSketchSpec.from_json(header["spec"]))
        promise, law = read_guarantee(document), noise_from_json(header["noise"])
        part = Part(_NODES, law, tree_sensitivity(spec, days), pieces=_nodes_in(days))
        calibrated = Calibration.stated(promise, part)
        if not calibrated.sound:
            raise FileRefused("the file's guarantee is not that of a ContinualCountSketch with its noise.")
        sketch = cls.__new__(cls)
        drawn = [(_NODES, node) for node in _published_nodes(published, days)]
        charge = read_charge(document)
        sketch._start(spec, days, Permit(calibrated, spec.unit, charge, drawn=drawn, for_tests=not promise.holds))
        sketch._published = published
        sketch._mass = int(header["mass"])
        sketch._skipped = int(header["skipped"])
        sketch._today[:] = integer_array(document, "today", sketch._today.shape)
        sketch._open[:] = integer_array(document, "open", sketch._open.shape)
        names = list(_published_nodes(published, days))
        tables = integer_array(document, "nodes", (len(names), *sketch._today.shape))
        sketch._nodes = dict(zip(names, tables, strict=True))
        return sketch


def _published_nodes(published: int, days: int) -> Iterator[tuple[int, int]]:
    """Yield the nodes that are complete after so many days, height by height."""
    for height in range(days.bit_length()):
        for index in range(published >> height):
            yield height, index


def _nodes_in(days: int) -> int:
    """Return how many nodes are complete after so many days."""
    return sum(days >> height for height in range(days.bit_length()))
