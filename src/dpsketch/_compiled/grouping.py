"""Grouping by key: secretly keyed identities of 128 bits, and a hash table that gives each its number.

An identity is two words. An integer is itself, with a second word of 0. A text of at most 15 bytes is itself too: eight
bytes in the first word, seven in the second, whose last byte is the length. Any longer text is its SipHash-2-4 of 128
bits (Aumasson and Bernstein, INDOCRYPT 2012; the longer output is that of the authors' reference code) with the last
bit set, which no other identity has. So integers and short texts never collide, and of two long texts nobody can say
without the key whether they do: 127 bits are left.

The *place* of an identity in the table is uniform for whoever does not know the key: of a long text it is the first
word, of all else that word's and the second's SipHash-2-4 of 64 bits. The table has 2^k slots of one word: the number
of a key plus one in the low 40 bits, and 24 bits of its place, which spare most looks at keys that differ. Empty is 0.

Large tables consist of 64 regions, chosen by the first six bits of a place; a search that reaches the end of its region
goes on at its start. Threads own whole regions, so they never meet. A block of rows goes through in steps: identities
and places by row (:func:`identify_texts`, :func:`identify_integers`), row numbers by the thread that owns their place
(:func:`deal`), keys found or entered under provisional numbers (:func:`group`), final numbers in the order in which the
keys came (:func:`rank_fresh`, :func:`settle`). So numbers depend on neither the secret nor the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from dpsketch._compiled.kernel import kernel
from dpsketch._compiled.xxh64 import load8

__all__ = [
    "REGIONS", "SHORT", "deal", "group", "identify_integers", "identify_texts", "move", "rank_fresh", "settle",
    "spell", "spelled_edges",
]  # fmt: skip

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

REGIONS = 64
SHORT = 15  # bytes of a text that is its own identity

U0, U1, U3, U6, U8 = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(6), np.uint64(8)
U13, U16, U17, U21, U32, U56 = (np.uint64(bits) for bits in (13, 16, 17, 21, 32, 56))
U58, U64 = np.uint64(58), np.uint64(64)
ALL = np.uint64(2**64 - 1)
HASHED = np.uint64(2**63)
NUMBER = np.uint64(2**40 - 1)
TAG = np.uint64(2**64 - 2**40)
U40 = np.uint64(40)
# SipHash's constants: "somepseudorandomlygeneratedbytes", and the marks of its two outputs.
S0 = np.uint64(0x736F6D6570736575)
S1 = np.uint64(0x646F72616E646F6D)
S2 = np.uint64(0x6C7967656E657261)
S3 = np.uint64(0x7465646279746573)
SHORT_END, LONG_END, SECOND = np.uint64(0xFF), np.uint64(0xEE), np.uint64(0xDD)
# Rows between asking memory for a slot, then for what it points to, and using both.
FAR, NEAR = 32, 16


def prefetch(array: npt.NDArray[Any], index: np.uint64) -> None:
    """Ask memory for the line of one element, which is soon needed; without a compiler, do nothing."""


def _prefetch_code(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_helper(builder, signature.args[0], arguments[0])
        line, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), line)
        kind = ir.FunctionType(ir.VoidType(), [line, flag, flag, flag])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [line], kind)
        builder.call(ask, [address, flag(1), flag(3), flag(1)])  # to write, keep near, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


_prefetch: Any = intrinsic(_prefetch_code)


@overload(prefetch)
def _compiled_prefetch(array: Any, index: Any) -> Any:
    def fetch(array: Any, index: Any) -> Any:
        _prefetch(array, index)

    return fetch


@kernel
def _rotate(x: np.uint64, bits: np.uint64) -> np.uint64:
    return (x << bits) | (x >> (U64 - bits))


@kernel
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 += v1
    v1 = _rotate(v1, U13) ^ v0
    v0 = _rotate(v0, U32)
    v2 += v3
    v3 = _rotate(v3, U16) ^ v2
    v0 += v3
    v3 = _rotate(v3, U21) ^ v0
    v2 += v1
    v1 = _rotate(v1, U17) ^ v2
    v2 = _rotate(v2, U32)
    return v0, v1, v2, v3


@kernel
def _absorb(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@kernel
def _finish(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0, v1, v2, v3


@kernel
def _tail(data: Bytes, start: int, stop: int) -> np.uint64:
    """Return fewer than eight bytes as a little-endian word."""
    rest = stop - start
    if rest == 0:
        return U0
    if start + 8 <= len(data):
        return load8(data, start) & (ALL >> (U64 - U8 * np.uint64(rest)))
    word = U0
    for i in range(rest):
        word |= np.uint64(data[start + i]) << (U8 * np.uint64(i))
    return word


@kernel
def _siphash(data: Bytes, start: int, stop: int, k0: np.uint64, k1: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return SipHash-2-4 of 128 bits of ``data[start:stop]``."""
    v0, v1, v2, v3 = k0 ^ S0, k1 ^ S1 ^ LONG_END, k0 ^ S2, k1 ^ S3
    last = np.uint64(stop - start) << U56
    while stop - start >= 8:
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load8(data, start))
        start += 8
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, last | _tail(data, start, stop))
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ LONG_END, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _finish(v0, v1 ^ SECOND, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def _place(low: np.uint64, high: np.uint64, k0: np.uint64, k1: np.uint64) -> np.uint64:
    """Return the place of an identity: SipHash-2-4 of 64 bits of its sixteen bytes, unless it is a hash already."""
    if high & HASHED:
        return low
    v0, v1, v2, v3 = k0 ^ S0, k1 ^ S1, k0 ^ S2, k1 ^ S3
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, low)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, high)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, U16 << U56)
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ SHORT_END, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def identify_texts(data: Bytes, edges: Integers, secret: Words, ids: Words, places: Words) -> None:
    """Fill in the identity and the place of each text ``data[edges[i]:edges[i + 1]]``."""
    k0, k1 = secret[0], secret[1]
    for i in range(len(places)):
        start, stop = edges[i], edges[i + 1]
        if stop - start > SHORT:
            low, high = _siphash(data, start, stop, k0, k1)
            high |= HASHED
        else:
            high = np.uint64(stop - start) << U56
            if stop - start >= 8:
                low = load8(data, start)
                high |= _tail(data, start + 8, stop)
            else:
                low = _tail(data, start, stop)
        ids[i, 0] = low
        ids[i, 1] = high
        places[i] = _place(low, high, k0, k1)


@kernel
def identify_integers(words: Words, secret: Words, ids: Words, places: Words) -> None:
    """Fill in the identity and the place of each integer."""
    k0, k1 = secret[0], secret[1]
    for i in range(len(places)):
        ids[i, 0] = words[i]
        ids[i, 1] = U0
        places[i] = _place(words[i], U0, k0, k1)


@kernel
def deal(
    places: Words,
    live: npt.NDArray[np.bool_],
    first: int,
    stop: int,
    order: npt.NDArray[np.int32],
    fill: Integers,
    source: int,
) -> None:
    """List rows ``first`` to ``stop`` by owner: ``order[owner, source]`` gets those that count, in their order."""
    owners = np.uint64(len(order))
    for owner in range(len(order)):
        fill[owner, source] = 0
    for row in range(first, stop):
        mine = np.int64(((places[row] >> U58) * owners) >> U6)
        order[mine, source, fill[mine, source]] = row
        fill[mine, source] += live[row]


@kernel
def _shift(slots: Words) -> np.uint64:
    """Return by how many bits a place is shifted to become a slot."""
    shift = U64
    size = len(slots)
    while size > 1:
        size >>= 1
        shift -= U1
    return shift


@kernel
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
    """Find the keys of one owner's rows and add up their units; enter the new ones if ``adds``.

    ``found[row]`` becomes the number of the row's key, −1 if there is none. The first row with a new key gets the
    provisional number ``size + row``, at which ``ids`` and ``units`` have room, and ``spots[row]`` says in which slot;
    for all other rows that is −1. Return False if a region is full.
    """
    shift = _shift(slots)
    for source in range(len(order)):
        count = fill[source]
        for j in range(-FAR, count):
            if j + FAR < count:
                prefetch(slots, places[order[source, j + FAR]] >> shift)
            near = j + NEAR
            if 0 <= near < count:
                place = places[order[source, near]]
                word = slots[place >> shift]
                if word != U0 and (word ^ (place << U40)) & TAG == U0:
                    number = (word & NUMBER) - U1
                    prefetch(ids, number << U1)
                    prefetch(units, number)
            if j < 0:
                continue
            row = np.int64(order[source, j])
            place = places[row]
            low, high = row_ids[row, 0], row_ids[row, 1]
            at = place >> shift
            spots[row] = -1
            found[row] = -1
            steps = U0
            while True:
                word = slots[at]
                if word == U0:
                    if adds:
                        number = np.uint64(size + row)
                        slots[at] = (place << U40) | (number + U1)
                        ids[number, 0] = low
                        ids[number, 1] = high
                        units[number] = row_units[row]
                        spots[row] = np.int64(at)
                        found[row] = np.int64(number)
                    break
                if (word ^ (place << U40)) & TAG == U0:
                    number = (word & NUMBER) - U1
                    if ids[number, 0] == low and ids[number, 1] == high:
                        units[number] += row_units[row]
                        found[row] = np.int64(number)
                        break
                if steps == wrap:
                    return False
                steps += U1
                at = (at & ~wrap) | ((at + U1) & wrap)
    return True


@kernel
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
    """Move the new keys of a block together, in the order of their rows; return how many keys there are then."""
    count = size
    for row in range(len(live)):
        if live[row] and spots[row] >= 0:
            ids[count, 0] = ids[size + row, 0]
            ids[count, 1] = ids[size + row, 1]
            units[count] = units[size + row]
            edges[count + 1] = edges[count]
            if ids[count, 1] & HASHED:
                edges[count + 1] += row_edges[row + 1] - row_edges[row]
            ranks[row] = count
            count += 1
    return count


@kernel
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
    """Put final numbers for provisional ones, in the slots and in ``found``, and keep the texts of new long keys."""
    for row in range(first, stop):
        if not live[row]:
            found[row] = -1
            continue
        if spots[row] >= 0:
            number = ranks[row]
            at = spots[row]
            slots[at] = (slots[at] & TAG) | np.uint64(number + 1)
            start = edges[number]
            for i in range(edges[number + 1] - start):
                names[start + i] = data[row_edges[row] + i]
        if found[row] >= size:
            found[row] = ranks[found[row] - size]


@kernel
def move(slots: Words, first: int, stop: int, larger: Words, wrap: np.uint64, ids: Words, secret: Words) -> bool:
    """Enter the keys of slots ``first`` to ``stop`` into a larger table; return False if a region is full."""
    shift = _shift(larger)
    k0, k1 = secret[0], secret[1]
    for i in range(first, stop):
        if slots[i] != U0:
            number = (slots[i] & NUMBER) - U1
            at = _place(ids[number, 0], ids[number, 1], k0, k1) >> shift
            steps = U0
            while larger[at] != U0:
                if steps == wrap:
                    return False
                steps += U1
                at = (at & ~wrap) | ((at + U1) & wrap)
            larger[at] = slots[i]
    return True


@kernel
def spelled_edges(ids: Words, edges: Integers, numbers: Integers, spelled: Integers) -> None:
    """Fill in where each text of :func:`spell` begins and ends."""
    spelled[0] = 0
    for i in range(len(numbers)):
        number = numbers[i]
        high = ids[number, 1]
        length = edges[number + 1] - edges[number] if high & HASHED else np.int64(high >> U56)
        spelled[i + 1] = spelled[i] + length


@kernel
def spell(ids: Words, edges: Integers, names: Bytes, numbers: Integers, spelled: Integers, texts: Bytes) -> None:
    """Write the texts with these numbers one after the other."""
    for i in range(len(numbers)):
        number = numbers[i]
        at = spelled[i]
        if ids[number, 1] & HASHED:
            start = edges[number]
            for j in range(spelled[i + 1] - at):
                texts[at + j] = names[start + j]
        else:
            for j in range(spelled[i + 1] - at):
                word = ids[number, j >> 3]
                texts[at + j] = np.uint8((word >> (U8 * np.uint64(j & 7))) & np.uint64(0xFF))
