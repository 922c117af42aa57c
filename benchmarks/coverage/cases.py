"""All cases, by family."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from benchmarks.coverage import stored
from benchmarks.coverage.measuring import Case, Row, measure

# Loaded when used: what a case loads is what its result is held to (see `stored`).
FAMILIES = ("counts", "lists", "histograms", "values", "densities", "reports")


def of_family(family: str) -> list[Case]:
    """Return the cases of one family."""
    return list(import_module(f"benchmarks.coverage.{family}").cases())


def all_cases(only: str | None = None) -> Iterator[tuple[str, int, Case]]:
    """Return every case with its family and its place there, or those whose name matches a pattern."""
    for family in FAMILIES:
        for place, case in enumerate(of_family(family)):
            if only is None or re.search(only, case.name, re.IGNORECASE):
                yield family, place, case


def measured(family: str, place: int, quick: bool) -> list[Row]:
    """Run a case, in a process of its own so that what is loaded is what it needs, and store the result."""
    case = of_family(family)[place]
    rows = measure(case, quick=quick)
    if not quick:
        stored.keep(case, rows)
    return rows
