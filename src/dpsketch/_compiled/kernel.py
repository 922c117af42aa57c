"""The decorators of every compiled function.

The first call of a kernel loads numba, which takes a third of a second, and its machine code from the disk. Commands
that answer a question from a release call none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, update_wrapper
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

__all__ = ["compiled_as", "fused_kernel", "jitable", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])

_SOURCES = Path(__file__).parent
_lock = Lock()


def kernel(function: F) -> F:
    """Compile a function on its first call, keep the machine code on disk, and release the GIL while it runs.

    There are no explicit signatures, because they would compile at import. Unsigned arithmetic wraps, as hashing wants.
    """
    return cast("F", _Kernel(function, lambda: _compile(function, False)))


def fused_kernel(function: F) -> F:
    """Compile like :func:`kernel`, but let a product and the sum after it round once instead of twice.

    For polynomials this saves a third of the time. Results may differ in the last bit from machine to machine, so it is
    for kernels whose results are not compared bit for bit.
    """
    return cast("F", _Kernel(function, lambda: _compile(function, {"contract"})))


def jitable(function: F) -> F:
    """Compile a function where kernels call it; elsewhere it stays Python, as with numba's ``register_jitable``."""
    return cast("F", _Jitable(function, lambda: _compile(function, False)))


def compiled_as(make: Callable[[], Any]) -> Callable[[F], F]:
    """Let kernels call what ``make`` returns in place of a function, which only states the signature."""

    def decorate(function: F) -> F:
        return cast("F", _Kernel(function, make))

    return decorate


class _Kernel:
    """A function that is compiled when it is called, or when one that calls it is compiled."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any]) -> None:
        update_wrapper(self, function)
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """Its compiled form."""
        return self._make()

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for in a function that calls it."""
        from numba import typeof

        kind: Callable[[Any], Any] = typeof
        return kind(self.compiled)


class _Jitable(_Kernel):
    """A function whose compiled form is for kernels only."""

    def __call__(self, *arguments: Any) -> Any:
        return self.__wrapped__(*arguments)  # type: ignore[attr-defined]


def _compile(function: Callable[..., Any], fastmath: bool | set[str]) -> Any:
    import numba

    config: Any = numba.config
    folder = _machine_code(config.CACHE_DIR)
    compiler = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath, cache=folder is not None)
    with _lock:
        before, config.CACHE_DIR = config.CACHE_DIR, folder or ""
        try:
            return compiler(function)
        finally:
            config.CACHE_DIR = before


def _digest_of_sources() -> Any:
    digest = sha256()
    for source in sorted(_SOURCES.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest


# Read when this module is, before those that it compiles: sources that change later are not what this process runs.
_DIGEST = _digest_of_sources()


@cache
def _machine_code(asked: str) -> str | None:
    """Return the folder of the machine code of these very sources; None where none may be written.

    Numba compares a kernel with the file that it is in, and not with those of the functions that it calls. So the
    folder is named by all sources. It lies where ``$NUMBA_CACHE_DIR`` asks, else beside Python's own byte code, or in
    the user's folder for caches.
    """
    import numba

    digest = _DIGEST.copy()
    digest.update(numba.__version__.encode())
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "dpsketch")
    for root in [Path(asked)] if asked else [_SOURCES / "__pycache__", users]:
        with suppress(OSError, RuntimeError):  # RuntimeError: this user has no home
            folder = root.expanduser() / f"kernels-{digest.hexdigest()[:16]}"
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return str(folder)
    return None
