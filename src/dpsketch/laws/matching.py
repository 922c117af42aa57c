"""How many keys have an owner, if everybody may own so many of theirs.

Where the unit is a user with many keys, counting some keys of each is a waste: most keys that one user is not counted
for are another's too. Knop and Steinke (2023, "Counting distinct elements under person-level differential privacy")
count instead the most keys that can be given owners at all, each to one of the users who have it, at most ``most`` to
anybody. One user more brings ``most`` keys at most, whatever the others have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Words

__all__ = ["owned_keys"]

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
