"""The compiled loops of densities equal their slow oracles, bit for bit, with the compiler and without."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import mpmath
import numpy as np
import pytest

from dpsketch import kernels
from dpsketch._compiled import density, portable
from dpsketch.hashing import row_keys
from dpsketch.sketches.density.functions import row_functions
from oracles import density as oracle

VECTORS = Path(__file__).parents[1] / "vectors" / "density.json"
RNG = np.random.default_rng(8)


def random_points(n: int, dim: int) -> np.ndarray:
    """Points of many sizes, some on the lattice, some zero."""
    points = RNG.normal(size=(n, dim)) * 10.0 ** RNG.integers(-3, 6, size=(n, 1))
    points[0] = 0
    points[1] = -0.0
    points[2] = np.rint(points[2])
    return points


@pytest.mark.parametrize(("dim", "rows", "width"), [(1, 5, 7), (10, 17, 1000)])
def test_columns_equals_oracle(dim: int, rows: int, width: int) -> None:
    power = 3
    points = random_points(40, dim)
    matrices, offsets = RNG.normal(size=(power, dim, rows)), RNG.random((power, rows))
    matrices[:, :, 0] = np.rint(matrices[:, :, 0])
    keys = row_keys(3, rows, "test")
    folded = density.folded_columns(points, matrices[0], offsets[0], width)
    hashed = density.hashed_columns(points, matrices, offsets, keys, width)
    signs = density.sign_columns(points, matrices)
    for i, point in enumerate(points.tolist()):
        for r in range(rows):
            directions, shifts = matrices[:, :, r].tolist(), offsets[:, r].tolist()
            assert folded[i, r] == oracle.folded_column(point, directions[0], shifts[0], width)
            assert hashed[i, r] == oracle.hashed_column(point, directions, shifts, int(keys[r]), width)
            assert signs[i, r] == oracle.sign_column(point, directions)


def test_hashed_codes_past_64_bits_equals_oracle() -> None:
    points, keys = np.array([[1e15], [-1e15], [3.0]]), row_keys(3, 2, "test")
    matrices, offsets = np.array([[[1e16, -3e9]]]), np.array([[0.25, 0.75]])
    columns = density.hashed_columns(points, matrices, offsets, keys, 512)
    for i, r in np.ndindex(3, 2):
        expected = oracle.hashed_column(points[i].tolist(), [[matrices[0, 0, r]]], [offsets[0, r]], int(keys[r]), 512)
        assert columns[i, r] == expected


def test_smoothed_sums_equals_oracle() -> None:
    points, matrices = RNG.normal(size=(6, 5)), RNG.normal(size=(3, 5, 7))
    tables = RNG.integers(-20, 20, (2, 7, 8))
    directions = matrices.transpose(2, 0, 1).tolist()
    found = density.smoothed_sums(points, matrices, tables, 0.8)
    for i, c in np.ndindex(6, 2):
        expected = oracle.smoothed_sum(points[i].tolist(), directions, tables[c].tolist(), 0.8)
        assert found[i, c] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    # Without smoothing each point reads its own counter of each row.
    cells = density.read(tables[0], density.sign_columns(points, matrices))
    assert density.smoothed_sums(points, matrices, tables, 0.0)[:, 0] == pytest.approx(cells.mean(axis=1))


def test_portable_functions_equals_oracle() -> None:
    """Against mpmath: a few units in the last place. Nothing here calls the C library's functions."""
    for x in [*(10.0 ** RNG.uniform(-300, 300, 200)).tolist(), 1.0, 0.5, 5e-324]:
        assert portable.logarithm(x) == pytest.approx(float(mpmath.log(x)), rel=4e-16, abs=1e-17)
    for x in RNG.uniform(-700, 300, 200).tolist():
        assert portable.exponential(x) == pytest.approx(float(mpmath.exp(x)), rel=1e-15)
    for turns in [*RNG.uniform(0, 4, 200).tolist(), 0.0, 0.25, 0.5, 1.0, 3.5]:
        cosine, sine = portable.cosine_sine(turns)
        assert cosine == pytest.approx(float(mpmath.cospi(turns)), abs=3e-16)
        assert sine == pytest.approx(float(mpmath.sinpi(turns)), abs=3e-16)
    levels = np.concatenate([RNG.random(30), [1e-9, 1 - 1e-9]])
    for d in (1, 2, 3, 10):
        for level, length in zip(levels, portable.chi_quantiles(levels, d), strict=True):
            reached = mpmath.gammainc(d / 2, 0, float(length) ** 2 / 2, regularized=True)
            assert float(reached) == pytest.approx(level, rel=1e-12, abs=1e-14)


KERNELS: dict[str, kernels.Kernel] = {
    "euclidean 1": kernels.Euclidean(1, 0.5),
    "euclidean 2": kernels.Euclidean(2, (1.0, 2.5)),
    "euclidean 3": kernels.Euclidean(3, 1.0),
    "euclidean 7": kernels.Euclidean(7, 3.0),
    "euclidean squared": kernels.Euclidean(2, 1.0, power=2),
    "euclidean independent": kernels.Euclidean(2, 1.0, directions="independent"),
    "manhattan 2": kernels.Manhattan(2, 1.0),
    "manhattan 8": kernels.Manhattan(8, 4.0, power=2),
    "angular 2": kernels.Angular(2, 3),
    "angular 9": kernels.Angular(9, 4),
    "angular independent": kernels.Angular(4, 2, directions="independent"),
}


def digests() -> dict[str, list[str]]:
    """For each kernel the digest of its row functions and of the columns of a hundred points."""
    found = {}
    points = np.outer(np.arange(100) % 11 - 5, np.ones(9)) * 0.37 + np.arange(9) * 0.11
    for name, kernel in KERNELS.items():
        functions = row_functions(kernel, 30, 7)
        width = 1 << kernel.power if isinstance(kernel, kernels.Angular) else 64
        columns = functions.columns(points[:, : kernel.dim].copy(), width)
        arrays = np.concatenate([functions.matrices.ravel(), functions.offsets.ravel()])
        if isinstance(kernel, kernels.Angular):
            arrays = functions.matrices
        data = np.ascontiguousarray(arrays, arrays.dtype.newbyteorder("<"))
        found[name] = [sha256(part.tobytes()).hexdigest()[:32] for part in (data, columns.astype("<i4"))]
    return found


def test_every_machine_has_the_same_functions_equals_oracle() -> None:
    """The bits of projections and columns were written down once; they may never change."""
    assert digests() == json.loads(VECTORS.read_text())
