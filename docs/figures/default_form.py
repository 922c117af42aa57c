"""Compare forms of a user-level histogram: ``PYTHONPATH=. python docs/figures/default_form.py`` (ten minutes).

Needs ``DPSKETCH_DATA``. It writes two tables into docs/explanation/histogram.md: names and errors of the default beside
``form="gaussian"``, and the error of the default by the number of a user's found keys that are counted.
"""

from __future__ import annotations

import csv
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
from front import flights, pairs_of, root
from pages import ROOT, table, write_table

import dpsketch as dps
from benchmarks.histogram import data_sets
from dpsketch.sketches.histogram import calibration

PAGE = ROOT / "docs" / "explanation" / "histogram.md"
DELTA, RELEASES = 1e-6, 6
COUNTED = (10, 16, 23, 30, 43, 60, 100)


def numbered(pairs: list[tuple[str, str]]) -> tuple[Any, Any]:
    """Return users and keys as numbers."""
    return tuple(np.unique([pair[side] for pair in pairs], return_inverse=True)[1] for side in (0, 1))  # type: ignore[return-value]


def hosts() -> list[tuple[str, str]]:
    """Return each host of a day of web requests with each address that it asked for."""
    path = Path(os.environ["DPSKETCH_DATA"]) / "streams" / "nasa_19950801.tsv.xz"
    with lzma.open(path, "rt", encoding="utf-8", errors="replace") as lines:
        return sorted({(row["host"], row["url"]) for row in csv.DictReader(lines, delimiter="\t")})


def tally(forms: list[list[str]]) -> str:
    """Return in words how often the default is better, from the rows of the first table."""
    pairs = []
    for _, _, *cells in forms:
        numbers = [[float(part.replace(",", "")) for part in cell.split(";")] for cell in cells]
        pairs += list(zip(numbers[::2], numbers[1::2], strict=True))
    more = [ours[0] >= theirs[0] for ours, theirs in pairs]
    less = [ours[1] <= theirs[1] for ours, theirs in pairs]
    both = sum(a and b for a, b in zip(more, less, strict=True))
    neither = sum(not a and not b for a, b in zip(more, less, strict=True))
    return (
        f"\nOf {len(pairs)} cases the default names no fewer keys in {sum(more)}, has no larger error in {sum(less)}, "
        f"both in {both}, and neither in {neither}.\n"
    )


def main() -> None:
    """Measure, and write both tables."""
    sets = {"flights": numbered(pairs_of(flights())[0]), "nasa": numbered(hosts())}
    sets |= {name: pair for name, pair in data_sets().items() if len(pair[0])}
    forms: list[list[str]] = []
    counted = []
    for name, (users, keys) in sets.items():
        truth = np.bincount(keys)

        def found(sketch: Any, epsilon: float, form: Any = None, *, truth: Any = truth) -> tuple[float, float]:
            made = [sketch.release(epsilon=epsilon, delta=DELTA, form=form) for _ in range(RELEASES)]
            errors = np.concatenate([each.values - truth[np.array(each.keys, int)] for each in made])
            return len(errors) / RELEASES, root(errors) if len(errors) else 0.0

        for cap in (10, 40, 100):
            sketch = dps.Histogram(unit=dps.per_user(max_keys=cap), key_type="int")
            sketch.update(keys, users=users)
            cells = [found(sketch, epsilon, form) for epsilon in (0.3, 1.0, 3.0) for form in (None, "gaussian")]
            forms.append([name, str(cap), *(f"{number:,.0f}; {error:.0f}" for number, error in cells)])
        usual = calibration._counted
        for epsilon in (0.3, 0.6, 1.0, 3.0, 8.0):
            errors = []
            for most in COUNTED:
                calibration._counted = lambda _, most=most: most  # type: ignore[misc]
                errors.append(found(sketch, epsilon)[1])
            calibration._counted = usual
            counted.append([name, f"{epsilon:g}", *(f"{error:.0f}" for error in errors), usual(epsilon)])
        print(forms[-3:], counted[-5:], flush=True)
    head = [f"ε = {epsilon:g}, {form}" for epsilon in (0.3, 1, 3) for form in ("default", "gaussian")]
    write_table(PAGE, "forms: docs/figures/default_form.py", table(["data", "cap", *head], forms) + tally(forms))
    head = [f"{most} keys" for most in COUNTED]
    write_table(PAGE, "counted: docs/figures/default_form.py", table(["data", "ε", *head, "taken"], counted))


if __name__ == "__main__":
    main()
