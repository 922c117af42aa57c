"""Bound what one user contributes, and make sure that no user is counted twice.

A user's records are bounded together. Of all the keys that a user has in a batch, :func:`bound` keeps the ``max_keys``
that come first in an order given by a hash of (seed, user, key), adds up the weights of each, and clips the sums. The
order is public and needs no draw, so every engine keeps the same keys, however the records are ordered.

Users are compared by exact value: if two were taken for one, removing either could move a table by twice the bound.
The type of the column says what a value means, so that all columns of users have one type: −1 and 2⁶⁴ − 1 are two users
of one 64-bit pattern, and 5.00 is the user ``5`` as a decimal and ``5.00`` as text. Keys are compared by fingerprint.

Across batches, files and partial sketches, :class:`CountedUsers` remembers whom a sketch has counted and refuses to
count anyone again. It remembers 64-bit fingerprints, eight bytes a user. A user counted before is therefore always
recognised, while a new one is taken for another with a probability of about n²/2⁶⁵ for n users in all (3·10⁻⁸ for a
million, 3·10⁻⁴ for a hundred million): such a batch is refused for no reason, but nothing is ever counted twice.

:func:`whole_users` cuts a source that is sorted by user into batches that hold each user whole.
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.bounding.counted import CountedUsers
    from dpsketch.bounding.cuts import Cut, cut_of_records, cut_of_users
    from dpsketch.bounding.groups import (
        Bounded,
        UserColumn,
        bound,
        codes_of,
        point_fingerprints,
        read_users,
        user_parts,
    )
    from dpsketch.bounding.whole import BoundedSpec, WeightSteps, whole_users
else:
    __getattr__ = lazy.names(
        __name__, counted="CountedUsers", cuts="Cut cut_of_records cut_of_users",
        groups="Bounded UserColumn bound codes_of point_fingerprints read_users user_parts",
        whole="BoundedSpec WeightSteps whole_users",
    )  # fmt: skip

__all__ = [
    "Bounded", "BoundedSpec", "CountedUsers", "Cut", "UserColumn", "WeightSteps", "bound", "codes_of", "cut_of_records",
    "cut_of_users", "point_fingerprints", "read_users", "user_parts", "whole_users",
]  # fmt: skip
