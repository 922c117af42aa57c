"""The decorator of every compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

__all__ = ["fused_kernel", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function on its first call, keep the machine code on disk, and release the GIL while it runs.

    There are no explicit signatures, because they would compile at import. Unsigned arithmetic wraps, as hashing wants
    it. With ``NUMBA_DISABLE_JIT=1`` the function runs as plain Python; NumPy's scalars wrap there too, but warn, so
    that warning is turned off.
    """
    return _compile(function, False)


def fused_kernel(function: F) -> F:
    """Compile like :func:`kernel`, but let a product and the sum after it round once instead of twice.

    For polynomials this saves a third of the time. Results may differ in the last bit from machine to machine, so it is
    for kernels whose results are not compared bit for bit.
    """
    return _compile(function, {"contract"})


def _compile(function: F, fastmath: bool | set[str]) -> F:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Numba found no folder it may write machine code to (a read-only container): compile in memory.
        compiled = numba.njit(**options)(function)
    if compiled is function:
        compiled = np.errstate(over="ignore")(function)
    result: F = compiled
    return result
