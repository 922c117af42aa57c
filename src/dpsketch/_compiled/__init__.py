"""The hot loops, compiled with numba and cached on disk.

Functions here take arrays and scalars only and check nothing: whoever calls them has validated the input. The formulas'
letters live here. Every kernel has a slow, obvious twin in ``tests/oracles.py``, and gives the same result without a
compiler (``NUMBA_DISABLE_JIT=1``). Those that a short question needs run without it by themselves (:mod:`.kernel`).
"""
