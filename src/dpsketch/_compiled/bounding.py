"""Bounding what one user contributes: group records by user, keep a user's first keys, clip a user's own sketch.

A user's keys are ordered by mix(f ⊕ mix(g ⊕ s)), where f is the key's fingerprint, g the user's, s a key derived from
the spec's seed, and mix the finaliser of SplitMix64. It is one-to-one in f, so different fingerprints never tie, and no
draw is made: the order is the same on every machine and in every engine.

Large arrays come from the caller: NumPy asks the system for large pages and numba does not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.countsketch import cells
from dpsketch._compiled.hashing import mix
from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Integers, Words

__all__ = ["clip", "group", "keep_first", "share", "unite"]

# So many records are sorted by insertion.
SHORT = 32


@kernel
def group(codes: npt.NDArray[np.int32], starts: Integers, order: Integers) -> None:
    """Sort records by user: those of user u are ``order[starts[u]:starts[u + 1]]``, in the order they came."""
    users = len(starts) - 1
    starts[:] = 0
    for i in range(len(codes)):
        starts[codes[i] + 1] += 1
    for u in range(users):
        starts[u + 1] += starts[u]
    free = starts[:-1].copy()
    for i in range(len(codes)):
        u = codes[i]
        order[free[u]] = i
        free[u] += 1


@kernel
def _sort(ranks: Words, rows: Integers, units: Integers) -> None:
    """Sort three columns by the first, in place."""
    if len(ranks) > SHORT:
        order = np.argsort(ranks)
        ranks[:] = ranks[order]
        rows[:] = rows[order]
        units[:] = units[order]
        return
    for i in range(1, len(ranks)):
        rank, row, unit = ranks[i], rows[i], units[i]
        place = i
        while place > 0 and ranks[place - 1] > rank:
            ranks[place] = ranks[place - 1]
            rows[place] = rows[place - 1]
            units[place] = units[place - 1]
            place -= 1
        ranks[place] = rank
        rows[place] = row
        units[place] = unit


@kernel
def _first_keys(ranks: Words, rows: Integers, units: Integers, max_keys: int, max_units: int) -> int:
    """Reduce records in place to the first keys, in order, with the sum of their units; return how many keys."""
    _sort(ranks, rows, units)
    kept = 0
    for i in range(len(ranks)):
        if kept > 0 and ranks[i] == ranks[kept - 1]:
            units[kept - 1] = min(units[kept - 1] + units[i], max_units)
        elif kept == max_keys:
            break
        else:
            ranks[kept] = ranks[i]
            rows[kept] = rows[i]
            units[kept] = units[i]
            kept += 1
    return kept


@kernel
def keep_first(
    starts: Integers,
    order: Integers,
    users: Words,
    prints: Words,
    units: Integers,
    seed_key: np.uint64,
    max_keys: int,
    max_units: int,
    kept_starts: Integers,
    kept_rows: Integers,
    kept_units: Integers,
) -> int:
    """Fill in each user's first ``max_keys`` distinct keys, in order, with the sum of their units up to ``max_units``.

    ``units`` has one entry a record, or a single one that goes for all. Records of no units are left out. A key is
    named by the row of one of its records. Returns how many records, of some units, have a key that is left out.
    """
    step = 1 if len(units) == len(prints) else 0
    longest = 0
    for u in range(len(users)):
        longest = max(longest, starts[u + 1] - starts[u])
    # Records gather here and are reduced whenever it is full; from then on only those before the last key get in.
    size = min(longest, 2 * max_keys + SHORT)
    ranks = np.empty(size, np.uint64)
    rows = np.empty(size, np.int64)
    amounts = np.empty(size, np.int64)
    own_ranks = np.empty(longest, np.uint64)  # of one user's records; 0 of one that has no units
    end = left_out = 0
    kept_starts[0] = 0
    for u in range(len(users)):
        own = mix(users[u] ^ seed_key)
        last = ~np.uint64(0)
        count = 0
        for place in range(starts[u], starts[u + 1]):
            row = order[place]
            amount = min(units[row * step], max_units)
            rank = mix(prints[row] ^ own)
            own_ranks[place - starts[u]] = rank if amount > 0 else np.uint64(0)
            if amount <= 0 or rank > last:
                continue
            if count == size:
                count = _first_keys(ranks, rows, amounts, max_keys, max_units)
                if count == max_keys:
                    last = ranks[count - 1]
            ranks[count] = rank
            rows[count] = row
            amounts[count] = amount
            count += 1
        count = _first_keys(ranks[:count], rows[:count], amounts[:count], max_keys, max_units)
        kept_rows[end : end + count] = rows[:count]
        kept_units[end : end + count] = amounts[:count]
        end += count
        kept_starts[u + 1] = end
        if count == max_keys and starts[u + 1] - starts[u] > max_keys:
            last = ranks[count - 1]
            for rank in own_ranks[: starts[u + 1] - starts[u]]:
                left_out += rank > last
    return left_out


@kernel
def clip(
    starts: Integers,
    prints: Words,
    units: Integers,
    row_keys: Words,
    width: int,
    limit: int,
    shift: int,
    kept_starts: Integers,
    kept_cells: Integers,
    kept_amounts: Integers,
) -> int:
    """Fill in each user's own sketch, leaving out a key that carries its norm past the limit.

    User u has the keys ``starts[u]`` to ``starts[u + 1]``, taken in turn, and the entries ``kept_starts[u]`` to
    ``kept_starts[u + 1]``, with a cell each, counted through all rows. Norms count each counter's magnitude in steps of
    2^shift, rounded up, and ``limit`` bounds their square. Returns how many users had a key left out.
    """
    rows, users, longest = len(row_keys), len(starts) - 1, 0
    for u in range(users):
        longest = max(longest, starts[u + 1] - starts[u])
    # For each row a hash table of the user's own entries, by place: one before the first belongs to an earlier user. At
    # most a quarter of it is full, or it has a slot for each bucket.
    size = 1
    while size < min(4 * longest, width):
        size *= 2
    entries, mask = np.full((rows, size), -1, np.int64), size - 1
    slots, places = np.empty(rows, np.int64), np.empty(rows, np.int64)
    buckets, signs = cells(prints, row_keys, width)
    up, clipped, end = (1 << shift) - 1, 0, 0
    kept_starts[0] = 0
    for u in range(users):
        first, squared, whole = end, 0, True
        for key in range(starts[u], starts[u + 1]):
            weight, own, own_signs = units[key], buckets[key], signs[key]
            alone = ((weight + up) >> shift) ** 2
            gain = rows * alone
            for r in range(rows):
                row, slot = entries[r], np.int64(own[r]) & mask
                place = row[np.uint64(slot)]
                while place >= first and kept_cells[np.uint64(place)] != r * width + own[r]:
                    slot = (slot + 1) & mask
                    place = row[np.uint64(slot)]
                slots[r], places[r] = slot, place
                if place >= first:
                    held = kept_amounts[place]
                    before, after = (abs(held) + up) >> shift, (abs(held + own_signs[r] * weight) + up) >> shift
                    gain += after * after - before * before - alone
            if squared + gain > limit:
                whole = False
                continue
            squared += gain
            for r in range(rows):
                change = own_signs[r] * weight
                if places[r] >= first:
                    kept_amounts[places[r]] += change
                else:
                    entries[r, np.uint64(slots[r])] = end
                    kept_cells[np.uint64(end)] = r * width + own[r]
                    kept_amounts[np.uint64(end)] = change
                    end += 1
        clipped += not whole
        kept_starts[u + 1] = end
    return clipped


@kernel
def unite(a: Words, b: Words, union: Words) -> int:
    """Merge two strictly increasing arrays into one; return how many values it has."""
    i = j = n = 0
    while i < len(a) and j < len(b):
        x = a[i]
        y = b[j]
        # Without branches: which of the two comes first is a coin's toss.
        union[n] = min(x, y)
        i += x <= y
        j += y <= x
        n += 1
    while i < len(a):
        union[n] = a[i]
        i += 1
        n += 1
    while j < len(b):
        union[n] = b[j]
        j += 1
        n += 1
    return n


@kernel
def share(long: Words, short: Words) -> bool:
    """Say whether two increasing arrays have a value in common; quick if one is much shorter."""
    low = 0
    for x in short:
        # Gallop on from the last place, then halve.
        step = 1
        while low + step <= len(long) and long[low + step - 1] < x:
            low += step
            step *= 2
        high = min(low + step, len(long))
        while low < high:
            middle = (low + high) // 2
            if long[middle] < x:
                low = middle + 1
            else:
                high = middle
        if low == len(long):
            return False
        if long[low] == x:
            return True
    return False
