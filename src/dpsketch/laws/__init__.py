"""Laws: one module for each way in which a part of a release is drawn, with the proof of its cost beside it.

A law computes its cost from its own fields, and a permit holds the cost to the budget. So the search for a law's fields
(a cutoff, a scale, a share) needs no trust: it stands with the kinds, in :mod:`dpsketch.sketches`.
"""
