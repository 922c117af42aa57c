"""DensitySketch through its public names: what goes in, is refused and comes out; its kernels."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import kernels
from dpsketch.errors import InvalidInput
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.density.functions import row_functions

PLANE = kernels.Euclidean(2, 2.0)
POINTS = [[0.5, 1.0], [0.7, 1.2], [5.0, -3.0], [0.0, 0.0]]


def sketch(**changes: object) -> DensitySketch:
    arguments: dict[str, object] = {"kernel": PLANE, "rows": 20, "unit": dps.per_record(), "seed": 7, **changes}
    return DensitySketch(**arguments)


def content(some: DensitySketch) -> np.ndarray:
    return np.array(some._exact()["counters"])


def filled(points: object = POINTS, **changes: object) -> DensitySketch:
    some = sketch(**changes)
    some.update(points)
    return some


def test_bad_points_are_refused_and_change_nothing() -> None:
    some = filled()
    before = content(some)
    frames = [pd.DataFrame({"x": ["secret"], "y": [1]}), pa.table({"x": [True], "y": [False]})]
    for points in ("ab", [[1.0, 2.0], [1.0]], np.array([[1.0, 2.0, 3.0]]), pa.array([1.0, 2.0]), *frames):
        with pytest.raises(InvalidInput) as caught:
            some.update(points)
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
    assert np.array_equal(content(some), before)


def test_bad_specs_are_refused() -> None:
    wrong: list[dict[str, object]] = [{"rows": 1}, {"rows": 2.0}, {"width": 1}, {"rows": 2**15, "width": 2**15}]
    wrong += [{"bounds": bounds} for bounds in ((1, 0), [(0, 1)], [(0, 1), (0, float("inf"))])]
    wrong += [{"kernel": kernels.Angular(2, 3), "width": 9}, {"unit": dps.per_record(max_weight=2)}]
    for changes in wrong:
        with pytest.raises(InvalidInput):
            sketch(**changes)
    for kernel in ({"dim": 0}, {"bandwidth": 0}, {"bandwidth": (1, 2, 3)}, {"power": 17}):
        with pytest.raises(InvalidInput):
            kernels.named("euclidean", **{"dim": 2, "bandwidth": 1.0, **kernel})


def test_points_are_moved_into_the_bounds() -> None:
    bounded = filled([[100.0, -100.0]], bounds=[(-1, 1), (-2, 3)])
    assert np.array_equal(content(bounded), content(filled([[1.0, -2.0]], width=bounded.spec.width)))


def test_far_points_neither_fail_nor_wrap() -> None:
    for kernel in (PLANE, kernels.Manhattan(2, 1.0), kernels.Angular(2, 3)):
        table = content(filled([[1e308, -1e308], [-1e308, 1e308], [1e-308, 0.0]], kernel=kernel))
        assert np.array_equal(table.sum(axis=1), np.full(20, 3))


def test_queries_are_checked() -> None:
    private = filled().release(epsilon=1, delta=1e-6)
    with pytest.raises(InvalidInput, match="estimator"):
        private.estimate(POINTS, estimator="median")
    with pytest.raises(InvalidInput, match="missing coordinate"):
        private.estimate([[1.0, None]])
    with pytest.raises(InvalidInput, match="positive"):
        private.density(POINTS, records=0)
    with pytest.raises(InvalidInput, match="bounds"):
        private.grid()


def test_sums_densities_and_scores_agree() -> None:
    some = filled(POINTS * 5000)
    private = some.release(epsilon=100, delta=1e-6)
    sums, shares = private.estimate(POINTS), private.density(POINTS)
    assert np.all((sums.low < sums.value) & (sums.value < sums.high))
    assert shares.value == pytest.approx(sums.value / private.count().value[0])
    assert private.density(POINTS, records=20_000).value == pytest.approx(sums.value / 20_000)
    assert private.anomaly_score(POINTS) == pytest.approx(1 - shares.value)
    assert private.anomaly_score([[300.0, 300.0]])[0] > private.anomaly_score(POINTS).max()
    count = private.count(confidence=1 - 1e-9)
    assert count.low[0] < 20_000 < count.high[0]
    exact = PLANE.similarity(POINTS, POINTS).sum(axis=1) * 5000
    assert sums.value == pytest.approx(exact, rel=0.2)
    assert private.estimate(POINTS, estimator="median_of_means").value == pytest.approx(exact, rel=0.4)


def test_curves_and_grids_are_densities_at_their_places() -> None:
    line = filled([1.0, 2.0] * 500, kernel=kernels.Euclidean(1, 1.0), bounds=(0, 3), columns=["age"])
    private = line.release(epsilon=1, delta=1e-6)
    curve = private.curve(size=7)
    assert curve.x.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert np.array_equal(curve.value, private.density(curve.x).value)
    assert (curve.name, curve.confidence) == ("age", 0.95)
    plane = filled(POINTS * 500).release(epsilon=1, delta=1e-6)
    grid = plane.grid([(-2, 8), (-4, 2)], size=(5, 3))
    assert grid.x.tolist() == [-1, 1, 3, 5, 7]
    assert grid.y.tolist() == [-3, -1, 1]
    assert grid.value[2, 0] == plane.density([[-1.0, 1.0]]).value[0]
    assert np.all(grid.low < grid.high)


VECTORS = Path(__file__).parents[1] / "vectors" / "density.json"
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


def digests(kernel: kernels.Kernel) -> list[str]:
    """The digests of a kernel's row functions and of the columns of a hundred points."""
    points = np.outer(np.arange(100) % 11 - 5, np.ones(9)) * 0.37 + np.arange(9) * 0.11
    functions, angular = row_functions(kernel, 30, 7), isinstance(kernel, kernels.Angular)
    columns = functions.columns(points[:, : kernel.dim].copy(), 1 << kernel.power if angular else 64)
    offsets = np.zeros(0) if angular else functions.offsets.ravel()
    data = np.concatenate([functions.matrices.ravel(), offsets]).astype("<f8")
    return [sha256(part.tobytes()).hexdigest()[:32] for part in (data, columns.astype("<i4"))]


def test_every_machine_has_the_same_functions() -> None:
    """The bits of projections and columns were written down once; they may never change."""
    assert {name: digests(kernel) for name, kernel in KERNELS.items()} == json.loads(VECTORS.read_text())
