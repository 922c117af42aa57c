"""Kernels equal their slow oracles, and no machine code of other sources is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import dpsketch
from dpsketch._compiled import countsketch
from oracles import hashing as oracle

# Keys, rows, width: no key, one, a few, and more than fit into a block.
SHAPES = [(0, 3, 7), (7, 1, 2), (countsketch.READ_BLOCK + 3, 5, 64), (countsketch.PIECE + 3, 3, 64)]


def random_words(size: int, seed: int = 1) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, size, np.uint64)


@pytest.mark.parametrize(
    ("size", "rows", "width"), [*SHAPES, (countsketch.PIECE + 5, 3, 40_000), (countsketch.ADD_BLOCK + 5, 1, 7)]
)
def test_adding_equals_oracle(size: int, rows: int, width: int) -> None:
    fingerprints, row_keys = random_words(size), random_words(rows, seed=2)
    weights = np.random.default_rng(4).integers(-(2**40), 2**40, size)
    start = np.random.default_rng(5).integers(-9, 9, (rows, width))
    for given in (None, weights):
        table, expected = start.copy(), start.tolist()
        if given is None:
            countsketch.add_ones(table, fingerprints, row_keys)
        else:
            countsketch.add_weighted(table, fingerprints, row_keys, given)
        oracle.add(expected, fingerprints.tolist(), row_keys.tolist(), [1] * size if given is None else given.tolist())
        assert table.tolist() == expected


@pytest.mark.parametrize(("size", "rows", "width"), SHAPES)
def test_reading_equals_oracle(size: int, rows: int, width: int) -> None:
    fingerprints, row_keys = random_words(size), random_words(rows, seed=2)
    table = np.random.default_rng(6).integers(-(2**50), 2**50, (rows, width))
    expected = oracle.row_values(table.tolist(), fingerprints.tolist(), row_keys.tolist())

    values = countsketch.row_values(table, fingerprints, row_keys)
    assert values.tolist() == expected
    np.testing.assert_array_equal(countsketch.row_values(table / 4, fingerprints, row_keys), values / 4)

    buckets, signs = countsketch.cells(fingerprints, row_keys, width)
    found = [[oracle.cell(f, key, width) for key in row_keys.tolist()] for f in fingerprints.tolist()]
    assert buckets.tolist() == [[bucket for bucket, _ in line] for line in found]
    assert signs.tolist() == [[sign for _, sign in line] for line in found]


HASHED = """
import numpy as np
from dpsketch._compiled.heavy import mark
bitmap = np.zeros(64, np.uint64)
mark(bitmap, np.arange(1, 9, dtype=np.uint64), np.zeros(2, np.uint64))
print(*bitmap)
"""


def hashed(sources: Path, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", HASHED],
        env=os.environ | {"PYTHONPATH": str(sources), "NUMBA_CACHE_DIR": ""} | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout


def test_a_change_in_another_module_is_noticed(tmp_path: Path) -> None:
    """Numba itself would run the machine code of before: the file of the kernel is as it was."""
    shutil.copytree(Path(dpsketch.__file__).parent, tmp_path / "dpsketch", ignore=shutil.ignore_patterns("__pycache__"))
    before = hashed(tmp_path)
    assert list(tmp_path.rglob("heavy.mark*.nbc"))
    assert hashed(tmp_path) == before
    callee = tmp_path / "dpsketch" / "_compiled" / "hashing.py"
    source = callee.read_text()
    callee.write_text(source.replace("M1 = np.uint64(0xBF58476D1CE4E5B9)", "M1 = np.uint64(0xBF58476D1CE4E5B7)"))
    assert callee.read_text() != source
    assert hashed(tmp_path) != before
