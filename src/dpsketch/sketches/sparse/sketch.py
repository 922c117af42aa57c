"""Count exact values in a sensitive sparse histogram, and answer from its release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, assert_never, cast

import numpy as np
import numpy.typing as npt

from dpsketch import files, plots
from dpsketch._compiled import sparse as kernels
from dpsketch.arrays import Integers, Words, read_only
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Part
from dpsketch.core.laws import Arrays, Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.sparse import ENTRIES, SparseLaw, are_entries
from dpsketch.numbers import hold_real, hold_whole, probability, whole_number
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.release import KeyedRelease, SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.sketch import Entries, Sketch
from dpsketch.sketches.sparse.estimators import (
    Reader,
    SparseEstimator,
    Survivors,
    column_shares,
    false_rate,
    non_increasing,
    predicted_error,
    projection_for,
    pure,
    stability,
)
from dpsketch.sketches.specs import DEFAULT_SEED, Spec, fingerprint_of, hold_common
from dpsketch.sketches.weights import COUNTER_LIMIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LARGEST_DOMAIN = 2**64
# Text keys are hashed into the domain; in a smaller one too many would meet.
LEAST_TEXT_DOMAIN = 2**40
# How far past the cutoff the columns reach, in scales of the threshold's noise: a value there is dropped with
# probability e⁻³/2, and those that are dropped read a little low.
_MARGIN = 3


@stored
@dataclass(frozen=True, slots=True)
class SparseHistogramSpec(Spec):
    """All that two sparse histograms must share to merge. Public, and so chosen from public knowledge only.

    Attributes
    ----------
    unit : Unit
        Whose presence a release hides.
    domain : int
        How many keys are possible. Integer keys lie in [0, domain); text keys are hashed into it, and add up where they
        meet.
    max_value : float or None
        No key's value is larger, as everybody knows; larger ones read as this. None: values of any size, for which part
        of the budget goes to a threshold part.
    expected_keys : int
        A guess at the number of distinct keys, *not* read off the data: it only sets the table's size.
    collisions : float
        The probability, with that many keys, that another key sets a given bit of a key; sets the table's size too.
    threshold_share : float
        The threshold part's share of ε.
    alpha : int
        The paper's α.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it, or a domain that is too small for text; None
        if nothing does. It is never read off values.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    unit: Unit
    domain: int = LARGEST_DOMAIN
    max_value: float | None = None
    expected_keys: int = 10_000
    collisions: float = 0.04
    threshold_share: float = 0.25
    alpha: int = 2
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_common(self)
        hold_whole(self, "domain", low=2, high=LARGEST_DOMAIN)
        hold_whole(self, "expected_keys", low=1, high=2**28)
        hold_whole(self, "alpha", low=1, high=62)
        hold_real(self, "collisions", "threshold_share")
        hold_real(self, "max_value", optional=True)
        _between("collisions", self.collisions, 0.001, 0.5)
        _between("threshold_share", self.threshold_share, 0.05, 0.95)
        grid = self.weight_grid
        if self.max_value is not None:
            _between("max_value", self.max_value, grid.step, grid.step * 2.0**60)
        if self.rows > 2**31:
            raise InvalidInput("expected_keys / collisions must not pass 2**31 rows.")
        if self.key_type == "text" and self.domain < LEAST_TEXT_DOMAIN:
            raise InvalidInput(
                "text keys are hashed into the domain, and below 2**40 too many would meet. Use domain=2**64, or "
                "number the keys."
            )

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"over {self.domain:,} keys"

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def rows(self) -> int:
        """Bits in a column of the table: expected keys over collisions, rounded up to whole words."""
        return 64 * math.ceil(self.expected_keys / self.collisions / 64)

    @property
    def published(self) -> Self:
        """The spec as a release shows it: a domain that is too small for text holds integers, whoever states it."""
        return replace(self, key_type="int") if self.domain < LEAST_TEXT_DOMAIN else self

    @property
    def memory(self) -> int:
        """Bytes that the expected keys take while they are counted."""
        return 16 * self.expected_keys

    def tables(self) -> tuple[Table, ...]:
        """Return the entries. A unit has at most ``max_keys`` keys, and adds at most its largest weight to each."""
        return (Table(ENTRIES, (self.domain,), Move.each(self.unit.max_keys, self.weight_grid.max_units)),)

    def laws(self, budget: Budget) -> tuple[SparseLaw]:
        """Return the law of a release at this budget.

        With ``max_value`` the ALP part gets all of ε, and no δ is needed. Otherwise the threshold part gets
        ``threshold_share`` of ε and all of δ, the ALP part the rest.
        """
        match budget.cost:
            case PureCost(epsilon):
                delta = 0.0
            case ApproximateCost(epsilon, delta):
                pass
            case ZcdpCost(rho):
                raise InvalidInput(
                    "a sparse histogram flips bits and adds Laplace noise, which pure ε describes best: give epsilon= "
                    f"with delta= instead of rho=. epsilon={_floor(math.sqrt(2 * rho))} with delta=0 stays within the "
                    "rho asked for."
                )
            case never:
                assert_never(never)
        (table,), neighbours = self.tables(), self.unit.neighbours
        apart = table.between(neighbours)
        if self.max_value is not None:
            survival, top = None, math.floor(self.max_value / self.grid)
        else:
            share = self.threshold_share * epsilon
            epsilon = _rest(epsilon, share)
            if delta:
                survival = stability(share, delta, apart, table.move)
            else:
                survival = pure(share, apart, self.domain)
            top = survival.cutoff + math.ceil(_MARGIN / survival.rate)
        sizes = {"top": top, "rows": self.rows, "alpha": self.alpha, "seed": self.seed}
        return (SparseLaw(table, neighbours, projection_for(epsilon, apart, **sizes), survival),)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        (law,) = laws
        return law.words

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        """Return the error of a mid-sized value without collisions, and with those of the expected number of keys."""
        none, expected = (self.grid * predicted_error(laws[0], share) for share in (0.0, self.collisions))
        return none, expected

    def positions(self, fingerprints: Words, key_type: KeyType | None) -> Words:
        """Return the places in the domain of keys, given by fingerprint.

        An integer key is its own place: fingerprints of integers can be undone. A text key's fingerprint is scaled to
        the domain.
        """
        if key_type == "text" and self.domain == LARGEST_DOMAIN:
            return fingerprints
        positions = np.empty_like(fingerprints)
        if key_type == "text":
            kernels.reduce_range(fingerprints, np.uint64(self.domain), positions)
            return positions
        kernels.invert_fingerprints(fingerprints, positions)
        if self.domain < LARGEST_DOMAIN and np.any(positions >= np.uint64(self.domain)):
            raise InvalidInput(f"an integer key lies outside the domain [0, {self.domain}). State a larger domain=.")
        return positions


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be a number between {low:g} and {high:g}.")


def _rest(total: float, part: float) -> float:
    """Return the largest double that with ``part`` does not pass ``total``, without rounding."""
    rest = total - part
    while Fraction(rest) + Fraction(part) > Fraction(total):
        rest = math.nextafter(rest, 0.0)
    return rest


def _floor(value: float) -> str:
    """Return a number in four digits, rounded down."""
    digits = 10 ** (3 - math.floor(math.log10(value)))
    return f"{math.floor(value * digits) / digits:.4g}"


@dataclass(frozen=True, slots=True, eq=False)
class PrivateSparseHistogram(KeyedRelease, SketchRelease):
    """A released sparse histogram, to be queried by key."""

    kind: ClassVar[str] = "sparse"
    spec_type: ClassVar[Any] = SparseHistogramSpec

    spec: SparseHistogramSpec
    _reader: Reader = field(init=False, repr=False)

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {ENTRIES} and isinstance(parts[ENTRIES].law, SparseLaw)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reader", Reader.for_shares(self.law, column_shares(self.table)))

    @property
    def law(self) -> SparseLaw:
        """How it was drawn: the parameters of the ALP part, and of the threshold part if there is one."""
        return cast("SparseLaw", self.drawn.parts[ENTRIES].law)

    @property
    def table(self) -> Words:
        """The released bits, read-only, columns × rows/64."""
        return read_only(cast("Words", self.drawn.parts[ENTRIES].arrays["bits"]))

    @property
    def kept(self) -> Survivors:
        """What the threshold part kept: positions in the domain, and noisy values in units of ``spec.grid``."""
        nobody: Arrays = {"positions": np.empty(0, np.uint64), "values": np.empty(0, np.int64)}
        found: Mapping[str, Any] = {**nobody, **self.drawn.parts[ENTRIES].arrays}
        return Survivors(read_only(found["positions"]), read_only(found["values"]))

    def __repr__(self) -> str:
        projection = self.law.projection
        shape = f"{projection.columns}×{projection.rows} bits, {len(self.kept.positions)} keys kept"
        return f"<PrivateSparseHistogram {shape}, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    def estimate(self, keys: Any, *, confidence: float = 0.95, estimator: SparseEstimator = "mean") -> Estimates:
        """Estimate the values of keys.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up. Nulls are refused, and integers outside the domain.
        confidence : float
            The posterior probability of each interval, over the noise and the choice of the hash functions: under one
            seed for ever, a key that collides badly is off in every release. Of what was counted, after bounding.
        estimator : {"mean", "median", "walk"}
            "mean" and "median" of the posterior; the median has the least mean absolute error, the mean the least mean
            square. "walk": the paper's.

        Accuracy
        --------
        Collisions are accounted for by what the table itself shows of them. A value above the table's top that the
        threshold part dropped, which is rare, reads low; with ``max_value`` every larger value reads as ``max_value``.
        """
        confidence = probability("confidence", confidence)
        asked, positions = self._positions(keys)
        return self._read(asked, positions, estimator, confidence, 1 - confidence)

    @property
    def names_keys(self) -> bool:
        """Whether the threshold part kept keys that it can name: of text it keeps hashes."""
        return self.law.survival is not None and self.spec.key_type == "int"

    def top(
        self, n: int, *, candidates: Any = None, confidence: float = 0.95, estimator: SparseEstimator = "mean"
    ) -> Estimates:
        """Return the ``n`` keys with the largest estimates, largest first.

        Parameters
        ----------
        n : int
            How many.
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to choose from. Without them, the keys that the threshold part kept.
        confidence : float
            The probability with which all intervals hold at once, although the keys were selected by the very noise
            they are about: each is widened for the number of candidates or, without them, of keys kept (Bonferroni),
            and the latter allow for what reaching the cutoff takes. How many keys there were does not matter.
        estimator : {"mean", "median", "walk"}
            As for :meth:`estimate`.
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        tail = 1 - confidence
        if candidates is None:
            asked, positions = self._kept_keys()
            tail /= max(1, len(positions))
        else:
            asked, positions = self._positions(candidates)
            positions, first = np.unique(positions, return_index=True)
            if len(first) == 0:
                raise InvalidInput("top needs at least one candidate key.")
            asked = [asked[i] for i in first]
            tail /= len(first)
        found = self._read(asked, positions, estimator, confidence, tail, listed=candidates is None)
        return _largest(found, n)

    def survivors(self, *, candidates: Any = None, confidence: float = 0.95) -> Estimates:
        """Return the keys that the threshold part kept explicitly, largest first, with intervals for all at once.

        Parameters
        ----------
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to name survivors by: needed for text keys, of which a release holds hashes only. Survivors that are
            not among them are left out.
        confidence : float
            The probability with which all intervals hold.

        Notes
        -----
        Under the pure rule about one key that nobody has survives as well.
        """
        if candidates is None:
            return self.top(max(1, len(self.kept.positions)), confidence=confidence)
        confidence = probability("confidence", confidence)
        self._need_threshold()
        asked, positions = self._positions(candidates)
        positions, first = np.unique(positions, return_index=True)
        hit = self.kept.look_up(positions) >= 0
        chosen = [asked[i] for i in first[hit]]
        tail = (1 - confidence) / max(1, len(chosen))
        return _largest(self._read(chosen, positions[hit], "mean", confidence, tail, listed=True), len(chosen))

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest candidates with intervals or, without candidates, how many keys are how large."""
        words = self.title("sparse histogram")
        if candidates is not None:
            return plots.bars(self.top(n, candidates=candidates), words)
        values, keys = self.sizes()
        figure = plots.new_figure()
        axes = figure.subplots()
        axes.step(values, keys, where="mid", color="#1f4e79")
        axes.set_xlabel("value")
        axes.set_ylabel("about so many keys have at least this value")
        axes.set_ylim(bottom=0)
        axes.set_title(words, fontsize=9, loc="left", wrap=True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return figure

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def sizes(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return values, and about how many keys are at least so large, read off the columns' shares of ones.

        Each key that reaches a column sets one of its bits, so the share of bits that are set tells how many do.
        """
        projection = self.law.projection
        values = np.arange(0.5, projection.columns) * (self.spec.grid / projection.columns_a_unit)
        keys = -projection.rows * np.log1p(-np.minimum(self.collision_rates(), 1 - 1 / projection.rows))
        return values, np.asarray(keys, np.float64)

    def collision_rates(self) -> npt.NDArray[np.float64]:
        """Return for each column the share of bits that some key sets, as the flipped bits show it."""
        flip = self.law.projection.flip
        shares = non_increasing(column_shares(self.table))
        return np.asarray(np.clip((shares - flip) / (1 - 2 * flip), 0, 1))

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        spec, threshold, projection, kept = self.spec, self.law.survival, self.law.projection, len(self.kept.positions)
        collisions = self.collision_rates()
        # So many keys, thrown into so many rows, set this share of the first column's bits.
        found = -projection.rows * math.log1p(-min(float(collisions[0]), 1 - 1 / projection.rows))
        more = "; more keys than expected cost accuracy: state a larger expected_keys="
        keys = f"about {found:,.0f} reach the first column, {spec.expected_keys:,} were expected"
        facts: dict[str, Any] = {
            "table": f"{projection.columns} columns × {projection.rows:,} bits",
            "collisions": f"{collisions.mean():.3f} on average, {collisions[0]:.3f} in the first column",
            "keys": keys + more * (found > 1.5 * spec.expected_keys),
            "top": spec.grid * projection.top,
            "error": spec.grid * predicted_error(self.law, float(collisions.mean())),
        }
        if threshold is None:
            return facts
        false = spec.domain * false_rate(threshold) if threshold.rule == "pure" else 0.0
        return facts | {"cutoff": spec.grid * threshold.cutoff, "survivors": kept, "false_survivors_expected": false}

    def _positions(self, keys: Any) -> tuple[list[Any], Words]:
        asked, column = self._looked_up(keys)
        batch = fingerprint(column, self.spec.key_type)
        if batch.skipped:
            raise InvalidInput("a null is not a key that can be looked up.")
        return asked, self.spec.positions(batch.fingerprints, batch.key_type)

    def _kept_keys(self) -> tuple[list[Any], Words]:
        self._need_threshold()
        if self.spec.key_type != "int":
            whose = "of text keys" if self.spec.key_type == "text" else "without a key type, which may be of text keys,"
            raise InvalidInput(
                f"a release {whose} holds their hashes, not the keys. Give candidates=, a list of keys that may occur "
                "(a public list costs no privacy), or count integers in a histogram that says key_type='int'."
            )
        return self.kept.positions.tolist(), self.kept.positions

    def _need_threshold(self) -> None:
        if self.law.survival is None:
            raise InvalidInput(
                "a release with max_value has no threshold part, so it lists no keys by itself. Give candidates= to "
                "top, or build the histogram without max_value."
            )

    def _read(
        self,
        asked: list[Any],
        positions: Words,
        estimator: SparseEstimator,
        confidence: float,
        tail: float,
        *,
        listed: bool = False,
    ) -> Estimates:
        read = self._reader.read(self.table, self.kept, positions, estimator, tail, listed=listed)
        value, low, high = (self.spec.grid * part for part in read)
        return Estimates(asked, value, low, high, confidence, self.counts)


def _largest(found: Estimates, n: int) -> Estimates:
    order = np.argsort(-found.value, kind="stable")[:n]
    value, low, high = (each[order] for each in (found.value, found.low, found.high))
    return Estimates([found.key[i] for i in order], value, low, high, found.confidence, found.counts)


# Batches wait until together they are as long as what is there: many small ones then cost n log n in all.
_LEAST_WAITING = 1 << 16


class SparseEntries:
    """Positions in the domain, each once and in increasing order, with a value of at least 1. Sensitive."""

    def __init__(self) -> None:
        # What is in order, and the batches that wait, in one tuple: whoever reads while it is being settled, or after
        # settling was interrupted, finds each batch in one place only.
        self._held: tuple[Words, Integers, tuple[tuple[Words, Integers], ...]] = (
            np.empty(0, np.uint64),
            np.empty(0, np.int64),
            (),
        )

    def __repr__(self) -> str:
        return "<SparseEntries; sensitive, content not shown>"

    def add(self, positions: Words, units: Integers | int) -> None:
        """Add values; the caller has made sure that no sum passes 63 bits."""
        if isinstance(units, int):
            distinct, counts = np.unique(positions, return_counts=True)
            part = (distinct, units * counts.astype(np.int64))
        else:
            part = _summed(positions, units)
        self._held = (*self._held[:2], (*self._held[2], part))
        if sum(len(each) for each, _ in self._held[2]) > max(_LEAST_WAITING, len(self._held[0])):
            self._settle()

    def arrays(self) -> tuple[Words, Integers]:
        """Return the positions and their values."""
        self._settle()
        return self._held[:2]

    def _settle(self) -> None:
        positions, units, waiting = self._held
        if waiting:
            parts = [(positions, units), *waiting]
            settled = _summed(np.concatenate([each for each, _ in parts]), np.concatenate([each for _, each in parts]))
            self._held = (*settled, ())


def _summed(positions: Words, units: Integers) -> tuple[Words, Integers]:
    """Sort by position, add up what belongs to one, and leave out zeros: a key of value 0 is absent."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), np.bool_), ordered[1:] != ordered[:-1]]))
    sums = np.add.reduceat(units[order], starts) if len(starts) else np.empty(0, np.int64)
    present = sums > 0
    return ordered[starts][present], sums[present]


class SparseHistogram(Sketch[SparseHistogramSpec, PrivateSparseHistogram]):
    """The sensitive histogram: takes records, merges, and is released once its budget is charged.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    domain : int, optional
        How many keys are possible, at most 2⁶⁴. Integer keys lie in [0, domain); text keys are hashed into it.
    max_value : float, optional
        A bound on every key's value that is known beforehand. All of the budget then goes to the ALP part. Without it,
        values may be of any size, and a quarter of the budget goes to a threshold part that holds the large ones.
    expected_keys : int, optional
        A guess at the number of distinct keys, from public knowledge: it sets the size of the released table. Too small
        a guess costs accuracy, never privacy.
    collisions : float, optional
        The probability of a collision at that many keys; less means a larger table.
    threshold_share : float, optional
        The threshold part's share of ε.
    alpha : int, optional
        The paper's α; 2 flips bits with probability 1/4 exactly.
    seed, grid, key_type : optional
        As for :class:`~dpsketch.CountSketch`.

    Privacy
    -------
    The ALP part costs k·g(w·ε'), the threshold part its share (see :mod:`~dpsketch.laws.sparse` and
    :mod:`~dpsketch.laws.sparse`). δ = 0 is pure, also for keys that nobody has; with δ > 0 the threshold
    part lowers its cutoff to what δ allows. ρ is refused, with the ε that stays within it: neither part gains from it.
    Sizes come from the spec, never from the data.

    Accuracy
    --------
    A value up to the top is read with an error of O(w·k/ε), whatever the other keys' values are; the error of a larger
    one is that of the threshold part's Laplace noise.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.SparseHistogram(unit=dps.per_record(), domain=2**32, max_value=100)
    >>> histogram.update([7, 9], counts=[90, 20])
    >>> private = histogram.release(epsilon=1.0, delta=0)
    >>> bool(private.estimate([7]).value[0] > private.estimate([8]).value[0])
    True
    """

    kind: ClassVar[str] = "sparse"
    spec_type: ClassVar[Any] = SparseHistogramSpec
    release_type: ClassVar[Any] = PrivateSparseHistogram

    def __init__(
        self,
        *,
        unit: Unit,
        domain: int = LARGEST_DOMAIN,
        max_value: float | None = None,
        expected_keys: int = 10_000,
        collisions: float = 0.04,
        threshold_share: float = 0.25,
        alpha: int = 2,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(
            SparseHistogramSpec(
                unit, domain, max_value, expected_keys, collisions, threshold_share, alpha, seed, grid, key_type
            )
        )
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: SparseHistogramSpec) -> None:
        super()._start(spec)
        self._entries = SparseEntries()

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        spec = replace(self._spec, key_type=entries.key_type)  # refuses text in a domain that is too small for it
        positions = spec.positions(entries.prints, entries.key_type)
        if entries.starts is None:
            return partial(self._entries.add, positions, entries.added)
        together = entries.key_type == "text" and self._spec.domain != LARGEST_DOMAIN
        bounded = (positions, entries.amounts)
        if together:
            bounded = _clipped_together(*bounded, entries.starts, self._spec.weight_grid.max_units)
        return partial(self._entries.add, *bounded)

    def _absorb(self, other: Self) -> None:
        self._entries.add(*other._entries.arrays())

    @property
    def _published(self) -> SparseHistogramSpec:
        return self._spec.published

    def _exact(self) -> tuple[Words, Integers]:
        """Return the positions and their values. Sensitive."""
        return self._entries.arrays()

    def _stored_arrays(self) -> dict[str, files.Array]:
        positions, units = self._entries.arrays()
        return {"positions": positions, "units": units}

    def _restore(self, document: files.Document) -> None:
        positions, units = document.arrays["positions"], document.arrays["units"]
        good = are_entries(positions, units, self._spec.domain, 1)
        if not good or (mass := sum(np.asarray(units).tolist())) > COUNTER_LIMIT:
            raise FileRefused("the file's entries are not those of a sparse histogram.")
        self._entries.add(np.asarray(positions), np.asarray(units))
        self._mass = max(self._mass, mass)


def _clipped_together(positions: Words, units: Integers, starts: Integers, largest: int) -> tuple[Words, Integers]:
    """Return the places of bounded keys, in which two text keys of one user may meet: they are clipped together."""
    user = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((positions, user))
    positions, user, units = positions[order], user[order], units[order]
    new = (positions[1:] != positions[:-1]) | (user[1:] != user[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(user)), np.bool_), new]))
    sums = np.add.reduceat(units, first) if len(first) else units
    return positions[first], np.minimum(sums, largest)
