"""Private distinct counts (F_0): how many different keys a stream has.

A bitmap of Flajolet and Martin (1985): each key sets one bit, chosen by its hash, so one key more or less changes at
most one bit, whatever the stream. That makes two releases possible, both pure and both exact:

- ``release``: the number of ones, with discrete Laplace noise of sensitivity 1. The noise is negligible beside the
  bitmap's own error of 0.7/√buckets, and an empty stream is within a few keys of 0. This is the one to use inside one
  trust boundary, where bitmaps merge *before* the release (bitwise or).
- ``release_mergeable``: the whole bitmap, each bit through randomised response (Hehir, Ting and Cormode 2023,
  "Sketch-Flip-Merge"): ones become fair coins, zeros become ones with probability e^−ε/2. The exclusive or of such
  bitmaps is again one, of the union, so releases of parties that do not trust each other merge *after* the fact. It
  costs about a factor 3 in error.

Where every key can be held, eight bytes each, noise is the only error there need be: :class:`DistinctSet`.
With many keys a user it also counts far more of them than a bitmap of some keys of each (``matching.py``).

Flajolet and Martin's bitmap was chosen over HyperLogLog (one key can move a register by any amount), over the sketch of
maxima that is private by a secret hash (Smith, Song and Thakurta 2020: approximate privacy only, and one release a
secret) and over bottom-k samples (they publish hashes of keys).
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.sketches.distinct.bitmap import DistinctSketch, DistinctSpec, PrivateDistinct, PrivateDistinctBitmap
    from dpsketch.sketches.distinct.exact import DistinctSet, DistinctSetSpec, PrivateDistinctCount
else:
    __getattr__ = lazy.names(
        __name__, exact="DistinctSet DistinctSetSpec PrivateDistinctCount",
        bitmap="DistinctSketch DistinctSpec PrivateDistinct PrivateDistinctBitmap",
    )  # fmt: skip

__all__ = [
    "DistinctSet",
    "DistinctSetSpec",
    "DistinctSketch",
    "DistinctSpec",
    "PrivateDistinct",
    "PrivateDistinctBitmap",
    "PrivateDistinctCount",
]
