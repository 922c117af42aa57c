"""One benchmark in a process of its own, which leaves nothing behind: no memory, no threads, no session."""

from __future__ import annotations

import importlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

__all__ = ["rows_of"]


def rows_of(name: str) -> list[dict[str, Any]]:
    """Run a benchmark and return its rows; what it raises is raised here."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(_rows_of, name).result()


def _rows_of(name: str) -> list[dict[str, Any]]:
    importlib.import_module("numba")  # rates are of compiled kernels, also where little is done
    return [{"benchmark": name, **row} for row in importlib.import_module(f"benchmarks.{name}").run()]
