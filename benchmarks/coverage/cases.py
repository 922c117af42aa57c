"""All cases, by family."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from benchmarks.coverage import stored
from benchmarks.coverage.measuring import Case, Row, measure

FAMILIES = ("counts", "lists", "histograms", "values", "quantiles", "densities", "streams", "reports")


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
    """Run a case, and store the result."""
    case = of_family(family)[place]
    if quick:
        return measure(case, quick=True)
    functions = stored.functions_of(case)  # before answers are remembered
    rows = measure(case)
    stored.keep(case, rows, functions)
    return rows
