"""Candidates that no row tells apart: they have the same cells, with equal signs or all of them opposite.

With equal signs a table shows the sum of their counts and nothing else of them. They are one key to any decoder, and
each has an equal part of what that one is found to have: the expectation, since nothing says whose it is. What each of
them has may be all of it or nothing.

With opposite signs a table shows the difference of their counts. What both have is in no cell, so that of the other
nothing is known but that the table's largest counter is a size that keys have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.splitmix import mix
from dpsketch.sketches.countsketch.exchange import CHUNK, places_of

__all__ = ["Twins", "find_twins"]

Floats = npt.NDArray[np.float64]
Prints = npt.NDArray[np.uint64]
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
