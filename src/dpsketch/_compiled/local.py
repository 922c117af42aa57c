"""The local model: randomise people's sets, and count what their reports support.

A person's key is known here by its 64-bit fingerprint f. Under hash function s it falls into the bucket
⌊width · u / 2³²⌋, where u is the upper half of mix(f ⊕ keys[s]) and mix is the finaliser of SplitMix64 without
its last shift, which the upper half does not need. A bucket is uniform to within width / 2³².

People's sets come as one array with offsets: person i holds ``prints[offsets[i]:offsets[i + 1]]``. All randomness comes
in as words from the operating system. A choice among m alternatives takes the word modulo m, and a word among the last
2⁶⁴ mod m is refused, so that no alternative is favoured; the caller then draws another word for that choice alone.

**Identifiers of reports** are a set of 128-bit rows in the order in which they came, and an open-addressing table of
them. A slot of the table is one word: in its lower 40 bits the number of a row, from 1 on, and above them bits of its
hash, so that a row is looked at only where these agree. An empty slot is 0. Whoever sends reports chooses the
identifiers, so the slot is found through a secret word of the table's owner: nobody outside can crowd one slot.

**PrivSketch as published**, for comparison: its ordering matrix, its decoding, and the attack that reads a set off the
matrix. A person's sketch has K × M bits, flattened to K·M cells. ``order`` holds each cell's rank, a permutation of
0 … K·M − 1 in which all empty cells come before all occupied ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import M1, M2, mix, mix_upper
from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Integers, Words

__all__ = [
    "bit_vectors",
    "bucket_of",
    "columns_of",
    "count_bits",
    "decode_all",
    "decode_sampled",
    "forget_ids",
    "hashed_support",
    "index_ids",
    "insert_ids",
    "order_cells",
    "own_buckets",
    "recover",
    "sampled_bits",
    "subset_direct",
    "subset_hashing",
    "sum_over_rows",
]

Ranks = npt.NDArray[np.uint16]

U0, U1, U29, U32 = (np.uint64(bits) for bits in (0, 1, 29, 32))
ROW = np.uint64((1 << 40) - 1)
TAG = ~ROW
# Keys a block while counting support: fingerprints and counts of a block stay in the second-level cache.
BLOCK = 8_192


@kernel
def bucket_of(fingerprint: np.uint64, key: np.uint64, width: np.uint64) -> np.int64:
    """Return the bucket of a fingerprint under the hash function that ``key`` names."""
    return np.int64(((mix_upper(fingerprint ^ key) >> U32) * width) >> U32)


@kernel
def _priority(fingerprint: np.uint64, word: np.uint64) -> np.uint64:
    """Return a person's own random order of keys; one-to-one, so equal priorities are equal keys."""
    return mix(fingerprint ^ word)


@kernel
def _refused(word: np.uint64, alternatives: np.uint64) -> bool:
    """Say whether a word is one of the last 2⁶⁴ mod m, which would favour the first alternatives."""
    excess = (U0 - alternatives) % alternatives
    return bool(word > ~U0 - excess)


@kernel
def _capped(own: Words, cap: int, word: np.uint64, chosen: Words) -> Words:
    """Return a set of keys, or of one above the cap those distinct ones of smallest priority, in room for them."""
    if len(own) <= cap:
        return own
    order = np.empty(len(own), np.uint64)
    for j in range(len(own)):
        order[j] = _priority(own[j], word)
    kept = 0
    last = U0
    for j in np.argsort(order):
        if kept == cap:
            break
        if kept == 0 or order[j] != last:
            chosen[kept] = own[j]
            last = order[j]
            kept += 1
    return chosen[:kept]


@kernel
def _not_among(taken: Integers, rank: np.int64) -> np.int64:
    """Return the number of this rank among those, from 0 on, that are not taken; the taken ones are sorted."""
    taken.sort()
    for one in taken:
        if rank >= one:
            rank += 1
    return rank


@kernel
def subset_hashing(
    todo: Integers,
    offsets: Integers,
    prints: Words,
    keys: Words,
    seeds: npt.NDArray[np.uint32],
    width: int,
    thresholds: Words,
    words: Words,
    buckets: npt.NDArray[np.uint32],
) -> None:
    """Fill in the bucket that each person in ``todo`` reports; ``width`` where a choice must be drawn again.

    ``thresholds[b]`` is 2⁶⁴ times the probability of reporting one of b occupied buckets; its last index is the cap.
    ``words`` has three columns: occupied or not, which one, and the order in which a set above the cap is cut.
    """
    cap = len(thresholds) - 1
    w = np.uint64(width)
    stamp = np.full(width, -1, np.int64)
    occupied = np.empty(cap, np.int64)
    chosen = np.empty(cap, np.uint64)
    for i in todo:
        own = _capped(prints[offsets[i] : offsets[i + 1]], cap, words[i, 2], chosen)
        key = keys[seeds[i]]
        b = 0
        for j in range(len(own)):
            bucket = bucket_of(own[j], key, w)
            if stamp[bucket] != i:
                stamp[bucket] = i
                occupied[b] = bucket
                b += 1
        inside = words[i, 0] < thresholds[b]
        alternatives = np.uint64(b) if inside else np.uint64(width - b)
        choice = words[i, 1]
        if _refused(choice, alternatives):
            buckets[i] = width
            continue
        rank = np.int64(choice % alternatives)
        if inside:
            buckets[i] = occupied[rank]
        else:
            buckets[i] = _not_among(occupied[:b], rank)


@kernel
def hashed_support(
    starts: Integers,
    buckets: npt.NDArray[np.uint32],
    sizes: Integers,
    keys: Words,
    width: int,
    prints: Words,
    support: Integers,
) -> None:
    """Add to each key's support the number of reports that name its bucket.

    The buckets that reports of hash function s name are ``buckets[starts[s]:starts[s + 1]]``; ``sizes`` says how many
    name each.
    """
    w = np.uint64(width)
    table = np.zeros(width, np.int64)
    for first in range(0, len(prints), BLOCK):
        block = prints[first : first + BLOCK]
        counts = support[first : first + BLOCK]
        for s in range(len(keys)):
            if starts[s] == starts[s + 1]:
                continue
            for r in range(starts[s], starts[s + 1]):
                table[buckets[r]] += sizes[r]
            key = keys[s]
            for x in range(len(block)):
                counts[x] += table[np.uint64(bucket_of(block[x], key, w))]
            for r in range(starts[s], starts[s + 1]):
                table[buckets[r]] = 0


@kernel
def subset_direct(
    todo: Integers,
    offsets: Integers,
    items: Words,
    domain: int,
    cap: int,
    threshold: np.uint64,
    words: Words,
    symbols: npt.NDArray[np.uint32],
) -> None:
    """Fill in the symbol that each person in ``todo`` reports; ``domain + cap`` where a choice must be drawn again.

    Symbols from ``domain`` on are dummies; a set of b items is padded with the first cap − b of them.
    """
    stamp = np.full(domain, -1, np.int64)
    members = np.empty(cap, np.int64)
    chosen = np.empty(cap, np.uint64)
    for i in todo:
        own = _capped(items[offsets[i] : offsets[i + 1]], cap, words[i, 2], chosen)
        b = 0
        for j in range(len(own)):
            item = np.int64(own[j])
            if stamp[item] != i:
                stamp[item] = i
                members[b] = item
                b += 1
        inside = words[i, 0] < threshold
        alternatives = np.uint64(cap) if inside else np.uint64(domain)
        choice = words[i, 1]
        if _refused(choice, alternatives):
            symbols[i] = domain + cap
            continue
        rank = np.int64(choice % alternatives)
        if inside:
            symbols[i] = members[rank] if rank < b else domain + rank - b
        else:
            rank = _not_among(members[:b], rank)
            if rank >= domain:
                rank += cap - b
            symbols[i] = rank


@kernel
def sampled_bits(
    offsets: Integers,
    prints: Words,
    keys: Words,
    rows: npt.NDArray[np.uint32],
    columns: npt.NDArray[np.uint32],
    width: int,
    threshold: np.uint64,
    words: Words,
    bits: npt.NDArray[np.uint8],
) -> None:
    """Fill in whether each person's own cell is occupied, kept where the word is below ``threshold``, else flipped."""
    w = np.uint64(width)
    for i in range(len(rows)):
        key = keys[rows[i]]
        column = np.int64(columns[i])
        bit = 0
        for j in range(offsets[i], offsets[i + 1]):
            if bucket_of(prints[j], key, w) == column:
                bit = 1
                break
        bits[i] = bit if words[i] < threshold else 1 - bit


@kernel
def bit_vectors(
    offsets: Integers,
    prints: Words,
    keys: Words,
    rows: npt.NDArray[np.uint32],
    width: int,
    threshold: np.uint64,
    halves: npt.NDArray[np.uint32],
    vectors: npt.NDArray[np.uint8],
) -> None:
    """Fill in each person's occupied buckets as bits, each kept where its own 32-bit word is below ``threshold``."""
    w = np.uint64(width)
    occupied = np.zeros(width, np.uint8)
    for i in range(len(rows)):
        key = keys[rows[i]]
        occupied[:] = 0
        for j in range(offsets[i], offsets[i + 1]):
            occupied[bucket_of(prints[j], key, w)] = 1
        for m in range(width):
            flip = 0 if np.uint64(halves[i, m]) < threshold else 1
            vectors[i, m >> 3] |= np.uint8((occupied[m] ^ flip) << (m & 7))


@kernel
def count_bits(rows: npt.NDArray[np.uint32], vectors: npt.NDArray[np.uint8], ones: Integers, users: Integers) -> None:
    """Add bit vectors to the table of their rows, and their number to the rows' users."""
    for i in range(len(rows)):
        row = ones[rows[i]]
        users[rows[i]] += 1
        for m in range(len(row)):
            row[m] += (vectors[i, m >> 3] >> (m & 7)) & 1


@kernel
def own_buckets(prints: Words, keys: Words, rows: npt.NDArray[np.uint32], width: int) -> npt.NDArray[np.uint32]:
    """Return the bucket of each key under the hash function of its own row."""
    found = np.empty(len(prints), np.uint32)
    w = np.uint64(width)
    for i in range(len(prints)):
        found[i] = bucket_of(prints[i], keys[rows[i]], w)
    return found


@kernel
def sum_over_rows(table: Integers, keys: Words, prints: Words) -> Integers:
    """Return, for each key, the sum over rows of the cell it falls into."""
    w = np.uint64(table.shape[1])
    sums = np.zeros(len(prints), np.int64)
    for first in range(0, len(prints), BLOCK):
        block = prints[first : first + BLOCK]
        total = sums[first : first + BLOCK]
        for r in range(len(keys)):
            row = table[r]
            key = keys[r]
            for x in range(len(block)):
                total[x] += row[np.uint64(bucket_of(block[x], key, w))]
    return sums


@kernel
def _mixed(low: np.uint64, high: np.uint64, secret: np.uint64) -> np.uint64:
    z = (low ^ secret) * M1
    z = (z ^ (z >> U29) ^ high ^ (secret << U1)) * M2
    return z ^ (z >> U32)


@kernel
def insert_ids(
    table: Words, held: Words, count: int, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]
) -> int:
    """Insert identifiers behind the first ``count`` rows; say of each whether it was new, and return how many rows are.

    The table has 2^k slots and more than it will hold, and there is room for all rows.
    """
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids)):
        low, high = ids[i, 0], ids[i, 1]
        mixed = _mixed(low, high, secret)
        at = mixed & mask
        fresh[i] = True
        while table[at] != U0:
            if (table[at] ^ mixed) & TAG == U0:
                row = (table[at] & ROW) - U1
                if held[row, 0] == low and held[row, 1] == high:
                    fresh[i] = False
                    break
            at = (at + U1) & mask
        if fresh[i]:
            held[count, 0] = low
            held[count, 1] = high
            count += 1
            table[at] = (mixed & TAG) | np.uint64(count)
    return count


@kernel
def forget_ids(table: Words, count: int, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]) -> int:
    """Undo an :func:`insert_ids` after which ``count`` rows were there, last first; return how many there are now."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids) - 1, -1, -1):
        if fresh[i]:
            at = _mixed(ids[i, 0], ids[i, 1], secret) & mask
            while table[at] & ROW != np.uint64(count):
                at = (at + U1) & mask
            table[at] = U0
            count -= 1
    return count


@kernel
def index_ids(held: Words, count: int, table: Words, secret: np.uint64) -> None:
    """Enter the first ``count`` rows, all different, into an empty table."""
    mask = np.uint64(len(table) - 1)
    for i in range(count):
        mixed = _mixed(held[i, 0], held[i, 1], secret)
        at = mixed & mask
        while table[at] != U0:
            at = (at + U1) & mask
        table[at] = (mixed & TAG) | np.uint64(i + 1)


@kernel
def order_cells(
    offsets: Integers,
    prints: Words,
    keys: Words,
    width: int,
    halves: npt.NDArray[np.uint32],
    occupied: npt.NDArray[np.uint8],
    order: Ranks,
) -> None:
    """Fill in everyone's sketch and its ordering matrix, random inside each of the two groups of equal cells.

    A rank among m is ⌊m·u/2³²⌋ for a random 32-bit u: uniform to within m/2³², which matters to nobody here.
    """
    cells = len(keys) * width
    w = np.uint64(width)
    place = np.empty(cells, np.int64)
    for i in range(len(offsets) - 1):
        bits = occupied[i]
        for j in range(offsets[i], offsets[i + 1]):
            for k in range(len(keys)):
                bits[k * width + bucket_of(prints[j], keys[k], w)] = 1
        empty = 0
        full = cells
        for c in range(cells):
            if bits[c] == 0:
                place[empty] = c
                empty += 1
            else:
                full -= 1
                place[full] = c
        for rank in range(cells):
            end = empty if rank < empty else cells
            other = rank + np.int64((np.uint64(halves[i, rank]) * np.uint64(end - rank)) >> U32)
            place[rank], place[other] = place[other], place[rank]
            order[i, place[rank]] = rank


@kernel
def columns_of(prints: Words, keys: Words, width: int) -> npt.NDArray[np.int64]:
    """Return the flat cell of each key in each row: d × K."""
    cells = np.empty((len(prints), len(keys)), np.int64)
    w = np.uint64(width)
    for x in range(len(prints)):
        for k in range(len(keys)):
            cells[x, k] = k * width + bucket_of(prints[x], keys[k], w)
    return cells


@kernel
def _smallest(order: Ranks, cells: Integers) -> np.int64:
    """Return the cell of lowest rank among a key's cells."""
    best = np.int64(cells[0])
    for k in range(1, len(cells)):
        if order[cells[k]] < order[best]:
            best = np.int64(cells[k])
    return best


@kernel
def decode_sampled(
    reported: npt.NDArray[np.uint16],
    bits: npt.NDArray[np.uint8],
    order: Ranks,
    cells: Integers,
    starts: Integers,
    items: Integers,
    ones: Integers,
    matching: Integers,
) -> None:
    """Count, for each key, the reports about its smallest cell, and those among them whose bit is 1.

    ``items[starts[c]:starts[c + 1]]`` are the keys that fall into cell c.
    """
    for i in range(len(reported)):
        cell = np.int64(reported[i])
        for at in range(starts[cell], starts[cell + 1]):
            x = items[at]
            if _smallest(order[i], cells[x]) == cell:
                matching[x] += 1
                ones[x] += bits[i]


@kernel
def decode_all(bits: npt.NDArray[np.uint8], order: Ranks, cells: Integers, ones: Integers) -> None:
    """Count, for each key, the reports whose bit at the key's smallest cell is 1."""
    for i in range(len(bits)):
        for x in range(len(cells)):
            cell = _smallest(order[i], cells[x])
            ones[x] += (bits[i, cell >> 3] >> (cell & 7)) & 1


@kernel
def recover(order: Ranks, cells: Integers, held: npt.NDArray[np.bool_]) -> None:
    """Mark, for each report, the keys that its ordering matrix gives away.

    The occupied cells are the g of highest rank, for some g. A g is consistent if the keys all of whose cells are among
    them cover exactly those g cells; the attack takes the smallest consistent g, and those keys.
    """
    keys, rows = cells.shape
    total = order.shape[1]
    needed = np.empty(keys, np.int64)
    for i in range(len(order)):
        first = np.full(total + 2, -1, np.int64)
        following = np.empty(keys, np.int64)
        for x in range(keys):
            lowest = total
            for k in range(rows):
                lowest = min(lowest, np.int64(order[i, cells[x, k]]))
            needed[x] = total - lowest
            following[x] = first[needed[x]]
            first[needed[x]] = x
        covered = np.zeros(total, np.bool_)
        count = 0
        for g in range(1, total + 1):
            x = first[g]
            while x >= 0:
                for k in range(rows):
                    if not covered[cells[x, k]]:
                        covered[cells[x, k]] = True
                        count += 1
                x = following[x]
            if count == g:
                for y in range(keys):
                    held[i, y] = needed[y] <= g
                break
