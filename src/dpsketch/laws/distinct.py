"""Randomised response on a bitmap, and how many keys have an owner if everybody may own so many of theirs.

**Bits.** Every bit is published, flipped at random. Ones become fair coins, and zeros become ones with probability
q = e^−b/2. Then a bit that is set loses at most b, and one that is cleared at most ln(2 − e^−b). A unit added or
removed changes C bits one way, at a loss of C·b. A unit replaced changes C bits each way, at a loss of
C·(b + ln(2 − e^−b)).

**Owners.** Where the unit is a user with many keys, counting some keys of each is a waste: most keys that one user is
not counted for are another's too. Knop and Steinke (2023, "Counting distinct elements under person-level differential
privacy") count instead the most keys that can be given owners at all, each to one of the users who have it, at most
``most`` to anybody. One user more brings ``most`` keys at most, whatever the others have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.noise import random_id, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Cost, PureCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["Coins", "Flips", "are_bits", "owned_keys"]

_BITS = np.arange(64, dtype=np.uint64)


@stored
@dataclass(frozen=True, slots=True)
class Flips(OneTable):
    """Randomised response on every bit: ones become fair coins, zeros ones with probability ``threshold``/2⁶⁴."""

    threshold: int

    def __post_init__(self) -> None:
        hold_whole(self, "threshold", low=1, high=2**63)
        if self.table.move != Move.each(self.table.move.cells, 1):
            raise InvalidInput("bits are flipped in a table in which a unit moves each cell by 1.")

    @property
    def probability(self) -> float:
        """The probability with which a zero becomes a one."""
        return self.threshold / 2**64

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return f"a bitmap whose ones are fair coins and whose zeros are ones with probability {self.probability:.4g}"

    def slots(self) -> Mapping[str, Any]:
        """Return the coins."""
        return {"coins": Coins(self.threshold)}

    def costs(self) -> tuple[Cost, ...]:
        """Return the loss of the bits that one unit changes, rounded up."""
        gap = (2**63 - self.threshold) / 2**63  # 1 − 2q, whose digits 2q does not keep near 1
        loss = -math.log1p(-gap) if gap < 0.5 else -math.log(2 * self.probability)
        if self.neighbours == "replace":
            loss += math.log1p(gap)
        return (PureCost(self.table.move.cells * loss * (1 + 2.0**-48)),)

    def draw(self, state: Words, handle: Handle) -> Arrays:
        """Return the bitmap with its bits flipped, and a random name by which the release is known."""
        return {"bitmap": handle.draw("coins", state), "ids": [bytes.fromhex(random_id())]}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a bitmap, and one name."""
        return are_bits(arrays, self.table) and len(arrays["ids"]) == 1


@dataclass(frozen=True, slots=True)
class Coins:
    """The coins that flip bits: a one becomes a one with probability ½, a zero with probability ``threshold``/2⁶⁴."""

    threshold: int

    def draw(self, bitmap: Words) -> Words:
        """Return a bitmap with its bits flipped."""
        flipped = np.zeros_like(bitmap)
        one = np.uint64(1)
        for place in _BITS:
            drawn = random_words(len(bitmap))
            truth = (bitmap >> place) & one
            limit = np.where(truth == one, np.uint64(2**63), np.uint64(self.threshold))
            flipped |= (drawn < limit).astype(np.uint64) << place
        return flipped


def are_bits(arrays: Arrays, table: Table) -> bool:
    """Say whether these are a bitmap of a table's size and a list of names."""
    if set(arrays) != {"bitmap", "ids"} or table.shape is None:
        return False
    bitmap, ids = arrays["bitmap"], arrays["ids"]
    good = isinstance(bitmap, np.ndarray) and bitmap.dtype == np.uint64 and bitmap.shape == table.shape[:1]
    return good and isinstance(ids, list) and len(set(ids)) == len(ids) and all(len(each) == 16 for each in ids)


Places = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int64]


def owned_keys(users: Words, keys: Words, most: int) -> int:
    """Return the largest number of keys that can have owners.

    Parameters
    ----------
    users, keys : numpy.ndarray of uint64
        Who has which key, each pair once.
    most : int
        How many keys a user may own.

    Privacy
    -------
    It is a largest flow from users, each of whom lets ``most`` through, to keys, each of which takes one. Without a
    user it is smaller by at most ``most``, and not larger. Two users who share a number are one, who still brings at
    most ``most``: what either adds or takes away is at most that, too.

    Examples
    --------
    >>> owned_keys(np.uint64([1, 1, 1, 2]), np.uint64([7, 8, 9, 7]), 1)
    2
    """
    _, owners, held = np.unique(users, return_inverse=True, return_counts=True)
    names, places = np.unique(keys, return_inverse=True)
    if not len(held) or held.max() <= most:
        return len(names)
    owned, room, owners, places = _clear(np.minimum(held, most), owners, places)
    return owned + (_flow(room, owners, places) if len(owners) else 0)


def _clear(room: Counts, owners: Places, places: Places) -> tuple[int, Counts, Places, Places]:
    """Give away the keys whose best owner is plain; return how many, and the room and the pairs that are left.

    Whoever has room for all that is left of theirs owns it: some largest flow has that, since whoever else would own
    one of these keys is as well off without it. A key that one user alone has is theirs as far as they have room: no
    other of their keys counts for more. A flow through all pairs takes ten times as long.
    """
    owned, keys = 0, int(places.max()) + 1
    while True:
        before = len(owners)
        held = np.bincount(owners, minlength=len(room))
        given = np.zeros(keys, np.bool_)
        given[places[(held <= room)[owners]]] = True
        owned += int(given.sum())
        owners, places = owners[~given[places]], places[~given[places]]
        alone = (np.bincount(places, minlength=keys) == 1)[places]
        taken = np.minimum(np.bincount(owners[alone], minlength=len(room)), room)
        owned, room = owned + int(taken.sum()), room - taken
        left = ~alone & (room[owners] > 0)
        owners, places = owners[left], places[left]
        if len(owners) in (0, before):
            return owned, room, owners, places


def _flow(room: Counts, owners: Places, places: Places) -> int:
    """Return the largest flow from users, who let so much through, to keys, each of which takes one."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    who, owners, held = np.unique(owners, return_inverse=True, return_counts=True)
    names, places = np.unique(places, return_inverse=True)
    people, all_keys = len(who), len(names)
    source, sink = people + all_keys, people + all_keys + 1
    starts = np.concatenate([np.full(people, source), owners, people + np.arange(all_keys)])
    ends = np.concatenate([np.arange(people), people + places, np.full(all_keys, sink)])
    # Nobody owns more than they have.
    limits = np.concatenate([np.minimum(held, room[who]), np.ones(len(starts) - people)]).astype(np.int32)
    graph = csr_array((limits, (starts, ends)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)
