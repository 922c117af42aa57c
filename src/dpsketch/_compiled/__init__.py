"""The hot loops, compiled with numba and cached on disk.

Functions here take arrays and scalars only and check nothing: whoever calls them has validated the input. The formulas'
letters live here. Every kernel has a slow, obvious oracle in ``tests/oracles``.
"""
