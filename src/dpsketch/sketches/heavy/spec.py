r"""State the public spec of a HeavyHitters sketch, and treat keys as paths in a tree.

A key is a sequence of bytes. An integer of ``key_bits`` bits is its big-endian bytes, always equally many. A text is
its own bytes, at most ``key_bytes`` of them, and may end anywhere: at depth d it is cut to its first d bytes, so one
that has ended before is told from one that goes on by its length. "a" and "a\0" are therefore different keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled.hashing import hash_integers, hash_ranges
from dpsketch._compiled.heavy import hash_following, text_cells
from dpsketch.core.codec import stored
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import FINGERPRINT_SEED, KeyType
from dpsketch.noise import Noise
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.specs import DEFAULT_SEED, Spec, hold_key_columns
from dpsketch.sketches.weights import guessed_counts

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.predict import SearchPrediction


Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Prints = npt.NDArray[np.uint64]

# The first level that is kept cell by cell has so many bytes, if a level is left below it.
_DENSE_BYTES = 2


class Keys(Protocol):
    """Keys, or prefixes of keys, of one kind."""

    def __len__(self) -> int:
        """How many."""

    def take(self, places: Places) -> Self:
        """Return those at some places."""

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""

    def fitting(self) -> Marks | None:
        """Mark those that are not too long for the tree; None if all fit."""

    def reaching(self, depth: int) -> Marks | None:
        """Mark those that have ``depth`` bytes; None if all have."""

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of every prefix that goes on from one of these, all of ``depth`` bytes."""

    def children(self, depth: int, places: Places) -> Self:
        """Return those prefixes, or texts that end there, at some places among them all."""

    def cells(self, depth: int) -> Places:
        """Return the numbers of prefixes of at most ``depth`` bytes, for a level kept cell by cell."""

    def prints(self) -> Prints:
        """Return their fingerprints."""

    def plain(self) -> list[Any]:
        """Return them as Python values."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntegerKeys:
    """Integers of ``size`` bytes, or their leading bytes."""

    values: npt.NDArray[np.uint64]
    size: int

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: Places) -> Self:
        """Return those at some places."""
        return type(self)(self.values[places], self.size)

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""
        if depth == 0:
            return type(self)(np.zeros_like(self.values), 0)
        return type(self)(self.values >> np.uint64(8 * (self.size - depth)), depth)

    def fitting(self) -> None:
        """All fit."""

    def reaching(self, depth: int) -> None:
        """All have every byte."""

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of the 256 integers that go on from each of these."""
        return self.children(depth, np.arange(256 * len(self))).prints()

    def children(self, depth: int, places: Places) -> Self:
        """Return the integers at some places among the 256 that go on from each of these."""
        last = (places & 255).astype(np.uint64)
        return type(self)((self.values[places >> 8] << np.uint64(8)) | last, depth + 1)

    def cells(self, depth: int) -> Places:
        """Return the leading bytes as a number."""
        return self.cut(depth).values.astype(np.int64)

    def prints(self) -> Prints:
        """Return fingerprints as :mod:`dpsketch.hashing` defines them for integers."""
        hashes = np.empty(len(self.values), np.uint64)
        hash_integers(_frozen(self.values), FINGERPRINT_SEED, hashes)
        return hashes

    def plain(self) -> list[int]:
        """Return them as Python integers."""
        numbers: list[int] = self.values.tolist()
        return numbers


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TextKeys:
    """Texts: text i has ``lengths[i]`` bytes of ``data`` from ``starts[i]`` on; at most ``size`` bytes fit the tree."""

    data: npt.NDArray[np.uint8]
    starts: Places
    lengths: Places
    size: int

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, places: Places) -> Self:
        """Return those at some places."""
        return type(self)(self.data, self.starts[places], self.lengths[places], self.size)

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""
        return type(self)(self.data, self.starts, np.minimum(self.lengths, depth), self.size)

    def fitting(self) -> Marks | None:
        """Mark those of at most ``size`` bytes."""
        marks: Marks = self.lengths <= self.size
        return None if marks.all() else marks

    def reaching(self, depth: int) -> Marks | None:
        """Mark those of at least ``depth`` bytes."""
        marks: Marks = self.lengths >= depth
        return None if marks.all() else marks

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of each of these, which ends here, and of it with each byte that may follow."""
        hashes = np.empty((len(self), 257), np.uint64)
        hash_following(self._letters(depth), FINGERPRINT_SEED, hashes)
        return hashes.ravel()

    def children(self, depth: int, places: Places) -> Self:
        """Return those at some places among all texts that end here or go on by a byte, 257 for each of these."""
        parents, last = np.divmod(places, 257)
        letters = np.zeros((len(places), self.size), np.uint8)
        letters[:, :depth] = self._letters(depth)[parents]
        letters[:, depth] = np.maximum(last - 1, 0)
        return type(self)(letters.ravel(), _steps(letters.size, self.size), depth + (last > 0), self.size)

    def cells(self, depth: int) -> Places:
        """Return their numbers among the texts of at most ``depth`` bytes."""
        numbers = np.empty(len(self), np.int64)
        text_cells(_frozen(self.data), self.starts, self.lengths, depth, numbers)
        return numbers

    def prints(self) -> Prints:
        """Return fingerprints as :mod:`dpsketch.hashing` defines them for text."""
        hashes = np.empty(len(self), np.uint64)
        hash_ranges(_frozen(self.data), self.starts, self.starts + self.lengths, FINGERPRINT_SEED, hashes)
        return hashes

    def plain(self) -> list[str | bytes]:
        """Return them as text where they are valid UTF-8, else as bytes."""
        spans = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [_text(self.data[start:stop].tobytes()) for start, stop in spans]

    def packed(self) -> Self:
        """Return them with a copy of their own bytes and no others."""
        letters = self._letters(self.size)
        return type(self)(letters.ravel(), _steps(letters.size, self.size), self.lengths, self.size)

    def _letters(self, depth: int) -> npt.NDArray[np.uint8]:
        """Return the first ``depth`` bytes of each as a matrix; what lies beyond a text's end is 0."""
        places = self.starts[:, np.newaxis] + np.arange(depth)
        inside = np.arange(depth) < self.lengths[:, np.newaxis]
        letters = np.zeros((len(self), depth), np.uint8)
        letters[inside] = self.data[places[inside]]
        return letters


@dataclass(frozen=True, slots=True)
class KeySpace:
    """All keys that a sketch can find.

    Attributes
    ----------
    key_type : {"int", "text"}
        What the keys are.
    size : int
        Bytes of an integer, or of the longest text.
    bits : int
        Bits of an integer; 0 for text.
    """

    key_type: KeyType
    size: int
    bits: int

    @property
    def dense_depth(self) -> int:
        """How many bytes the level has that is kept cell by cell."""
        return min(_DENSE_BYTES, self.size - 1)

    @property
    def dense_cells(self) -> int:
        """Cells of that level; for text the last one counts the records whose key is too long."""
        if self.key_type == "int":
            return 1 << (self.bits - 8 * (self.size - self.dense_depth))
        return _texts(self.dense_depth) + 1

    @property
    def branches(self) -> int:
        """How many children a prefix has: one for each byte, and the text that ends with it."""
        return 256 if self.key_type == "int" else 257

    def parse(self, column: pa.ChunkedArray) -> Keys:
        """Read a column of keys of this kind; a null becomes some key, to be left out by its place."""
        if self.key_type == "int":
            return IntegerKeys(self._integers(column), self.size)
        if pa.types.is_dictionary(column.type):
            # Arrow cannot look up views: give each dictionary plain values first.
            pairs = ((chunk.indices, chunk.dictionary.cast(pa.large_binary())) for chunk in column.chunks)
            column = pa.chunked_array([words.take(codes) for codes, words in pairs], pa.large_binary())
        array = column.cast(pa.large_binary()).combine_chunks()
        if len(array) == 0:
            return TextKeys(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), self.size)
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
        return TextKeys(np.frombuffer(data or b"", np.uint8), bounds[:-1], np.diff(bounds), self.size)

    def _integers(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = np.zeros(len(column), np.uint64)
        start = 0
        for chunk in () if pa.types.is_null(column.type) else column.chunks:
            numbers = chunk.fill_null(0).to_numpy(zero_copy_only=False)
            if numbers.dtype.kind == "i" and np.any(numbers < 0):
                raise InvalidInput(
                    "an integer key is negative; HeavyHitters finds integers from 0 on. Add an offset, or pass text."
                )
            values[start : start + len(chunk)] = numbers
            start += len(chunk)
        if self.bits < 64 and np.any(values >> np.uint64(self.bits)):
            raise InvalidInput(
                f"an integer key has more than {self.bits} bits. Build the sketch with a larger key_bits."
            )
        return values

    def from_cells(self, cells: Places) -> Keys:
        """Return the prefixes with these numbers; the inverse of ``cells`` at the dense depth."""
        if self.key_type == "int":
            return IntegerKeys(cells.astype(np.uint64), self.dense_depth)
        letters = np.zeros((len(cells), self.size), np.uint8)
        lengths = np.zeros(len(cells), np.int64)
        rest = cells.copy()
        for depth in range(self.dense_depth):
            below = _texts(self.dense_depth - depth - 1)
            going_on = rest > 0
            rest[going_on] -= 1
            letters[going_on, depth] = rest[going_on] // below
            rest[going_on] %= below
            lengths[going_on] += 1
        return TextKeys(letters.ravel(), _steps(letters.size, self.size), lengths, self.size)

    def join(self, parts: Sequence[Keys]) -> Keys:
        """Put several batches of prefixes into one."""
        if self.key_type == "int":
            integers = [part for part in parts if isinstance(part, IntegerKeys)]
            values = np.concatenate([np.empty(0, np.uint64), *(part.values for part in integers)])
            return IntegerKeys(values, integers[0].size if integers else self.size)
        packed = [part.packed() for part in parts if isinstance(part, TextKeys)]
        data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in packed)])
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in packed)])
        return TextKeys(data, _steps(len(data), self.size), lengths, self.size)


def _texts(depth: int) -> int:
    """Return how many texts of at most ``depth`` bytes there are."""
    return sum(int(256**length) for length in range(depth + 1))


def _steps(stop: int, step: int) -> Places:
    return np.arange(0, stop, step, dtype=np.int64)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, contiguous: numba compiles anew for each mixture of kinds of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


# Shares of the budget. The leaf answers; the levels above it only have to lead there; a total needs little.
LEAF_SHARE = 1 / 2
TOTAL_SHARE = 1 / 64
TOTAL, DENSE, INNER, LEAF = "total", "first", "above", "keys"


@dataclass(frozen=True, slots=True)
class TreeNoise:
    """The noise in one counter of each part: the total, the dense level, the tables above the leaf, the leaf."""

    total: Noise
    dense: Noise
    inner: Noise
    leaf: Noise

    @classmethod
    def of(cls, laws: Iterable[Any]) -> Self:
        """Return the noise of the laws of a tree; of one table there is none above the leaf."""
        found = {law.name: law.noise for law in laws}
        return cls(found[TOTAL], found[DENSE], found.get(INNER, found[LEAF]), found[LEAF])


@stored
@dataclass(frozen=True, slots=True)
class HeavyHittersSpec(Spec):
    """All that two HeavyHitters sketches must share to merge. Public.

    Attributes
    ----------
    rows, width : int
        Size of each level's CountSketch; rows is odd.
    unit : Unit
        Whose presence a release hides.
    key_bits : int or None
        Keys are integers in [0, 2^key_bits), …
    key_bytes : int or None
        … or texts of at most so many bytes (of UTF-8). Exactly one of the two is given.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    rows: int
    width: int
    unit: Unit
    key_bits: int | None = None
    key_bytes: int | None = None
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.key_bits is None) == (self.key_bytes is None):
            raise InvalidInput("say key_bits= (8 to 64) for integer keys, or key_bytes= (1 to 64) for text, not both.")
        hold_whole(self, "key_bits", low=8, high=64, optional=True)
        hold_whole(self, "key_bytes", low=1, high=64, optional=True)
        hold_key_columns(self)
        leaf = self.leaf  # checks what the levels share, and turns it into Python's numbers
        for name in ("rows", "width", "seed", "grid"):
            object.__setattr__(self, name, getattr(leaf, name))
        if self.rows * self.width * self.sketched > 2**31:
            raise InvalidInput("rows × width, times the levels, must not pass 2**31 counters.")

    @property
    def key_type(self) -> KeyType:
        """What the keys are."""
        return "text" if self.key_bits is None else "int"

    @property
    def space(self) -> KeySpace:
        """All keys that can be found."""
        if self.key_bits is not None:
            return KeySpace("int", -(-self.key_bits // 8), self.key_bits)
        assert self.key_bytes is not None
        return KeySpace("text", self.key_bytes, 0)

    @property
    def sketched(self) -> int:
        """How many levels are CountSketches, the leaf among them."""
        return self.space.size - self.space.dense_depth

    @property
    def leaf(self) -> CountSketchSpec:
        """The spec of the last level, which counts the keys themselves: that of an ordinary CountSketch."""
        return CountSketchSpec(self.rows, self.width, self.unit, self.seed, self.grid, self.key_type, self.key_columns)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.sketched} tables of {self.rows}×{self.width}"

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch; the total is the mass that every sketch keeps."""
        return {name: array for name, array in Spec.arrays(self).items() if name != TOTAL}

    def tables(self) -> tuple[Table, ...]:
        """Return the total, the first level, the tables above the keys as one, and the table of the keys.

        A record of weight at most w adds to the total, to one cell of the first level, and once to each table, like any
        CountSketch. A user has at most m keys of w each, and these may share prefixes. At each level above the leaf a
        prefix counts once a user, with the largest of its keys' weights: so a user moves at most m cells of the first
        level by w each, and every table is clipped to the norm c of :mod:`~dpsketch.sketches.countsketch.spec` by
        itself. The total moves by mw.
        """
        return tuple(self.shares())

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget.

        The leaf gets half, the total 1/64, and the first level and the tables above the leaf the rest in equal parts.
        """
        weight, keys, above = self.weight_grid.max_units, self.unit.max_keys, self.sketched - 1
        (leaf,) = self.leaf.tables()
        share = (1 - LEAF_SHARE - TOTAL_SHARE) / self.sketched
        found = {
            Table(TOTAL, (1,), Move.heaped(1, keys * weight)): TOTAL_SHARE,
            Table(DENSE, (self.space.dense_cells,), Move.each(keys, weight)): share,
        }
        if above:
            found[Table(INNER, (above, self.rows, self.width), leaf.move.stacked(above))] = above * share
        found[Table(LEAF, (1, self.rows, self.width), leaf.move)] = LEAF_SHARE
        return found

    def daily(self) -> HeavyHittersSpec:
        """Return the spec of a stream's day."""
        return self

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words; a stream publishes all tables under one law."""
        if len(laws) == 1:
            return laws[0].words
        noise = TreeNoise.of(laws)
        return (
            f"a prefix tree of {self.sketched + 1} levels: {noise.leaf.words} on the keys, {noise.inner.words} on the "
            f"tables above, {noise.dense.words} on the first level, {noise.total.words} on the total"
        )

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        return self.leaf._errors(laws)

    def predict(
        self,
        *,
        threshold: float,
        records: float | None = None,
        keys: int | None = None,
        skew: float | None = None,
        counts: Any = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
    ) -> SearchPrediction:
        """Predict recall and precision of ``top(threshold=…)`` before anything is read or spent.

        Parameters
        ----------
        threshold : float
            The threshold that would be asked.
        records, keys, skew : float, int, float
            A guess at the data: so many records over so many distinct keys, the i-th most frequent of which has a
            share proportional to 1/i^skew.
        counts : numbers, optional
            A guess at the counts of all keys instead of these three.
        epsilon, delta, rho : float
            The budget, as for ``release``.
        """
        from dpsketch.sketches.heavy.predict import predict

        threshold = real_number("threshold", threshold)
        noise = TreeNoise.of(self.laws(Budget(epsilon, delta, rho)))
        return predict(self, guessed_counts(records, keys, skew, counts), threshold, noise)
