"""How far private sketches stray, on the same data and budget: Count-Min, Count-Mean and CountSketch.

The comparison of Pagh and Thorup (2022), Section 3.4, in figures. All sketches have the same rows, width and guarantee;
Count-Min also appears with Laplace noise of the pure guarantee with the same ε, as its authors have it. Printed are
quantiles of |error| over all keys, in units of the noise that one counter alone would need. The world's cities, from
the folder in ``DPSKETCH_DATA``, are left out where there is none.

With many rows CountSketch has the thinnest tails, as the paper says. With five, Count-Min has thinner ones: its minimum
avoids the heavy keys sooner than a median does, at the price of a bias that the other two do not have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.count_min import errors_on_same_data

QUANTILES = (0.5, 0.9, 0.95, 0.99)
ROWS = (5, 19)

Counts = npt.NDArray[np.int64]


def zipf(keys: int = 40_000, largest: float = 6e5, skew: float = 1.1) -> Counts:
    """Return counts that fall as a power of their rank."""
    return np.floor(largest / np.arange(1, keys + 1) ** skew).astype(np.int64)


def cities() -> Counts | None:
    """Return the populations of the world's cities, or None where the file is not there."""
    path = Path(os.environ.get("DPSKETCH_DATA", "")) / "cities" / "world_cities_population_simplemaps.txt"
    if not path.is_file():
        return None
    return np.array([int(line) for line in path.read_text().splitlines() if line.strip()], dtype=np.int64)


def datasets() -> Iterator[tuple[str, Counts, int, float]]:
    """Yield name, counts, width, and the noise scale that one counter alone would have."""
    yield "Zipf(1.1)", zipf(), 1000, 30.0
    populations = cities()
    if populations is not None:
        yield "cities", populations, 10_000, 1e4
        yield "cities", populations, 1_000, 1e5


def table() -> list[dict[str, Any]]:
    """Return a row a dataset and sketch: quantiles of |error| in units of the noise scale, and the mean error."""
    found = []
    for name, counts, width, scale in datasets():
        for rows in ROWS:
            for sketch, strayed in errors_on_same_data(counts, rows=rows, width=width, scale=scale).items():
                quantiles = np.quantile(np.abs(strayed), QUANTILES) / scale
                data = f"{name}, {rows}×{width}"
                found.append({"data": data, "sketch": sketch, "quantiles": quantiles, "bias": strayed.mean() / scale})
    return found


def run() -> list[dict[str, Any]]:
    """Return CountSketch's 99% quantile of |error| beside each other sketch's; a ratio above 1 is in its favour."""
    found = {(row["data"], row["sketch"]): float(row["quantiles"][-1]) for row in table()}
    rows = []
    for (data, sketch), theirs in found.items():
        ours = found[data, "CountSketch, robust"]
        if sketch != "CountSketch, robust":
            name = f"{data}: 99% |error| against {sketch}"
            row = {"name": name, "ours": ours, "theirs": theirs, "ratio": theirs / ours, "unit": "noise scales"}
            rows.append(row | {"draws": 1})
    return rows


def show() -> None:
    """Print the table."""
    print(f"{'data':20} {'sketch':22} " + " ".join(f"{f'q{q:g}':>9}" for q in QUANTILES) + f" {'bias':>9}")
    for row in table():
        figures = " ".join(f"{value:9.3g}" for value in row["quantiles"])
        print(f"{row['data']:20} {row['sketch']:22} {figures} {row['bias']:9.3g}")


if __name__ == "__main__":
    show()
