"""How many keys have an owner, if everybody may own so many of theirs.

Where the unit is a user with many keys, counting some keys of each is a waste: most keys that one user is not counted
for are another's too. Knop and Steinke (2023, "Counting distinct elements under person-level differential privacy")
count instead the most keys that can be given owners at all, each to one of the users who have it, at most ``most`` to
anybody. One user more brings ``most`` keys at most, whatever the others have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["owned_keys"]

Words = npt.NDArray[np.uint64]


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
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    people, all_keys = len(held), len(names)
    source, sink = people + all_keys, people + all_keys + 1
    starts = np.concatenate([np.full(people, source), owners, people + np.arange(all_keys)])
    ends = np.concatenate([np.arange(people), people + places, np.full(all_keys, sink)])
    # Nobody owns more than they have.
    limits = np.concatenate([np.minimum(held, most), np.ones(len(starts) - people)]).astype(np.int32)
    graph = csr_array((limits, (starts, ends)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)
