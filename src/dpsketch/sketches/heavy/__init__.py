"""Heavy hitters without a list of keys: a tree of prefixes, searched from the root after the release.

A CountSketch knows counts and no keys; who wants the frequent ones must guess them. Here every record is counted at its
key and at its key's prefixes, one byte longer from level to level. After the release the frequent keys are found from
the root downwards: a key with many records has prefixes with at least as many, so only the children of frequent
prefixes need a look. The first level, of two bytes, is kept cell by cell; the deeper ones are CountSketches.

The whole is one mechanism: the levels share one budget (half of it goes to the keys themselves), charged once.

References
----------
Cormode and Muthukrishnan, *What's hot and what's not* (2005), search over a hierarchy of sketches. Bassily, Nissim,
Stemmer and Thakurta, *Practical locally private heavy hitters* (2017), a private tree of CountSketches. Changed here:
noise is central, integer and exact; levels are bytes, not bits; every level is decoded jointly; at user level a prefix
is counted once a user, and every level is clipped.
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.predict import SearchPrediction
    from dpsketch.sketches.heavy.sketch import HeavyHitters, PrivateHeavyHitters
    from dpsketch.sketches.heavy.spec import HeavyHittersSpec
else:
    __getattr__ = lazy.names(
        __name__, predict="SearchPrediction", sketch="HeavyHitters PrivateHeavyHitters", spec="HeavyHittersSpec",
    )  # fmt: skip

__all__ = ["HeavyHitters", "HeavyHittersSpec", "PrivateHeavyHitters", "SearchPrediction"]
