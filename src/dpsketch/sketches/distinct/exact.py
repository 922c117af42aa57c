"""The exact distinct count: every key is remembered by its fingerprint, and noise is the only error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Words
from dpsketch.bounding import Cut, read_users
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive
from dpsketch.core.move import Move, Table
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.calibration import quietest
from dpsketch.laws.distinct import owned_keys
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import probability
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.distinct.bitmap import DistinctRelease
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.specs import Spec, hold_common

__all__ = ["KEYS", "DistinctSet", "DistinctSetSpec", "PrivateDistinctCount"]


KEYS = "keys"
_FEW = 1 << 16  # rows that are worth putting in order with the others


@stored
@dataclass(frozen=True, slots=True)
class DistinctSetSpec(Spec):
    """All that two exact distinct counts must share to merge. Public.

    Attributes
    ----------
    unit : Unit
        Whose presence a release hides; of its bounds only ``max_keys`` matters.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    weighs: ClassVar[bool] = False

    unit: Unit
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_common(self)

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def memory(self) -> int:
        """Bytes before anything is counted; eight more for each key, or sixteen for each pair of a user and a key."""
        return 0

    def tables(self) -> tuple[Table, ...]:
        """Return the number of keys, which one unit moves by ``max_keys``, that is 1 for a record."""
        return (Table(KEYS, (1,), Move.heaped(1, self.unit.max_keys)),)

    def laws(self, budget: Budget) -> tuple[Additive]:
        """Return the quieter of Laplace and Gaussian noise on the number of keys."""
        return (quietest(budget, self.unit.neighbours, self.tables()[0]),)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateDistinctCount(DistinctRelease):
    """A released exact distinct count."""

    kind: ClassVar[str] = "distinct-set"
    spec_type: ClassVar[Any] = DistinctSetSpec

    spec: DistinctSetSpec

    @property
    def count(self) -> int:
        """The noisy number of keys: all that was released."""
        return int(self.drawn.table(KEYS)[0])

    @property
    def noise(self) -> Noise:
        """The noise in :attr:`count`."""
        return self.drawn.noise(KEYS)

    @property
    def value(self) -> float:
        """The number of distinct keys; where users are protected, of those that have an owner."""
        return float(max(0, self.count))

    @property
    def error(self) -> float:
        """The standard error of :attr:`value`."""
        return math.sqrt(self.noise.variance)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for the number of distinct keys."""
        reach = _reach(self.noise, (1 - probability("confidence", confidence)) / 2)
        return float(max(0, self.count - reach)), float(max(0, self.count + reach))


class DistinctSet(Sketch[DistinctSetSpec, PrivateDistinctCount]):
    """The sensitive set of distinct keys.

    Use it wherever eight bytes a key can be held: its error is the noise alone. A key is remembered by 64 bits of its
    hash, so that among a hundred million keys two meet with a chance of about 1 in 4,000, and count as one.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``. Users may come in any order, over any number of updates
        and partials: they are bounded when the count is released.
    key_type : {"int", "text"}, optional
        What the keys are; a column's own type states it if it is not given. A release does not say it.

    Privacy
    -------
    A release is the number of keys with noise. Where the unit is a user it is the most keys that can be given owners,
    each to a user who has it and at most ``max_keys`` to anybody (:mod:`~dpsketch.laws.distinct`): one
    unit changes either by at most ``max_keys``, whatever the hash does. The noise is discrete Laplace, whose guarantee
    has δ = 0, unless Gaussian noise is smaller, which takes a large δ.

    Accuracy
    --------
    The standard error is √2·max_keys/ε keys. Keys that find no owner are missed; the data holder is told how many
    (:attr:`cut`). Most keys of many users find one even with a small ``max_keys``.

    Examples
    --------
    >>> from dpsketch.privacy import per_user
    >>> keys = DistinctSet(unit=per_user(max_keys=1))
    >>> keys.update([n % 500 for n in range(2_000)], users=[n // 4 for n in range(2_000)])
    >>> private = keys.release(epsilon=1.0, delta=0)
    >>> 450 < private.value < 550
    True
    """

    kind: ClassVar[str] = "distinct-set"
    spec_type: ClassVar[Any] = DistinctSetSpec
    release_type: ClassVar[Any] = PrivateDistinctCount
    takes: ClassVar[tuple[str, ...]] = ("users",)
    cut_words: ClassVar[str] = "keys"

    def __init__(self, *, unit: Unit, key_type: KeyType | None = None) -> None:
        self._start(DistinctSetSpec(unit, key_type))

    def _start(self, spec: DistinctSetSpec) -> None:
        super()._start(spec)
        # Keys, with their users if the unit is one: in order, each once; and the batches since, as they came.
        self._rows = np.empty((0, len(_columns(spec))), np.uint64)
        self._since: list[Words] = []
        self._waiting = 0  # rows that came since

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count a batch; users are bounded at release, by matching."""
        batch = fingerprint(columns.records, self._key_type)
        counted, skipped = self._counted, batch.skipped
        if self._protects_users(columns.users, disjoint_users):
            n = len(batch.fingerprints) + batch.skipped
            read = read_users(columns.users, n)
            owners = fingerprint(read.column)
            pairs = np.stack([_spread(each.fingerprints, each.kept) for each in (owners, batch)], axis=1)
            rows = pairs[_all(owners.kept, n) & _all(batch.kept, n)]
            counted, skipped = counted.typed(read.user_type), n - len(rows)
        else:
            rows = batch.fingerprints[:, None]
        self._begin_change()
        self._counted = counted
        self._since.append(_ordered(rows))
        self._waiting += len(self._since[-1])
        if self._waiting > max(_FEW, len(self._rows)):
            self._gather()
        self._skipped += skipped
        self._note_type(batch.key_type, batch.declared)

    def _gather(self) -> Words:
        """Return all that came, in order and each once."""
        if self._since:
            self._rows = _ordered(np.concatenate([self._rows, *self._since]))
            self._since, self._waiting = [], 0
        return self._rows

    @property
    def _number(self) -> int:
        """How many keys count."""
        rows = self._gather()
        return len(rows) if rows.shape[1] == 1 else owned_keys(rows[:, 0], rows[:, 1], self._spec.unit.max_keys)

    @property
    def cut(self) -> Cut:
        """How many keys there are, and how many of them have no owner. Sensitive: for the data holder's eyes only."""
        with self._turn:
            if self._spec.unit.level == "record":
                return Cut(len(self._gather()))
            keys = len(np.unique(self._gather()[:, 1]))
            return Cut(keys, keys - self._number)

    def _note_cut(self, cut: Cut) -> None:
        """Ignore it: the number of keys that count is known once all records are there."""

    def _absorb(self, other: Self) -> None:
        self._since.append(other._gather())
        self._gather()

    @property
    def _published(self) -> DistinctSetSpec:
        return replace(self._spec, key_type=None)

    def _exact(self) -> dict[str, Any]:
        """Return the number of keys. Sensitive."""
        return {KEYS: np.array([self._number], np.int64)}

    def _stored_arrays(self) -> dict[str, files.Array]:
        columns = zip(_columns(self._spec), self._gather().T, strict=True)
        return {name: np.ascontiguousarray(column) for name, column in columns}

    def _restore(self, document: files.Document) -> None:
        columns = [document.arrays[name] for name in _columns(self._spec)]
        for column in columns:
            good = isinstance(column, np.ndarray) and column.dtype == np.uint64 and column.ndim == 1
            if not good or len(column) != len(columns[0]):
                raise FileRefused("the file's keys are not as its spec prescribes.")
        # Put in order again: a forger may have written a pair twice.
        self._rows = _ordered(np.stack(columns, axis=1))


def _columns(spec: DistinctSetSpec) -> tuple[str, ...]:
    return ("keys",) if spec.unit.level == "record" else ("owners", "keys")


def _reach(noise: Noise, tail: float) -> int:
    """Return the least whole q with P(Z > q) ≤ ``tail``."""
    match noise:
        case DiscreteLaplace(epsilon, sensitivity):
            rate = epsilon / sensitivity
            return max(0, math.ceil(-(math.log(tail) + math.log1p(math.exp(-rate))) / rate) - 1)
        case RoundedGaussian(sigma):
            from statistics import NormalDist

            return max(0, math.ceil(-sigma * NormalDist().inv_cdf(tail) - 0.5))
        case never:
            assert_never(never)


def _ordered(rows: Words) -> Words:
    """Return rows in order, each once."""
    rows = np.sort(rows, axis=0) if rows.shape[1] == 1 else rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[new]


def _spread(prints: Words, kept: npt.NDArray[np.bool_] | None) -> Words:
    """Return one number for each record again, 0 where there was none."""
    if kept is None:
        return prints
    spread = np.zeros(len(kept), np.uint64)
    spread[kept] = prints
    return spread


def _all(kept: npt.NDArray[np.bool_] | None, n: int) -> npt.NDArray[np.bool_]:
    return np.ones(n, np.bool_) if kept is None else kept
