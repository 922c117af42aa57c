"""Count records in a sensitive HeavyHitters sketch, and answer from its release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, assert_never, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import plots
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units, distinct_prefixes
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import codes_of
from dpsketch.compound import CompoundKey
from dpsketch.core.contributions import Cells, added, checked
from dpsketch.core.move import Move, Table
from dpsketch.distributions import normal_quantile
from dpsketch.errors import InvalidInput
from dpsketch.hashing import dictionary_codes, fingerprint, row_keys, to_arrow
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.privacy import Unit
from dpsketch.release import KeyedRelease, SketchRelease
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.countsketch import Estimator, PrivateCountSketch
from dpsketch.sketches.countsketch.addition import spread
from dpsketch.sketches.countsketch.decoding import LEAST_ROWS
from dpsketch.sketches.heavy.search import FoundKeys, find
from dpsketch.sketches.heavy.spec import DENSE, INNER, LEAF, TOTAL, HeavyHittersSpec, Keys, TreeNoise
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class PrivateHeavyHitters(KeyedRelease, SketchRelease):
    """A released tree of prefixes, to be searched and queried.

    Its tables hold integers, or real numbers in an answer of a stream (:class:`~dpsketch.ContinualSketch`).
    """

    kind: ClassVar[str] = "heavy"
    spec_type: ClassVar[Any] = HeavyHittersSpec

    spec: HeavyHittersSpec

    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def total(self) -> npt.NDArray[Any]:
        """The released total of all records, one number."""
        return cast("npt.NDArray[Any]", self.drawn.table(TOTAL))

    @property
    def dense(self) -> npt.NDArray[Any]:
        """The released first level, one number a prefix; for text the last one counts keys that were too long."""
        return cast("npt.NDArray[Any]", self.drawn.table(DENSE))

    @property
    def tables(self) -> npt.NDArray[Any]:
        """The released CountSketches, levels × rows × width; the last one counts the keys themselves."""
        if "tables" not in self._known:
            levels = [self.drawn.table(name) for name in (INNER, LEAF) if name in self.drawn.parts]
            self._known["tables"] = np.concatenate(levels) if len(levels) > 1 else levels[0]
            self._known["tables"].setflags(write=False)
        return cast("npt.NDArray[Any]", self._known["tables"])

    @property
    def noise(self) -> TreeNoise:
        """The noise in each part."""
        noises = {name: self.drawn.noise(name) for name in self.drawn.parts}
        return TreeNoise(noises[TOTAL], noises[DENSE], noises.get(INNER, noises[LEAF]), noises[LEAF])

    @property
    def row_keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the tables' rows, levels × rows."""
        return level_keys(self.spec)

    @property
    def leaf(self) -> PrivateCountSketch:
        """The last level by itself: an ordinary CountSketch of the keys."""
        return PrivateCountSketch.part_of(self.spec.leaf, self.tables[-1], self.noise.leaf, self.drawn)

    @property
    def lowest_threshold(self) -> float:
        """The least threshold at which this release tells keys from noise; a lower one asked for acts as this one."""
        return self.spec.grid * self._found.threshold

    @property
    def searches(self) -> bool:
        """Whether keys are searched for: yes, from level to level."""
        return True

    @property
    def _found(self) -> FoundKeys:
        return self._search(None)

    def _search(self, progress: Callable[[int, int], None] | None) -> FoundKeys:
        # A function of the release alone, so it is worked out once.
        if "found" not in self._known:
            self._known["found"] = find(self, progress)
        return cast("FoundKeys", self._known["found"])

    def __repr__(self) -> str:
        shape = f"{self.spec.sketched} tables of {self.spec.rows}×{self.spec.width}"
        return f"<PrivateHeavyHitters {shape}, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    def top(
        self,
        n: int | None = None,
        *,
        threshold: float | None = None,
        candidates: Any = None,
        confidence: float = 0.95,
        progress: Callable[[int, int], None] | None = None,
    ) -> Estimates:
        """Return the most frequent keys, largest first, without being told any.

        Parameters
        ----------
        n : int, optional
            At most so many keys.
        threshold : float, optional
            Only keys with an estimate of at least this. None, or one below :attr:`lowest_threshold`, acts as that: what
            lies below cannot be told from noise, and is never listed, also where fewer than ``n`` keys are left. Where
            nothing is listed, the answer's ``note`` says why.
        candidates : column of keys, optional
            Look at these keys only; then there is no lowest threshold.
        confidence : float
            The intervals hold for all keys listed at once with this probability, although the keys were picked by the
            very noise they are about. A key whose interval reaches 0 may be absent, and is not listed.
        progress : callable, optional
            Is told after each level of the tree how many were searched, and how many there are. It begins again with
            each threshold that is tried; a release that was searched before tells nothing.
        """
        confidence = probability("confidence", confidence)
        limit = None if n is None else whole_number("n", n, low=1, high=2**31)
        threshold = None if threshold is None else real_number("threshold", threshold)
        if threshold is not None and not math.isfinite(threshold):
            raise InvalidInput("threshold must be a finite number.")
        if candidates is not None:
            return self._top_of(candidates, limit, threshold, confidence)
        found, grid = self._search(progress), self.spec.grid
        half = found.half_widths(confidence)
        asked = 0.0 if threshold is None else threshold / grid
        listed = np.flatnonzero((found.values > half) & (found.values >= asked))
        named = self._named(found.keys.take(listed).plain())
        keys = [key for key in named if key is not None][:limit]
        listed = listed[[key is not None for key in named]][:limit] if named else listed
        values, half = grid * found.values[listed], grid * half[listed]
        note = "" if keys else self._why_none(threshold, confidence)
        return Estimates(keys, values, values - half, values + half, confidence, self.counts, note)

    def _why_none(self, threshold: float | None, confidence: float) -> str:
        """Say why no key was listed."""
        half = self._found.half_widths(confidence)
        least = max(self.lowest_threshold, self.spec.grid * (float(half.min()) if len(half) else 0.0))
        if threshold is not None and threshold > least:
            return f"no key passes {threshold:.6g}, the threshold asked for; one of {least:.6g} or more can be told."
        note = (
            f"no key passes {least:.6g}: the noise and collisions allow nothing below that to be told from nothing. A "
            "larger budget, or more width"
        )
        rows = "" if self.spec.rows >= LEAST_ROWS else f" and rows={LEAST_ROWS} or more, so that keys can be told apart"
        return f"{note}{rows}, lets smaller keys be found; candidates= asks for keys by name."

    def _top_of(self, candidates: Any, limit: int | None, threshold: float | None, confidence: float) -> Estimates:
        column = self._column(candidates)
        listed = self.leaf.top(max(1, len(column)), candidates=self._askable(candidates), confidence=confidence)
        stop = len(listed) if threshold is None else int(np.count_nonzero(listed.value >= threshold))
        return listed[: stop if limit is None else min(stop, limit)]

    def estimate(self, keys: Any, *, confidence: float = 0.95, estimator: Estimator = "robust") -> Estimates:
        """Estimate the counts of keys, as :meth:`PrivateCountSketch.estimate` does, from the last level."""
        return self.leaf.estimate(self._askable(keys), confidence=confidence, estimator=estimator)

    def decode(
        self, candidates: Any, *, confidence: float = 0.95, progress: Callable[[int, int], None] | None = None
    ) -> Estimates:
        """Estimate many candidate keys together, as :meth:`PrivateCountSketch.decode` does, from the last level."""
        return self.leaf.decode(self._askable(candidates), confidence=confidence, progress=progress)

    def all_records(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate the total weight of all records, those with keys that were too long included."""
        confidence = probability("confidence", confidence)
        value = self.spec.grid * float(self.total[0])
        half = self.spec.grid * _noise_quantile(self.noise.total, confidence)
        return Estimate(value, value - half, value + half, confidence, self.counts)

    def too_long(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate the weight of the records whose text key was longer than ``key_bytes``; such keys are not found."""
        confidence = probability("confidence", confidence)
        if self.spec.key_type == "int":
            return Estimate(0.0, 0.0, 0.0, confidence, self.counts)
        value = self.spec.grid * float(self.dense[-1])
        half = self.spec.grid * _noise_quantile(self.noise.dense, confidence)
        return Estimate(value, value - half, value + half, confidence, self.counts)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` most frequent keys with their intervals."""
        return plots.bars(self.top(n, candidates=candidates), self.title(f"{n} most frequent keys"))

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        facts = {
            **self.leaf.facts(),
            "levels": self.spec.sketched + 1,
            "lowest_threshold": self.lowest_threshold,
            "all_records": self.all_records().to_json(),
        }
        return facts if self.spec.key_type == "int" else {**facts, "too_long": self.too_long().to_json()}

    def _column(self, keys: Any) -> Any:
        """Read keys to look up, refusing those that no record of the spec can have."""
        column = to_arrow(self._looked_up(keys)[1], self.spec.key_type)
        if column.null_count:
            raise InvalidInput("a null is not a key that can be looked up.")
        fingerprint(column[:0], self.spec.key_type)
        if self.spec.space.parse(column).fitting() is not None:
            raise InvalidInput(
                f"a key has more than key_bytes={self.spec.key_bytes} bytes; such keys were not counted one by one. "
                "See too_long() for all of them together."
            )
        return column

    def _askable(self, keys: Any) -> Any:
        """Return keys as the last level is asked for them, refusing those that no record of the spec can have."""
        column = self._column(keys)
        return keys if self.key_columns else column

    def _named(self, keys: list[Any]) -> list[Any]:
        """Return keys that were found as answers name them; None for a text that noise made up, and is no such key."""
        columns = len(self.key_columns)
        return [CompoundKey.stored(key, columns) for key in keys] if columns else keys


def level_keys(spec: HeavyHittersSpec) -> npt.NDArray[np.uint64]:
    """Return the keys of the tables' rows, levels × rows; those of the leaf are an ordinary CountSketch's."""
    above = row_keys(spec.seed, spec.rows * (spec.sketched - 1), "heavy").reshape(-1, spec.rows)
    return np.vstack([above, row_keys(spec.seed, spec.rows)])


def _noise_quantile(law: Noise, confidence: float) -> float:
    """Return the least whole number that the noise stays within with this probability, from Gaussian or exponential."""
    match law:
        case RoundedGaussian(sigma):
            return math.ceil(sigma * normal_quantile(confidence) + 0.5)
        case DiscreteLaplace(epsilon, sensitivity):
            return math.ceil(sensitivity / epsilon * math.log(1 / (1 - confidence)))
        case _:
            assert_never(law)


# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16
# Of so many records equal texts are found first, if there are two a text among the first ones.
_FEWEST = 1_000
_SAMPLE = 1 << 15

Units = npt.NDArray[np.int64]


class HeavyHitters(Sketch[HeavyHittersSpec, PrivateHeavyHitters]):
    """The sensitive sketch: takes records, merges, and is released once its budget is charged.

    It stores no key, has a fixed size, and its tables add up. Where keys may be held until the release, a
    :class:`~dpsketch.Histogram` names several times as many, with smaller errors.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    rows, width : int
        Size of each level's table; rows must be odd.
    key_bits : int
        Keys are integers in [0, 2^key_bits), at most 64 bits. Others are refused.
    key_bytes : int
        Keys are text of at most so many bytes of UTF-8, at most 64. Longer ones are never cut and found as something
        else: such records count in the total and in :meth:`PrivateHeavyHitters.too_long`, and nowhere else. Each byte
        is a level that wants its share of the budget, so take no more of them than the keys have.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.

    Privacy
    -------
    δ > 0: rounded Gaussian noise on every level, analytically calibrated; δ = 0: discrete Laplace noise. See
    :meth:`HeavyHittersSpec.shares` for the split among levels and :meth:`HeavyHittersSpec.tables` for the
    bounds. Search and estimates are post-processing and cost nothing.

    Examples
    --------
    >>> import dpsketch as dps
    >>> sketch = dps.HeavyHitters(unit=dps.per_record(), rows=5, width=256, key_bytes=8)
    >>> sketch.update(["tea", "milk", "rye"], counts=[5000, 2000, 3])
    >>> sketch.release(epsilon=1.0, delta=1e-6).top(threshold=1000).key
    ['tea', 'milk']
    """

    kind: ClassVar[str] = "heavy"
    spec_type: ClassVar[Any] = HeavyHittersSpec
    release_type: ClassVar[Any] = PrivateHeavyHitters

    def __init__(
        self,
        *,
        unit: Unit,
        rows: int = 7,
        width: int = 4096,
        key_bits: int | None = None,
        key_bytes: int | None = None,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
    ) -> None:
        self._start(HeavyHittersSpec(rows, width, unit, key_bits, key_bytes, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: HeavyHittersSpec) -> None:
        super()._start(spec)
        self._row_keys = level_keys(spec)
        self._stated = {table.name: table for table in spec.tables()}

    @property
    def _tables(self) -> list[Integers]:
        """The tables of the sketched levels, the keys' own last."""
        return [*self._arrays.get(INNER, ()), *self._arrays[LEAF]]

    def _parse(self, records: Any) -> Parsed:
        column = to_arrow(records, self._spec.key_type)
        return Parsed(fingerprint(column, self._spec.key_type), _Read(self._spec.space.parse(column), column))

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        records, column = entries.values
        if entries.starts is not None:
            units = entries.amounts
            sums = np.add.reduceat(units, entries.starts[:-1]) if len(units) else units
            checked(self._stated[TOTAL], Cells.of(np.zeros((len(sums), 1), np.int64), sums))
            return partial(self._add_users, records, entries.starts, units)
        self._check_sample(entries)
        summed = _summed(column, entries.rows, entries.added)
        if summed is None:
            return partial(self._add_records, records, entries.added)
        return partial(self._add_records, self._spec.space.parse(summed[0]), summed[1])

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        width, keys, units, records = self._spec.width, self._row_keys, entries.amounts, entries.values.keys
        levels = [
            (prefixes.prints(), units if present is None else units * present)
            for prefixes, present in self._levels(records)
        ]
        found = {
            TOTAL: Cells.of(np.zeros((len(units), 1), np.int64), units),
            DENSE: Cells.of(self._dense_cells(records)[:, np.newaxis], units),
            LEAF: spread(levels[-1:], keys[-1:], width),
        }
        return found | ({INNER: spread(levels[:-1], keys[:-1], width)} if INNER in self._stated else {})

    def _add_records(self, records: Keys, amounts: Units | int) -> None:
        units = np.atleast_1d(np.asarray(amounts, dtype=np.int64))
        for start in range(0, len(records), _BLOCK):
            places = np.arange(start, min(start + _BLOCK, len(records)))
            self._add_block(records.take(places), units if isinstance(amounts, int) else units[places])

    def _add_block(self, records: Keys, units: Units) -> None:
        """Add records to every level; ``units`` has one entry a record, or a single one for all."""
        add_units(self._arrays[DENSE], self._dense_cells(records), units)
        tables = self._tables
        for level, (prefixes, present) in enumerate(self._levels(records)):
            amounts = units
            if present is not None:
                prefixes = prefixes.take(np.flatnonzero(present))
                amounts = units if len(units) == 1 else units[present]
            prints = prefixes.prints()
            if len(amounts) == 1 and amounts[0] == 1:
                kernels.add_ones(tables[level], prints, self._row_keys[level])
            else:
                amounts = np.ascontiguousarray(np.broadcast_to(amounts, prints.shape))
                kernels.add_weighted(tables[level], prints, self._row_keys[level], amounts)

    def _add_users(self, records: Keys, starts: Integers, units: Integers) -> None:
        """Add bounded records to every level, each user once at each place of it."""
        clip, tables = self._spec.leaf.user_clip, self._tables
        edges, cells, amounts = _once_a_user(starts, self._dense_cells(records).view(np.uint64), units, None)
        added(self._arrays[DENSE], checked(self._stated[DENSE], Cells(edges, cells.view(np.int64), amounts)))
        for level, (prefixes, present) in enumerate(self._levels(records)):
            table = self._stated[LEAF] if level == len(tables) - 1 else _one_of(self._stated[INNER])
            once = _once_a_user(starts, prefixes.prints(), units, present)
            clipped = clip.add(tables[level], table, *once, self._row_keys[level])
        self._clipped += clipped

    def _dense_cells(self, records: Keys) -> npt.NDArray[np.int64]:
        space = self._spec.space
        cells = records.cells(space.dense_depth)
        fitting = records.fitting()
        if fitting is not None:
            cells[~fitting] = space.dense_cells - 1
        return cells

    def _levels(self, records: Keys) -> Iterator[tuple[Keys, npt.NDArray[np.bool_] | None]]:
        """Yield, for each table, the records' prefixes and which of them are counted there.

        A text that has ended is counted at the level where it ends, and then at the leaf only: the levels between
        would learn nothing, and it would collide with others there.
        """
        space = self._spec.space
        fitting = records.fitting()
        for depth in range(space.dense_depth + 1, space.size + 1):
            present = None if depth == space.size else records.reaching(depth - 1)
            if fitting is not None:
                present = fitting if present is None else present & fitting
            yield records.cut(depth), present

    def _exact(self) -> dict[str, Integers]:
        """Return the exact tables by name. Sensitive."""
        return {TOTAL: np.array([self._mass], np.int64), **self._arrays}


class _Read(NamedTuple):
    """A column of keys: parsed, and as it came."""

    keys: Keys
    column: pa.ChunkedArray

    def take(self, rows: Integers) -> _Read:
        """Return the keys of some rows; the column stays whole."""
        return _Read(self.keys.take(rows), self.column)


def _one_of(tables: Table) -> Table:
    """Return one of the equal tables that are kept as this one, with its share of the move, rounded down."""
    levels, *shape = tables.shape or ()
    move = tables.move
    shared = (move.l1 // levels, move.squared // levels, move.cells // levels)
    return Table(tables.name, tuple(shape), Move(*shared, move.most, move.signed))


def _once_a_user(
    starts: Integers, prints: Words, units: Integers, present: npt.NDArray[np.bool_] | None
) -> tuple[Integers, Words, Integers]:
    """Return prefixes of bounded keys, each once a user with the largest of its units, as starts, prints and units."""
    edges, kept, largest = np.empty_like(starts), np.empty_like(prints), np.empty_like(units)
    marks = np.ones(len(prints), np.bool_) if present is None else present
    distinct_prefixes(starts, prints, units, marks, edges, kept, largest)
    return edges, kept[: edges[-1]], largest[: edges[-1]]


def _summed(
    column: pa.ChunkedArray, rows: Integers | None, amounts: Units | int
) -> tuple[pa.ChunkedArray, Units] | None:
    """Return the distinct texts of a batch and the units of each; None where there are too many to gain by it.

    A text goes to as many tables as it may have bytes, so that finding its equals first saves time if it has some. The
    tables are the same: they hold sums.
    """
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    coded = pa.types.is_dictionary(column.type) and column.num_chunks == 1
    kind = column.type.value_type if coded else column.type
    if len(column) < _FEWEST or not any(is_kind(kind) for is_kind in kinds):
        return None
    if coded:  # what no row has adds nothing
        texts, codes = column.chunk(0).dictionary, dictionary_codes(column.chunk(0))
        if len(texts) > len(column) // 2:
            return None
    elif len(column.slice(0, _SAMPLE).unique()) > min(len(column), _SAMPLE) // 2:
        return None
    else:
        encoded = column.dictionary_encode()
        texts = encoded.chunk(0).dictionary
        codes = np.concatenate([codes_of(chunk.indices) for chunk in encoded.chunks])
    codes = codes if rows is None else codes[rows]
    if isinstance(amounts, int):
        return pa.chunked_array([texts]), amounts * np.bincount(codes, minlength=len(texts))
    units = np.zeros(len(texts), np.int64)
    np.add.at(units, codes, amounts)
    return pa.chunked_array([texts]), units
