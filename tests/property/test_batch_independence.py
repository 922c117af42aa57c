"""What a record adds depends on that record alone: not on its batch, its place in it, or how the batch lies in memory.

A sum that is taken in another order, as a matrix product over a batch may, has other last bits. They matter where a
record lies on the edge of a cell: then one record more moves others too, and the sensitivity is no longer one record's.
So half of the records here lie on edges, as nearly as doubles allow.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files, kernels
from dpsketch._compiled import moment
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.density.functions import row_functions

ROWS, RECORDS, SEED = 16, 1000, 5
SIZES = (1, 2, 3, 8, 65, 999)
KERNELS: list[kernels.Kernel] = [
    kernels.Euclidean(1, 2.0),
    kernels.Euclidean(17, 2.0, directions="independent"),
    kernels.Euclidean(384, 4.0, power=2),
    kernels.Manhattan(64, 2.0),
    kernels.Angular(2, 3),
    kernels.Angular(384, 3),
]


def records(kernel: kernels.Kernel, seed: int = 3) -> np.ndarray:
    """Points of which every other one lies on the edge of a cell of some row."""
    points = np.random.default_rng(seed).normal(size=(RECORDS, kernel.dim))
    functions = row_functions(kernel, ROWS, SEED)
    angular = isinstance(kernel, kernels.Angular)
    width = 1.0 if angular else kernel.bandwidth
    for i in range(0, RECORDS, 2):
        direction = functions.matrices[0][:, i % ROWS]
        place = direction @ (points[i] / width) + (0.0 if angular else functions.offsets[0][i % ROWS])
        edge = 0.0 if angular else np.round(place)
        points[i] += width * direction * (edge - place) / (direction @ direction)
    return points


def sketch(kernel: kernels.Kernel, **more: object) -> DensitySketch:
    return DensitySketch(kernel=kernel, rows=ROWS, unit=dps.per_record(), seed=SEED, **more)


def table(*batches: object, kernel: kernels.Kernel, **more: object) -> np.ndarray:
    some = sketch(kernel, **more)
    for batch in batches:
        some.update(batch)
    return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def pieces(points: np.ndarray, size: int) -> list[np.ndarray]:
    return [points[start : start + size] for start in range(0, len(points), size)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_tables_do_not_depend_on_batches_order_or_memory(kernel: kernels.Kernel) -> None:
    points = records(kernel)
    whole = table(points, kernel=kernel)
    for size in (8, 65, 999):
        assert np.array_equal(table(*pieces(points, size), kernel=kernel), whole)
    assert np.array_equal(table(*pieces(points[:100], 1), points[100:], kernel=kernel), whole)
    wide = np.empty((RECORDS, 2 * kernel.dim))
    wide[:, ::2] = points
    arrow = pa.array(list(points))
    for same in (points[::-1], np.asfortranarray(points), wide[:, ::2], np.repeat(points, 2, axis=0)[::2], arrow):
        assert np.array_equal(table(same, kernel=kernel), whole)
    single = points.astype(np.float32)
    expected = table(single.astype(np.float64), kernel=kernel)
    for same in (single, np.asfortranarray(single)):
        assert np.array_equal(table(*pieces(same, 65), kernel=kernel), expected)


def test_a_matrix_product_over_the_batch_would_be_caught() -> None:
    """The same records, projected by BLAS, change cells with the size of the batch: the tests above have power."""
    kernel = kernels.Euclidean(384, 2.0)
    points, functions = records(kernel) / 2.0, row_functions(kernel, ROWS, SEED)

    def codes(size: int) -> np.ndarray:
        projected = [piece @ functions.matrices[0] for piece in pieces(points, size)]
        return np.floor(np.concatenate(projected) + functions.offsets[0])

    assert any(not np.array_equal(codes(size), codes(1)) for size in SIZES[1:])


def mapped(features: str, dim: int) -> DensitySketch:
    kernel: kernels.Kernel = kernels.Gaussian(dim, 2.0)
    more: dict[str, object] = {"rows": ROWS}
    match features:
        case "linear":
            kernel, more = kernels.Linear(dim), {}
        case "nystrom":
            more = {"landmarks": np.random.default_rng(1).normal(size=(ROWS, dim))}
        case "series":
            more = {"bounds": (-4, 4)}
        case "signs":
            kernel = kernels.Angular(dim, 1)
    return DensitySketch(kernel=kernel, unit=dps.per_record(), seed=SEED, features=features, **more)


@pytest.mark.parametrize(
    ("features", "dim"),
    [("fourier", 384), ("nystrom", 17), ("linear", 384), ("signs", 384), ("series", 1), ("series", 3)],
)
def test_a_record_has_the_same_features_in_every_batch(features: str, dim: int) -> None:
    """Half of the points are such that RACE's planes and cells pass through them; features are cut to whole steps."""
    points = records(kernels.Angular(dim, 1) if dim > 1 else kernels.Euclidean(1, 2.0))[:300]

    def counted(*batches: object) -> np.ndarray:
        some = mapped(features, dim)
        for batch in batches:
            some.update(batch)
        return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])

    whole = counted(points)
    assert np.any(whole != 0)
    for size in (1, 65, 299):
        assert np.array_equal(counted(*pieces(points, size)), whole)
    for same in (points[::-1], np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2], pa.array(list(points))):
        assert np.array_equal(counted(same), whole)


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_a_moment_key_has_the_same_variates_in_every_batch(p: float) -> None:
    """The others weigh nothing, so that the sums hold one key's variates, to the last bit."""
    secret = np.arange(8, dtype=np.uint32)
    prints = np.random.default_rng(3).integers(0, 2**64, size=300, dtype=np.uint64)

    def sums(size: int, place: int) -> np.ndarray:
        found, weights, keys = np.zeros(20), np.zeros(size), prints[:size].copy()
        keys[place], weights[place] = prints[-1], 3.0
        moment.project(found, secret, keys, weights, p)
        return found

    alone = sums(1, 0)
    assert np.all(alone != 0)
    for size, place in ((2, 0), (2, 1), (65, 64), (299, 150), (299, 298)):
        assert np.array_equal(sums(size, place), alone)


# Modules that only ever multiply what is in a release, a prediction or an accounting: no one's record moves there.
PUBLIC = {
    "laws/bounds.py",
    "laws/chosen.py",
    "laws/designs.py",
    "sketches/countsketch/messages.py",
    "sketches/countsketch/estimates.py",
    "sketches/density/class_spec.py",
    "sketches/density/intervals.py",
    "sketches/density/sketch.py",
    "sketches/heavy/predict.py",
    "sketches/histogram/predict.py",
    "sketches/ranges/levels.py",
    "sketches/table/decoded.py",
    "sketches/table/intervals.py",
}
# Functions of a module that reads records, which multiply nothing but noisy numbers.
PUBLIC_FUNCTIONS = {"laws/centred.py": {"error", "users_cut"}}
# Of whole numbers below 2⁵³, which doubles add up exactly in every order; tests of class sums and of passes hold that.
EXACT = {"sketches/density/class_sums.py", "sketches/density/class_spec.py"}
SENSITIVE = (
    "_compiled", "bounding", "laws", "local", "sketches", "sources", "spark", "hashing.py", "seeds.py", "kernels.py",
)  # fmt: skip
PRODUCTS = {"dot", "einsum", "inner", "matmul", "tensordot", "vdot", "multi_dot"}


def products(source: str, public: frozenset[str] | set[str] = frozenset()) -> list[int]:
    """Lines with a matrix product, whose order of summation is the library's and follows the batch."""

    def walked(node: ast.AST) -> list[int]:
        if isinstance(node, ast.FunctionDef) and node.name in public:
            return []
        found = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult)
        if isinstance(node, ast.Attribute):
            found = node.attr == "dot" or (node.attr in PRODUCTS and ast.unparse(node.value) in ("np", "np.linalg"))
        below = [line for child in ast.iter_child_nodes(node) for line in walked(child)]
        return [node.lineno, *below] if found else below  # type: ignore[attr-defined]

    return walked(ast.parse(source))


def test_no_matrix_product_is_taken_before_a_release() -> None:
    root = Path(dps.__file__).parent
    modules = [
        file
        for name in SENSITIVE
        for file in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    names = {str(file.relative_to(root)): file.read_text() for file in modules}
    assert len(names) > 100
    assert set(names) >= PUBLIC | EXACT
    found = {name for name, source in names.items() if products(source, PUBLIC_FUNCTIONS.get(name, frozenset()))}
    assert found <= PUBLIC | EXACT
    assert products("a = b @ c") == [1] == products("np.dot(b, c)") == products("def f(): b @ c", {"g"})
    assert products("def f(): b @ c", {"f"}) == []
