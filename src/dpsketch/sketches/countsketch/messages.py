"""Pass messages between candidate keys and the cells of a table, and find candidates that no row tells apart.

Sweep by sweep, every key sends each of its cells the expectation of its count given its *other* rows, under a prior
that is learned from all keys: a mixture of a zero and half-normal laws of all scales (normal ones where counts may be
negative). What is left of a cell without its keys' messages is what rows that were held out leave; see ``decoding``,
which judges it.

**Twins** have the same cells, with equal signs or all of them opposite.

With equal signs a table shows the sum of their counts and nothing else of them. They are one key to any decoder, and
each has an equal part of what that one is found to have: the expectation, since nothing says whose it is. What each of
them has may be all of it or nothing.

With opposite signs a table shows the difference of their counts. What both have is in no cell, so that of the other
nothing is known but that the table's largest counter is a size that keys have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from dpsketch import threads
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled import decoding
from dpsketch._compiled.hashing import mix
from dpsketch.arrays import Floats
from dpsketch.sketches.countsketch.estimates import PSEUDO_KEYS, pseudo_places, root_mean_square

Shorts = npt.NDArray[np.float32]
Prints = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

# A message moves by this part of the way in one sweep; all of it lets three rows swing for ever.
_STEP = 0.5
# Messages have settled when they still move by this part of an estimate's error. A key whose messages move by less than
# so many times the square of that is visited every fourth sweep only, when the whole is judged as well.
_SETTLED = 0.02
ROUND = 4
_MOVING = 16.0
# Degrees of freedom of the law by which readings are weighted: in messages, and, to be chosen from, in the end.
# 0 is the mean and −1 the median.
_FREEDOM = 10.0
_READINGS: tuple[float, ...] = (0.0, 4.0, 1.5, -1.0)
# A later reading must promise this much less error.
_READING_GAIN = 0.99
# The prior's scales grow by this factor, and so much of it is zero to begin with.
_RATIO = 4.0
_ZERO_SHARE = 0.9
# The median of the square of a standard normal variable.
_MEDIAN_SQUARE = 0.4549
# How much of the variance of a key's own messages its reading is free of. All of it is, where keys share no two cells.
_OWN = 0.75
# Noise that rounds to nothing still has to be divided by.
LEAST_SCALE = 1e-4
# A cell this many standard deviations from nothing has a key that is not listed, or keys that took each other's place.
# The latter are few cells; and around them only what stands out so far can have taken a place.
_UNEXPLAINED = 8.0
_FEW, _SHARE = 8, 0.01
_STANDS_OUT = 5.0
# Cells of keys that are fewer than this are not worth a thread, and keys to be read in all ways that are fewer.
_FEW_CELLS, _FEW_READ = 1 << 14, 1 << 10
# The variance of keys that are not listed is looked for so near to what it was, in parts of the noise's.
_NEAR = 0.1
# Keys whose cells are worked out at a time. Of more keys than these they are not kept: to hash again costs less.
CHUNK = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """What each key's other rows say of its count, in each row, and the variance of that: bases + offsets, variances.

    This is all that is held of a key between sweeps: 8 bytes, and 8 more a row.
    """

    bases: Floats
    offsets: Shorts
    variances: Shorts

    @classmethod
    def silent(cls, keys: int, rows: int) -> Messages:
        """Return messages that say nothing yet."""
        return cls(np.zeros(keys), np.zeros((keys, rows), np.float32), np.zeros((keys, rows), np.float32))

    def __len__(self) -> int:
        return len(self.bases)

    def __getitem__(self, part: slice | npt.NDArray[np.int64]) -> Messages:
        return Messages(self.bases[part], self.offsets[part], self.variances[part])

    def copy(self, to: Messages | None) -> Messages:
        """Write these over the messages of the first keys of another exchange, or of none."""
        to = Messages.silent(len(self), self.offsets.shape[1]) if to is None else to
        to.bases[: len(self)] = self.bases
        to.offsets[: len(self)] = self.offsets
        to.variances[: len(self)] = self.variances
        return to

    def forget(self, which: npt.NDArray[np.int64]) -> None:
        """Let some keys say nothing again."""
        self.bases[which] = 0.0
        self.offsets[which] = 0.0
        self.variances[which] = 0.0


def places_of(prints: Prints, row_keys: Prints, width: int) -> tuple[Places, Signs]:
    """Return the cells of keys, numbered row after row, and their signs there."""
    buckets, signs = kernels.cells(prints, row_keys, width)
    return buckets + np.arange(len(row_keys), dtype=np.int32) * np.int32(width), signs


def positive_median(values: Floats, guess: float, near: float) -> float:
    """Return the median of values, or 0 if that is larger; all are put in order only if it is not so near to a guess.

    Examples
    --------
    >>> positive_median(np.array([3.0, -1.0, 2.0, 7.0]), guess=2.4, near=1.0), positive_median(np.zeros(3), 1.0, 1.0)
    (2.5, 0.0)
    """
    first, last = (values.size - 1) // 2, values.size // 2
    if np.count_nonzero(values <= 0.0) > last:
        return 0.0
    low, high = guess - near, guess + near
    inside = values[(values >= low) & (values <= high)]
    below = int(np.count_nonzero(values < low))
    if not below <= first <= last < below + len(inside):
        return max(0.0, float(np.median(values)))
    inside.partition((first - below, last - below))
    return max(0.0, float(np.mean(inside[first - below : last - below + 1])))


def read_off(
    places: Places,
    signs: Signs,
    sent: Messages,
    own: float,
    remaining: Floats,
    spreads: Floats,
    noise_scale: float,
    *freedoms: float,
) -> tuple[Floats, Floats]:
    """Read keys off what is left of a table: values, and variances if they are free of so much of their messages'.

    Both have a line for each number of degrees of freedom.
    """
    values, variances = np.empty((2, len(freedoms), len(places)))
    state = (sent.bases, sent.offsets, sent.variances)
    left = (remaining.ravel(), spreads.ravel(), noise_scale**2)
    decoding.read(places, signs, *state, own, *left, np.array(freedoms), values, variances)
    return values, variances


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """The law of counts: a mixture of a zero and of normal laws, or of their sizes where counts are not negative."""

    weights: Floats
    scales: Floats
    signed: bool

    @classmethod
    def of(cls, counters: Floats, noise_scale: float, signed: bool) -> Prior:
        """Return the law to begin with: all scales that the counters could tell."""
        noise_scale = max(noise_scale, LEAST_SCALE)
        largest = max(float(np.abs(counters).max()), 4 * noise_scale)
        finest = 0.5 * noise_scale / math.sqrt(len(counters))
        parts = math.ceil(math.log(largest / finest) / math.log(_RATIO)) + 1
        scales = np.append(0.0, np.geomspace(finest, largest, parts) ** 2)
        return cls(np.append(_ZERO_SHARE, np.full(parts, (1 - _ZERO_SHARE) / parts)), scales, signed)

    def learned(self, keys: Floats) -> Prior:
        """Return the law in which each part has its share of the keys."""
        return replace(self, weights=(keys + 0.5) / (keys.sum() + 0.5 * len(keys)))

    def expect(self, readings: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return the mean of each count given its reading, and how many keys each part has."""
        means, keys = np.empty(len(readings)), np.zeros(len(self.weights))
        for start in range(0, len(readings), CHUNK):
            part = slice(start, start + CHUNK)
            some = readings[part].copy()
            shares = np.empty((len(keys), len(some)))
            law = (self.weights, self.scales, self.signed)
            decoding.expect(some, variances[part], *law, means[part], np.empty(len(some)), shares)
            keys += shares.sum(axis=1)
        return means, keys


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """What is left of the table after some sweep, and how pseudo-keys are best read off it."""

    remaining: Floats
    spreads: Floats
    freedom: float
    seen: Floats
    scores: Floats
    error: float
    prior: Prior

    def unexplained(self) -> npt.NDArray[np.bool_]:
        """Return which cells are further from nothing than anything explains; none if they are too many to be few."""
        far = (self.remaining**2 > _UNEXPLAINED**2 * self.spreads).ravel()
        return far & (np.count_nonzero(far) <= max(_FEW, _SHARE * far.size))


class Exchange:
    """Messages between candidates and cells, renewed sweep by sweep.

    Attributes
    ----------
    sweeps, sweeps_in_all : int
        How many there were since keys were last asked anew, and since the beginning.
    scale : float
        Standard deviation of the noise in one counter.
    messages : Messages
        What was said in the last sweep; later ones change it. What some of the candidates, the first ones, have sent
        before, may be gone on from.
    values, errors : numpy.ndarray
        What was read of the candidates in the attempt that was kept, and the standard errors of that. Messages are most
        of what a candidate takes.
    kept : Messages or None
        What was said in that attempt: only if some of it may have to be taken back, or the exchange is to be gone on
        from.
    """

    def __init__(
        self,
        counters: Floats,
        prints: Prints,
        row_keys: Prints,
        noise_scale: float,
        signed: bool,
        sent: Messages | None = None,
        resumable: bool = False,
    ) -> None:
        self.sweeps = self.sweeps_in_all = 0
        self._counters = counters
        self._prints, self._row_keys = prints, row_keys
        self.scale = max(noise_scale, LEAST_SCALE)
        self._pseudo = pseudo_places(*counters.shape)
        self.messages = Messages.silent(len(prints), len(counters))
        if sent is not None:
            sent.copy(self.messages)
        self.values = self.errors = np.empty(0)
        self.kept: Messages | None = None
        self._resumable = resumable
        self._changes = np.full(len(prints), np.inf, np.float32)
        self._moving = 0.0
        self._prior = Prior.of(counters, self.scale, signed)
        # How many keys of each part of the prior a chunk has: among those that moved last time, and among the others.
        self._chunks = [slice(start, start + CHUNK) for start in range(0, len(prints), CHUNK)]
        self._few = self._hashed(self._chunks[0]) if len(self._chunks) == 1 else None
        self._unlisted = math.nan
        self._keys = np.zeros((len(self._chunks), 2, len(self._prior.weights)))
        self._clear()

    @property
    def left(self) -> tuple[Floats, Floats, float]:
        """What the messages leave of the table, the variance of each of its cells, and the noise's own scale."""
        return self._remaining, self._spreads, self.scale

    def _places(self, chunk: slice) -> tuple[Places, Signs]:
        return self._few or self._hashed(chunk)

    def _hashed(self, chunk: slice, rows: slice = slice(None)) -> tuple[Places, Signs]:
        return places_of(self._prints[chunk], self._row_keys[rows], self._counters.shape[1])

    def _clear(self) -> None:
        """Clear the cells of the messages, and find the spread of what is left: noise, messages, and unlisted keys."""
        means, known = np.zeros(self._counters.shape), np.zeros(self._counters.shape)

        def gather(rows: slice) -> None:
            for chunk in self._chunks:
                whole = rows == slice(0, len(self._row_keys))
                places, signs = self._places(chunk) if whole else self._hashed(chunk, rows)
                sent = self.messages[chunk]
                state = (sent.bases, sent.offsets[:, rows], sent.variances[:, rows])
                decoding.gather(places, signs, *state, means[rows].ravel(), known[rows].ravel())

        # A row is added up by one thread, so that the bits do not depend on their number.
        threads.run(
            [
                partial(gather, part)
                for part in threads.parts(len(self._row_keys), 1 + _FEW_CELLS // (1 + len(self._prints)))
            ]
        )
        self._remaining = self._counters - means
        spreads = self.scale**2 + known
        beyond = self._remaining**2 / _MEDIAN_SQUARE - spreads
        self._unlisted = positive_median(beyond, self._unlisted, _NEAR * self.scale**2)
        self._spreads = spreads + self._unlisted

    def _tolerance(self, part: float = _SETTLED) -> float:
        """Return the mean square by which messages may still move, at most so large a part of an estimate's error."""
        crowd = max(1.0, float(len(self._prints) / self._counters.shape[1]))
        variance = float(np.mean(self._spreads)) / len(self._counters)
        return part**2 * variance / crowd

    def sweep(self) -> None:
        """Renew the messages, all of them once in a round and otherwise those that still move."""
        everyone = self.sweeps < ROUND or self.sweeps % ROUND == 0
        limit = _MOVING * self._tolerance()
        if everyone:
            self._changes[:] = np.inf
            self._keys[:] = 0.0

        def renew(part: slice) -> None:
            for chunk, keys in zip(self._chunks[part], self._keys[part], strict=True):
                changes, sent = self._changes[chunk], self.messages[chunk]
                keys[1] = 0.0
                decoding.sweep(
                    *self._places(chunk),
                    sent.bases,
                    sent.offsets,
                    sent.variances,
                    np.flatnonzero(changes > self._moving),
                    self._remaining.ravel(),
                    self._spreads.ravel(),
                    self.scale**2,
                    self._prior.weights,
                    self._prior.scales,
                    self._prior.signed,
                    _FREEDOM,
                    1.0 if self.sweeps == 0 else _STEP,
                    limit,
                    changes,
                    keys,
                )

        # Every key writes its own messages only, so that the bits do not depend on the number of threads.
        threads.run([partial(renew, part) for part in threads.parts(len(self._chunks), 1)])
        self._moving = limit
        self._prior = self._prior.learned(self._keys.sum(axis=(0, 1)))
        self.sweeps += 1
        self.sweeps_in_all += 1
        self._clear()

    def has_settled(self, part: float = _SETTLED) -> bool:
        """Whether the messages have stopped moving: on average, by more than this part of an estimate's error."""
        return self.sweeps > ROUND and float(np.mean(self._changes, dtype=np.float64)) < self._tolerance(part)

    def attempt(self, pseudo_keys: int = PSEUDO_KEYS) -> Attempt:
        """Find the reading that suits what is left of the table, by so many pseudo-keys."""
        places, signs = self._pseudo[0][:pseudo_keys], self._pseudo[1][:pseudo_keys]

        def attempt(part: slice) -> tuple[Floats, Floats]:
            silent = Messages.silent(len(places[part]), len(self._counters))
            return read_off(places[part], signs[part], silent, 1.0, *self.left, *_READINGS)

        tried = threads.run([partial(attempt, part) for part in threads.parts(len(places), _FEW_READ)])
        values, variances = (np.concatenate(each, axis=1) for each in zip(*tried, strict=True))
        best: tuple[float, int] | None = None
        for number, read in enumerate(values):
            error = root_mean_square(read)
            if best is None or error < _READING_GAIN * best[0]:
                best = error, number
        assert best is not None
        error, number = best
        seen, scores = values[number], values[number] / np.sqrt(variances[number])
        return Attempt(self._remaining, self._spreads, _READINGS[number], seen, scores, error, self._prior)

    def keep(self, attempt: Attempt) -> Attempt:
        """Read the candidates off what this attempt has left, before later sweeps change the messages."""
        if len(self.values) == 0:
            self.values, self.errors = np.empty(len(self._prints)), np.empty(len(self._prints))
        left = (attempt.remaining, attempt.spreads, self.scale)

        def read(part: slice) -> None:
            for chunk in self._chunks[part]:
                places, signs = self._places(chunk)
                sent = self.messages[chunk]
                (self.values[chunk],), (variances,) = read_off(places, signs, sent, _OWN, *left, attempt.freedom)
                self.errors[chunk] = np.sqrt(variances)

        threads.run([partial(read, part) for part in threads.parts(len(self._chunks), 1)])
        doubtful = attempt.unexplained().any()
        self.kept = self.messages.copy(self.kept) if self._resumable or doubtful else None
        return attempt

    def doubt(self, kept: Attempt) -> bool:
        """Let keys speak anew around the cells that the attempt kept cannot explain; say whether there are such.

        An absent key that shares two cells with a heavy one may have taken its count: then both are sure of it, and
        what does not fit shows in cells of their neighbours. So what was said is forgotten by all who share a cell with
        a key that stands out and is in such a cell.
        """
        if self.kept is None:
            return False
        unexplained = kept.unexplained()
        around = np.zeros(unexplained.size, bool)
        usual = kept.spreads.ravel() / len(self._counters)
        for chunk in self._chunks:
            places, _ = self._places(chunk)
            far = self.kept.bases[chunk] ** 2 > _STANDS_OUT**2 * usual[places].max(axis=1)
            around[places[far & unexplained[places].any(axis=1)]] = True
        if not around.any():
            return False
        self.kept.copy(self.messages)
        for chunk in self._chunks:
            self.messages[chunk].forget(np.flatnonzero(around[self._places(chunk)[0]].any(axis=1)))
        self._prior, self.sweeps = kept.prior, 0
        self._clear()
        return True


Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Twins:
    """Which candidates are decoded as one.

    Attributes
    ----------
    first : numpy.ndarray
        The first candidate of each group, increasing.
    group : numpy.ndarray
        The group that each candidate is in.
    alike, opposed : numpy.ndarray
        How many candidates have its cells and its signs, itself included; how many have its cells and all other signs.
    """

    first: npt.NDArray[np.int64]
    group: Counts
    alike: Counts
    opposed: Counts

    def unknown(self, values: Floats, largest: float, signed: bool) -> Floats:
        """Return how far a candidate may be from its value although its group's sum is known.

        Counts that are not negative are at most the sum. Otherwise, and beside candidates with opposite signs, the
        others may have whatever a key has: as much as the largest counter.
        """
        others = self.alike - 1
        hidden = self.opposed + (others if signed else 0)
        return np.abs(values) * others + largest * hidden


def find_twins(prints: Prints, row_keys: Prints, width: int) -> Twins | None:
    """Find candidates that no row tells apart; None where there are none, as in all but narrow tables."""
    marks = np.empty(len(prints), np.uint64)
    for start in range(0, len(prints), CHUNK):
        places, signs = places_of(prints[start : start + CHUNK], row_keys, width)
        marks[start : start + CHUNK] = _mark(places, signs)
    order = np.argsort(marks, kind="stable")
    marks = marks[order]
    again = marks[1:] == marks[:-1]
    if not again.any():
        return None
    met = np.flatnonzero(np.append(again, False) | np.append(False, again))
    members, begins = order[met], np.append(True, marks[met][1:] != marks[met][:-1])
    head = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    places, signs = places_of(prints[members], row_keys, width)
    turned = signs[:, 0] * signs[head, 0]
    # Two marks may be equal by chance.
    same = np.all((places == places[head]) & (signs == turned[:, np.newaxis] * signs[head]), axis=1)
    members, labels = members[same], 2 * head[same] + (turned[same] < 0)
    known, firsts, which, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    leader = np.arange(len(prints))
    leader[members] = members[firsts[which]]
    alike, opposed = np.ones(len(prints), np.int32), np.zeros(len(prints), np.int32)
    alike[members] = sizes[which]
    there = np.minimum(np.searchsorted(known, known ^ 1), len(known) - 1)
    opposed[members] = np.where(known[there] == known ^ 1, sizes[there], 0)[which]
    first = np.flatnonzero(leader == np.arange(len(prints)))
    return Twins(first, np.searchsorted(first, leader).astype(np.int32), alike, opposed)


def _mark(places: npt.NDArray[np.int32], signs: npt.NDArray[np.int8]) -> Prints:
    """Return a word for each candidate's cells and signs, the same if all signs are turned."""
    marks = np.zeros(len(places), np.uint64)
    for row in range(places.shape[1]):
        turned = signs[:, row] != signs[:, 0]
        marks = mix(marks ^ (2 * places[:, row].astype(np.uint64) + turned.astype(np.uint64)))
    return marks
