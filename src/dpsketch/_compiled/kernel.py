"""The decorators of every compiled function.

Loading the compiler takes longer than most questions to a release. So the first call that needs it loads it, and a
process that has little to compute never does: a kernel that says how long a call takes without it runs as plain Python,
until such calls have taken about as long as loading would. Results are the same to the bit either way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np

__all__ = ["fused_kernel", "kernel", "part", "plain_kernel"]

F = TypeVar("F", bound=Callable[..., Any])

# Seconds that all calls without the compiler may take: about half of what loading it does.
_ALLOWED = 0.5
_taken = 0.0
_lock = RLock()


def kernel(function: F) -> F:
    """Compile a function on its first call, keep the machine code on disk, and release the GIL while it runs.

    There are no explicit signatures, because they would compile at import. Unsigned arithmetic wraps, as hashing wants
    it. With ``NUMBA_DISABLE_JIT=1`` the function runs as plain Python; NumPy's scalars wrap there too, but warn, so
    that warning is turned off.
    """
    return cast(F, _Kernel(function, lambda: _compile(function, False)))


def fused_kernel(function: F) -> F:
    """Compile like :func:`kernel`, but let a product and the sum after it round once instead of twice.

    For polynomials this saves a third of the time. Results may differ in the last bit from machine to machine, so it is
    for kernels whose results are not compared bit for bit.
    """
    return cast(F, _Kernel(function, lambda: _compile(function, {"contract"})))


def plain_kernel(seconds: Callable[..., float], plain: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Compile like :func:`kernel`, but run short calls without the compiler while it is not loaded.

    Parameters
    ----------
    seconds : callable
        About how long a call with these arguments takes without the compiler.
    plain : callable, optional
        What runs then, and gives the same bits; by default the function itself.
    """

    def decorate(function: F) -> F:
        return cast(F, _Kernel(function, lambda: _compile(function, False), plain, seconds))

    return decorate


def part(function: F, compiled: Callable[[], Any] | None = None) -> F:
    """Compile a function with the kernels that call it; those that run without the compiler call it as it is.

    ``compiled`` makes its compiled form, where that is not the function's own.
    """
    return cast(F, _Part(function, compiled or (lambda: _compile(function, False))))


class _Kernel:
    """A function that is compiled when it is called, or when one that calls it is compiled."""

    def __init__(
        self,
        function: Callable[..., Any],
        compiled: Callable[[], Any],
        plain: Callable[..., Any] | None = None,
        seconds: Callable[..., float] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self._make = compiled
        self.plain = _wrapping(plain or function)
        self._seconds = seconds
        self._made: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._made is not None:
            return self._made(*arguments)
        if self._seconds is not None and _affordable(self._seconds(*arguments)):
            return self.plain(*arguments)
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """Its compiled form."""
        with _lock:
            if self._made is None:
                self._made = self._make()
        return self._made

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for in a function that calls it."""
        from numba import typeof

        kind: Callable[[Any], Any] = typeof
        return kind(self.compiled)


class _Part(_Kernel):
    """A function that kernels call: its compiled form is for compiled kernels only."""

    def __call__(self, *arguments: Any) -> Any:
        return self.plain(*arguments)


def _affordable(seconds: float) -> bool:
    """Say whether a call of so many seconds may do without the compiler, and count them."""
    global _taken
    if "numba" in sys.modules or _taken + seconds > _ALLOWED:
        return False
    _taken += seconds
    return True


def _compile(function: Callable[..., Any], fastmath: bool | set[str]) -> Any:
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Numba found no folder it may write machine code to (a read-only container): compile in memory.
        compiled = numba.njit(**options)(function)
    return _wrapping(function) if compiled is function else compiled


def _wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let NumPy's scalars wrap without a warning, as compiled integers do."""
    return np.errstate(over="ignore")(function)
