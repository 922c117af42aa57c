"""What each user has in each row, where records come in the order of users and groups."""

from __future__ import annotations

import math

import numpy as np

from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Floats, Integers

__all__ = ["PRINTS", "ROWS", "UNITS", "USERS", "add_up", "centre", "gather", "least", "leaves_of"]

USERS, ROWS, UNITS, PRINTS = range(4)


@kernel
def gather(
    persons: Integers,
    prints: Integers,
    places: Integers,
    rows: Integers,
    own: Integers,
    rest: int,
    pairs: Integers,
    starts: Integers,
    numbers: Integers,
) -> tuple[int, int]:
    """Fill in the pairs of users and rows, and return their number and that of runs, or −1 if the order is another.

    Group g is in row ``rows[g]`` and has the print ``own[g]``. ``pairs[:, p]`` is pair p: its user, counted from 0, its
    row, its number of records, and its print, which is the least of its groups if the row is ``rest``. ``starts[r]`` is
    the first record of run r, in which user and group are the same, and ``numbers[r]`` its pair. Each row of a user is
    one pair, because each row but ``rest`` is that of one group, and of one run then.
    """
    user = pair = run = other = -1
    for i in range(len(persons)):
        new_user = i == 0 or persons[i] != persons[i - 1]
        if new_user:
            if i > 0 and persons[i] < persons[i - 1]:
                return -1, -1
            user, other = user + 1, -1
        elif places[i] == places[i - 1]:
            pairs[UNITS, numbers[run]] += 1
            continue
        elif places[i] < places[i - 1]:
            return -1, -1
        run += 1
        place = places[i]
        row, print_ = rows[place], prints[i] ^ own[place]
        starts[run] = i
        if row == rest and other >= 0:
            numbers[run] = other
            pairs[UNITS, other] += 1
            pairs[PRINTS, other] = min(pairs[PRINTS, other], print_)
            continue
        pair += 1
        if row == rest:
            other = pair
        pairs[USERS, pair], pairs[ROWS, pair], pairs[UNITS, pair], pairs[PRINTS, pair] = user, row, 1, print_
        numbers[run] = pair
    return pair + 1, run + 1


@kernel
def add_up(
    values: Floats, starts: Integers, numbers: Integers, step: float, limb: int, high: Integers, low: Integers
) -> None:
    """Add the values of each run of records, in whole steps, to its pair; −1 is none. ``low`` has ``limb`` bits."""
    mask = (1 << limb) - 1
    for run in range(len(starts)):
        pair = numbers[run]
        if pair < 0:
            continue
        for i in range(starts[run], starts[run + 1] if run + 1 < len(starts) else len(values)):
            whole = np.int64(math.floor(values[i] / step + 0.5))
            low[pair] += whole & mask
            high[pair] += whole >> limb
        high[pair] += low[pair] >> limb
        low[pair] &= mask


@kernel
def least(users: Integers, words: Integers, found: Integers) -> int:
    """Fill in where each user's least word is, the first of equal ones, and return how many users there are."""
    user = -1
    for i in range(len(users)):
        if i == 0 or users[i] != users[i - 1]:
            user += 1
            found[user] = i
        elif words[i] < words[found[user]]:
            found[user] = i
    return user + 1


@kernel
def centre(
    values: Floats,
    starts: Integers,
    numbers: Integers,
    units: Integers,
    low: float,
    high: float,
    scale: float,
    steps: int,
    records: int,
    found: Integers,
) -> None:
    """Add to each pair the centred values of its records, of which ``records`` add up to ``steps`` at most."""
    for run in range(len(starts)):
        pair = numbers[run]
        if pair < 0:
            continue
        share = min(units[pair], records) / (float(units[pair]) * records)
        for i in range(starts[run], starts[run + 1] if run + 1 < len(starts) else len(values)):
            place = np.floor((max(min(values[i], high), low) - low) * scale + 0.5)
            found[pair] += np.int64((2 * np.int64(min(max(place, 0.0), steps)) - steps) * share)


@kernel
def leaves_of(
    values: Floats,
    edges: Floats,
    starts: Integers,
    numbers: Integers,
    rows: Integers,
    masses: Integers,
    cells: Integers,
    amounts: Integers,
) -> int:
    """Fill in the leaf in its row, and the mass, of each record that counts, and return how many there are.

    There is one edge less than leaves, whose number is a power of two: a search then takes one step a level.
    """
    count, leaves = 0, len(edges) + 1
    for run in range(len(starts)):
        pair = numbers[run]
        if pair < 0:
            continue
        for i in range(starts[run], starts[run + 1] if run + 1 < len(starts) else len(values)):
            leaf, step = 0, leaves >> 1
            while step:
                leaf += step * (edges[leaf + step - 1] <= values[i])
                step >>= 1
            cells[count], amounts[count] = rows[pair] * leaves + leaf, masses[pair]
            count += 1
    return count
