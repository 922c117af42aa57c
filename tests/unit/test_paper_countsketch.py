"""What the reproduction of the CountSketch paper adds to the library: reading baskets, drawing, rival mechanisms."""

from __future__ import annotations

import gzip
import lzma
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.reproduce import _script, find_papers

TEXT = "3 1 2\n\n7\n 1 3 \n9 8 7 6 5\n"
BASKETS = [[3, 1, 2], [7], [1, 3], [9, 8, 7, 6, 5]]


@pytest.fixture(scope="module")
def baskets() -> Any:
    return _module("baskets")


@pytest.fixture(scope="module")
def drawing() -> Any:
    return _module("drawing")


@pytest.fixture(scope="module")
def mechanisms() -> Any:
    return _module("mechanisms")


def _module(name: str) -> Any:
    return import_module(f"{_script(find_papers() / 'countsketch').__package__}.{name}")


def _lists(found: Any) -> list[list[int]]:
    """Return baskets as lists, the slow way."""
    lists: dict[int, list[int]] = {}
    for user, item in zip(found.users.tolist(), found.items.tolist(), strict=True):
        lists.setdefault(user, []).append(item)
    assert list(lists) == list(range(len(lists)))
    return list(lists.values())


@pytest.mark.parametrize(("ending", "opener"), [(".dat", open), (".dat.xz", lzma.open), (".dat.gz", gzip.open)])
def test_baskets_are_read_from_plain_and_compressed_files(
    baskets: Any, tmp_path: Path, ending: str, opener: Any
) -> None:
    path = tmp_path / f"sets{ending}"
    with opener(path, "wt") as file:
        file.write(TEXT)
    assert _lists(baskets.read_baskets(path)) == BASKETS


def test_baskets_are_cut_repeated_and_counted(baskets: Any, tmp_path: Path) -> None:
    path = tmp_path / "sets.dat"
    path.write_text(TEXT)
    found = baskets.read_baskets(path)
    assert _lists(found.first(2)) == [basket[:2] for basket in BASKETS]
    assert _lists(found.repeated(3)) == 3 * BASKETS
    items, counts = found.counted()
    flat = [item for basket in BASKETS for item in basket]
    assert dict(zip(items.tolist(), counts.tolist(), strict=True)) == {item: flat.count(item) for item in flat}


def test_a_market_has_every_rival_at_one_budget(mechanisms: Any, baskets: Any) -> None:
    """Two thousand baskets of one and the same two items; asked for items that nobody has, errors are noise.

    The median of five rows has 1.1976 times the deviation σ that each mechanism stands for. Four tables of 1024 columns
    show it to 1.3% or better, so a right one is refused, 10% away, with a probability below 1e-8. The three deviations
    are more than 20% apart, so any of them in another's place is refused.
    """
    data = baskets.Baskets(np.repeat(np.arange(2000), 2), np.tile([4, 9], 2000))
    absent = np.arange(10, 4010)
    with seeded_noise_for_tests_only(6):
        errors, clipped = mechanisms.market(data, absent, np.zeros(4000, np.int64), 1024, 2, 4)
    assert clipped == 0
    standard, published, worst, median, robust, joint = errors.values()
    # A wrong answer without noise needs three rows in which an absent item meets one of the two.
    assert np.count_nonzero(standard) <= 2
    clip = math.sqrt(10 / 5)  # c² rounded down, a row
    wanted = [2 * mechanisms.PUBLISHED, 2 * 4.2247, clip * 4.2247]
    for found, sigma in zip((published, worst, median), wanted, strict=True):
        assert found.std() == pytest.approx(1.1976 * sigma, rel=0.1)
        assert all(abs(found.std() / (1.1976 * other) - 1) > 0.1 for other in wanted if other != sigma)
    assert robust.std() < median.std()
    assert joint.std() < median.std()


def test_a_crafted_user_collides_as_much_as_greedy_search_can(mechanisms: Any) -> None:
    """Compare with trying every key at every step; ties may be broken differently, so norms are compared."""
    keys, rows, width, most = np.arange(120), 3, 16, 6
    chosen = mechanisms.crafted_user(rows, width, keys, most)
    assert len(set(chosen.tolist())) == most

    def squared(some: list[int]) -> float:
        return float(np.square(mechanisms.release(rows, width, mechanisms.NOISELESS, some).table).sum())

    for size in range(1, most):
        before = chosen[:size].tolist()
        best = max(squared([*before, key]) for key in keys.tolist() if key not in before)
        assert squared(chosen[: size + 1].tolist()) == best
    assert squared(chosen.tolist()) > rows * most
    assert squared(chosen.tolist()) <= rows * most**2
    clipped = dps.CountSketch(rows=rows, width=width, unit=dps.per_user(most))
    clipped.update(chosen, users=np.zeros(most, np.int64))
    assert np.square(clipped.release(rho=1e9).table).sum() <= rows * most * (1 + 3 * math.sqrt(2 / (rows * width)))
