"""Grouping by key: a hash table that gives each identity (:mod:`~dpsketch._compiled.identity`) its number.

The table has 2^k slots of one word: the number of a key plus one in the low 40 bits, and 24 bits of its place, which
spare most looks at keys that differ. Empty is 0.

Large tables consist of 64 regions, chosen by the first six bits of a place; a search that reaches the end of its region
goes on at its start. Threads own whole regions, so they never meet. A block of rows goes through in steps: identities
and places by row, row numbers by the thread that owns their place (:func:`deal`), keys found or entered under
provisional numbers (:func:`group`), final numbers in the order in which the keys came (:func:`rank_fresh`,
:func:`settle`). So numbers depend on neither the secret nor the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import slots as plain
from dpsketch._compiled.identity import HASHED, place_of
from dpsketch._compiled.kernel import part, plain_kernel
from dpsketch._compiled.slots import NUMBER, TAG, U0, U1, U6, U8, U40, U56, U58, shift_of
from dpsketch.arrays import Integers, Words

__all__ = ["REGIONS", "deal", "group", "move", "rank_fresh", "settle", "spell", "spelled_edges"]

Bytes = npt.NDArray[np.uint8]

REGIONS = 64
# About how long a row takes without the compiler to be dealt or numbered, to find its key, and to be spelled.
ROW_SECONDS = 50e-9
FIND_SECONDS = 500e-9
SPELL_SECONDS = 100e-9
# Rows between asking memory for a slot, then for what it points to, and using both.
FAR, NEAR = 32, 16


def _prefetching() -> Any:
    """Make the compiled form of :func:`prefetch`."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    @intrinsic
    def ask(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_helper(builder, signature.args[0], arguments[0])
            line, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
            address = builder.bitcast(builder.gep(view.data, [arguments[1]]), line)
            kind = ir.FunctionType(ir.VoidType(), [line, flag, flag, flag])
            asked = builder.module.declare_intrinsic("llvm.prefetch", [line], kind)
            builder.call(asked, [address, flag(1), flag(3), flag(1)])  # to write, keep near, data
            return context.get_dummy_value()

        return types.void(array, types.uint64), generate

    one: Any = ask

    @njit(nogil=True)
    def fetch(array: Any, index: Any) -> None:
        one(array, index)

    return fetch


def _prefetch(array: npt.NDArray[Any], index: np.uint64) -> None:
    """Ask memory for the line of one element, which is soon needed; without a compiler, do nothing."""


prefetch = part(_prefetch, _prefetching)


@plain_kernel(lambda places, live, first, stop, *lists: ROW_SECONDS * (stop - first), plain.deal)
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


@plain_kernel(lambda *arguments: FIND_SECONDS * float(arguments[9].sum()), plain.group)
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
    shift = shift_of(slots)
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


@plain_kernel(lambda live, *more: ROW_SECONDS * len(live), plain.rank_fresh)
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


@plain_kernel(lambda first, stop, *more: 2 * ROW_SECONDS * (stop - first), plain.settle)
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


@plain_kernel(lambda slots, first, stop, *more: FIND_SECONDS * (stop - first), plain.move)
def move(slots: Words, first: int, stop: int, larger: Words, wrap: np.uint64, ids: Words, secret: Words) -> bool:
    """Enter the keys of slots ``first`` to ``stop`` into a larger table; return False if a region is full."""
    shift = shift_of(larger)
    k0, k1 = secret[0], secret[1]
    for i in range(first, stop):
        if slots[i] != U0:
            number = (slots[i] & NUMBER) - U1
            at = place_of(ids[number, 0], ids[number, 1], k0, k1) >> shift
            steps = U0
            while larger[at] != U0:
                if steps == wrap:
                    return False
                steps += U1
                at = (at & ~wrap) | ((at + U1) & wrap)
            larger[at] = slots[i]
    return True


@plain_kernel(lambda ids, edges, numbers, spelled: ROW_SECONDS * len(numbers), plain.spelled_edges)
def spelled_edges(ids: Words, edges: Integers, numbers: Integers, spelled: Integers) -> None:
    """Fill in where each text of :func:`spell` begins and ends."""
    spelled[0] = 0
    for i in range(len(numbers)):
        number = numbers[i]
        high = ids[number, 1]
        length = edges[number + 1] - edges[number] if high & HASHED else np.int64(high >> U56)
        spelled[i + 1] = spelled[i] + length


@plain_kernel(lambda ids, edges, names, numbers, *more: SPELL_SECONDS * len(numbers), plain.spell)
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
