"""Private sparse histograms: the value of each key, over a domain too large to list.

Small values go through the ALP mechanism, which writes them in unary into a hashed table of bits and flips each bit at
random; large ones are kept by key where they reach a threshold with noise. Together they are purely ε-private, take
space for the keys that are there only, and read any key with an error of the order of 1/ε, whatever the other keys'
values.

References
----------
Aumüller, Lebeda and Pagh, *Differentially Private Sparse Vectors with Low Error, Optimal Space, and Fast Access*
(2021).
"""

from dpsketch.sketches.sparse.sketch import PrivateSparseHistogram, SparseHistogram, SparseHistogramSpec

__all__ = ["PrivateSparseHistogram", "SparseHistogram", "SparseHistogramSpec"]
