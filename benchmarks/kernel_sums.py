"""Kernel sums of real points: the error of every map that is shipped, through ``release``, beside RACE's.

``python -m benchmarks.kernel_sums [--draws 3] [--write]`` prints a table, and writes it into the page of explanations.
Points are Banking77's embeddings, of length 1 in 384 dimensions; in fewer, along the first principal directions of
CLINC150, which are public here, scaled to [−1, 1] by it. The bandwidth is a quarter of the public points' median
distance; in 2-d also the narrower 0.075, in 384-d the wider 0.5, with four times as many features too. Each map is
measured against its own kernel at 300 test points, in records over the number of records; RACE's Euclidean kernel is as
wide as the Gaussian at half of its height. Angles are taken from the public mean.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

import dpsketch as dps
from benchmarks import page
from benchmarks.embeddings import load
from dpsketch import kernels

Floats = npt.NDArray[np.float64]

EPSILONS = (0.5, 1.0, 3.0, 8.0)
DELTA = 1e-5
SIZE, QUERIES = 1000, 300
DIMS: tuple[tuple[int, float | None], ...] = (
    (2, None), (2, 0.075), (3, None), (5, None), (10, None), (20, None), (50, None), (384, None), (384, 0.5)
)  # fmt: skip
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "embeddings.md"
START, END = "<!-- table: python -m benchmarks.kernel_sums --write -->", "<!-- end of sums -->"


def points(dim: int) -> tuple[Floats, Floats, Floats]:
    """Return records, queries and public points in so many dimensions."""
    (records, _, asked, _), (public, _, _, _) = load("banking77"), load("clinc150")
    asked = asked[np.random.default_rng(0).permutation(len(asked))[:QUERIES]]
    if dim == records.shape[1]:
        return records, asked, public
    mean = public.mean(axis=0)
    directions = np.linalg.svd(public - mean, full_matrices=False)[2][:dim].T
    scale = 1 / np.abs((public - mean) @ directions).max()
    found = [np.clip((each - mean) @ directions * scale, -1, 1) for each in (records, asked, public)]
    return found[0], found[1], found[2]


def bandwidth(public: Floats) -> float:
    """Return a quarter of the public points' median distance."""
    rng = np.random.default_rng(0)
    one, other = (public[rng.integers(0, len(public), 4000)] for _ in range(2))
    return float(np.median(np.linalg.norm(one - other, axis=1))) / 4


def forms(dim: int, width: float, public: Floats) -> dict[str, dict[str, Any]]:
    """Return the arguments of each map."""
    cell = kernels.Euclidean(dim=1, bandwidth=1.0)
    half = brentq(lambda c: float(cell.similarity([[0.0]], [[c]])[0, 0]) - 0.5, 0.1, 3)
    bell = kernels.Gaussian(dim, width)
    race = kernels.Euclidean(dim, float(np.sqrt(2 * np.log(2)) * width / half))
    found: dict[str, dict[str, Any]] = {
        "RACE, 1,000 rows": {"kernel": race, "rows": SIZE, "width": 512},
        "fourier, 1,000 pairs": {"kernel": bell, "rows": SIZE, "features": "fourier"},
    }
    if width == 0.5:
        found["RACE, 4,000 rows"] = {"kernel": race, "rows": 4 * SIZE, "width": 512}
        found["fourier, 4,000 pairs"] = {"kernel": bell, "rows": 4 * SIZE, "features": "fourier"}
        found["RACE, angular of power 4, 1,000 rows"] = {"kernel": kernels.Angular(dim, 4), "rows": SIZE}
    if dim <= 3:
        found["series"] = {"kernel": bell, "bounds": (-1, 1), "features": "series"}
    if width == 0.075:
        found["series, the heaviest 545 pairs"] = {**found["series"], "rows": 545}
    if dim <= 50:
        marks = public[np.random.default_rng(3).permutation(len(public))[:SIZE]]
        found["nystrom, 1,000 landmarks"] = {"kernel": bell, "features": "nystrom", "landmarks": marks}
    return found


def measure(draws: int) -> list[list[str]]:
    """Return the lines of the table."""
    lines = []
    for dim, given in DIMS:
        all_records, all_asked, public = points(dim)
        width = bandwidth(public) if given is None else given
        for name, arguments in forms(dim, width, public).items():
            centre = public.mean(axis=0) if isinstance(arguments["kernel"], kernels.Angular) else 0.0
            records, asked = all_records - centre, all_asked - centre
            sketch = dps.DensitySketch(unit=dps.per_record(), **arguments)
            sketch.update(records[:10])
            started = time.perf_counter()
            sketch.update(records[10:])
            rate = (len(records) - 10) / (time.perf_counter() - started)
            kernel: Any = arguments["kernel"]
            truth = kernel.similarity(asked, records).sum(axis=1)
            cells, covered = [], []
            for epsilon in EPSILONS:
                errors = []
                for _ in range(draws):
                    found = sketch.release(epsilon=epsilon, delta=DELTA).estimate(asked)
                    errors.append(float(np.sqrt(np.mean((found.value - truth) ** 2))))
                    covered.append(float(np.mean((found.low <= truth) & (truth <= found.high))))
                cells.append(f"{np.mean(errors) / len(records):.5f}")
            size = f"{sketch.spec.rows * (sketch.spec.width if 'RACE' not in name else 1):,}"
            line = [f"{dim}, h = {width:.3f}", name, size, *cells, f"{np.mean(covered):.3f}", f"{rate:,.0f}"]
            lines.append(line)
            print(" | ".join(line), flush=True)
    return lines


def table(lines: list[list[str]], draws: int) -> str:
    """Return the table in Markdown."""
    head = ["dimensions", "map", "features", *(f"ε={epsilon:g}" for epsilon in EPSILONS), "covered", "points/s"]
    rows = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)]
    said = (
        f"Root mean square error of a kernel sum over the number of records ({QUERIES} queries, means of {draws} draws "
        "of the noise, δ = 10⁻⁵), the share of 95% intervals that held the truth, and points a second on one core of a "
        "busy machine."
    )
    return "\n".join([*rows, "", said])


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=3)
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    made = table(measure(asked.draws), asked.draws)
    if asked.write:
        page.replace(PAGE, made, START, END)


if __name__ == "__main__":
    main()
