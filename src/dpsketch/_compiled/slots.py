"""The steps of :mod:`dpsketch._compiled.grouping` without the compiler: all rows take a step at once, in NumPy.

Numbers, units and texts come out the same. Which slot a key has may differ where several meet; either way finds what
the other has entered.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.identity import HASHED, places_of
from dpsketch._compiled.kernel import part
from dpsketch.arrays import Integers, Words

__all__ = ["deal", "group", "move", "rank_fresh", "settle", "shift_of", "spell", "spelled_edges"]

Bytes = npt.NDArray[np.uint8]

U0, U1, U6, U8, U40 = (np.uint64(bits) for bits in (0, 1, 6, 8, 40))
U56, U58, U64 = (np.uint64(bits) for bits in (56, 58, 64))
NUMBER = np.uint64(2**40 - 1)
TAG = np.uint64(2**64 - 2**40)


@part
def shift_of(slots: Words) -> np.uint64:
    """Return by how many bits a place is shifted to become a slot."""
    shift = U64
    size = len(slots)
    while size > 1:
        size >>= 1
        shift -= U1
    return shift


def _spans(starts: Integers, lengths: Integers) -> Integers:
    """Return the numbers from each start on, so many of each, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def deal(
    places: Words,
    live: npt.NDArray[np.bool_],
    first: int,
    stop: int,
    order: npt.NDArray[np.int32],
    fill: Integers,
    source: int,
) -> None:
    mine = ((places[first:stop] >> U58) * np.uint64(len(order))) >> U6
    for owner in range(len(order)):
        rows = first + np.flatnonzero(live[first:stop] & (mine == np.uint64(owner)))
        order[owner, source, : len(rows)] = rows
        fill[owner, source] = len(rows)


def _probe(
    slots: Words,
    wrap: np.uint64,
    places: Words,
    fresh: Words | None,
    same: Callable[[Integers, Words], npt.NDArray[np.bool_]],
) -> tuple[Integers, npt.NDArray[np.bool_]] | None:
    """Find a slot for each of many different keys: the one that holds it, or the next free one, which it takes.

    ``fresh`` are the words that take free slots; without them a free slot ends a search. ``same(keys, words)`` says
    which keys their slots' words stand for. Return the slots, −1 where there is none, and which were free; None if a
    region is full.
    """
    at = places >> shift_of(slots)
    found, free = np.full(len(places), -1, np.int64), np.zeros(len(places), np.bool_)
    steps = np.zeros(len(places), np.uint64)
    going = np.arange(len(places))
    while len(going):
        words = slots[at[going]]
        empty = words == U0
        if fresh is None:
            going, words = going[~empty], words[~empty]
        else:
            # Of those that meet at a free slot one takes it, and the others look at it again.
            _, taken = np.unique(at[going[empty]], return_index=True)
            winners = going[empty][taken]
            slots[at[winners]] = fresh[winners]
            found[winners] = at[winners].astype(np.int64)
            free[winners] = True
        occupied = words != U0
        held = np.zeros(len(going), np.bool_)
        held[occupied] = same(going[occupied], words[occupied])
        found[going[held]] = at[going[held]].astype(np.int64)
        onward = going[occupied & ~held]
        if (steps[onward] == wrap).any():
            return None
        steps[onward] += U1
        at[onward] = (at[onward] & ~wrap) | ((at[onward] + U1) & wrap)
        going = going[found[going] < 0]
    return found, free


def group(
    slots: Words,
    wrap: np.uint64,
    ids: Words,
    units: Integers,
    size: int,
    row_ids: Words,
    places: Words,
    row_units: Integers,
    order: npt.NDArray[np.int32],
    fill: Integers,
    adds: bool,
    found: Integers,
    spots: Integers,
) -> bool:
    rows = np.concatenate([each[:count] for each, count in zip(order, fill, strict=True)]).astype(np.int64)
    spots[rows] = -1
    if not len(rows):
        return True
    # Equal keys together; of each the first row is its representative.
    rows = rows[np.lexsort((row_ids[rows, 0], row_ids[rows, 1]))]
    new = np.append(True, (row_ids[rows[1:]] != row_ids[rows[:-1]]).any(axis=1))
    firsts = np.flatnonzero(new)
    keys, sums = rows[firsts], np.add.reduceat(row_units[rows], firsts)
    own = places[keys]
    numbers = np.full(len(keys), -1, np.int64)

    def same(asked: Integers, words: Words) -> npt.NDArray[np.bool_]:
        near = (words ^ (own[asked] << U40)) & TAG == U0
        number = np.where(near, (words & NUMBER) - U1, U0).astype(np.int64)
        # What was entered in this call has no identity yet, and differs from all others of it.
        held: npt.NDArray[np.bool_] = near & (number < size) & (ids[number] == row_ids[keys[asked]]).all(axis=1)
        numbers[asked[held]] = number[held]
        return held

    fresh = (own << U40) | (keys + size + 1).astype(np.uint64)
    probed = _probe(slots, wrap, own, fresh if adds else None, same)
    if probed is None:
        return False
    at, free = probed
    known = numbers >= 0
    units[numbers[known]] += sums[known]
    numbers[free] = size + keys[free]
    ids[numbers[free]] = row_ids[keys[free]]
    units[numbers[free]] = sums[free]
    spots[keys[free]] = at[free]
    found[rows] = np.repeat(numbers, np.diff(np.append(firsts, len(rows))))
    return True


def rank_fresh(
    live: npt.NDArray[np.bool_],
    spots: Integers,
    size: int,
    ids: Words,
    units: Integers,
    edges: Integers,
    row_edges: Integers,
    ranks: Integers,
) -> int:
    rows = np.flatnonzero(live & (spots >= 0))
    count = size + len(rows)
    ids[size:count] = ids[size + rows]
    units[size:count] = units[size + rows]
    lengths = np.zeros(len(rows), np.int64)
    long = np.flatnonzero(ids[size:count, 1] & HASHED)
    lengths[long] = row_edges[rows[long] + 1] - row_edges[rows[long]]
    edges[size + 1 : count + 1] = edges[size] + np.cumsum(lengths)
    ranks[rows] = np.arange(size, count)
    return count


def settle(
    first: int,
    stop: int,
    live: npt.NDArray[np.bool_],
    spots: Integers,
    size: int,
    ranks: Integers,
    slots: Words,
    found: Integers,
    data: Bytes,
    row_edges: Integers,
    edges: Integers,
    names: Bytes,
) -> None:
    counted = live[first:stop]
    found[first:stop][~counted] = -1
    rows = first + np.flatnonzero(counted & (spots[first:stop] >= 0))
    numbers, at = ranks[rows], spots[rows]
    slots[at] = (slots[at] & TAG) | (numbers + 1).astype(np.uint64)
    lengths = edges[numbers + 1] - edges[numbers]
    long = lengths > 0
    rows, numbers, lengths = rows[long], numbers[long], lengths[long]
    if len(rows):
        names[_spans(edges[numbers], lengths)] = data[_spans(row_edges[rows], lengths)]
    here = found[first:stop]
    late = np.flatnonzero(here >= size)
    here[late] = ranks[here[late] - size]


def move(slots: Words, first: int, stop: int, larger: Words, wrap: np.uint64, ids: Words, secret: Words) -> bool:
    words = slots[first:stop]
    words = words[words != U0]
    held = ids[((words & NUMBER) - U1).astype(np.int64)]
    return _probe(larger, wrap, places_of(held[:, 0], held[:, 1], secret), words, _nobody) is not None


def _nobody(asked: Integers, words: Words) -> npt.NDArray[np.bool_]:
    return np.zeros(len(asked), np.bool_)


def _lengths(ids: Words, edges: Integers, numbers: Integers) -> Integers:
    high = ids[numbers, 1]
    return np.where(high & HASHED, edges[numbers + 1] - edges[numbers], (high >> U56).astype(np.int64))


def spelled_edges(ids: Words, edges: Integers, numbers: Integers, spelled: Integers) -> None:
    spelled[0] = 0
    np.cumsum(_lengths(ids, edges, numbers), out=spelled[1:])


def spell(ids: Words, edges: Integers, names: Bytes, numbers: Integers, spelled: Integers, texts: Bytes) -> None:
    lengths = np.diff(spelled)
    hashed = (ids[numbers, 1] & HASHED) != U0
    long, short = np.flatnonzero(hashed), np.flatnonzero(~hashed)
    texts[_spans(spelled[long], lengths[long])] = names[_spans(edges[numbers[long]], lengths[long])]
    held = ids[numbers[short]].astype("<u8").view(np.uint8)
    texts[_spans(spelled[short], lengths[short])] = held[np.arange(16) < lengths[short, np.newaxis]]
