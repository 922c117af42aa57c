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
from dpsketch.reproduce import Expected, Run, _script, find_papers

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


@pytest.mark.parametrize("heavy", [False, True])
def test_a_density_is_that_of_scotts_rule(drawing: Any, heavy: bool) -> None:
    from scipy.stats import gaussian_kde

    draw = np.random.default_rng(1)
    sample = draw.standard_t(3, 4000) * 100 if heavy else draw.normal(size=4000)
    points = np.linspace(-250, 250, 81) if heavy else np.linspace(-3, 3, 81)
    found = drawing.density(sample, points)
    exact = gaussian_kde(sample)(points)
    assert np.abs(found - exact).max() < 1e-3 * exact.max()
    wider = gaussian_kde(sample, bw_method=1.1 * len(sample) ** -0.2)(points)
    assert np.abs(found - wider).max() > 1e-3 * exact.max()


@pytest.mark.parametrize("kind", ["errors", "sizes"])
def test_a_cumulative_curve_counts_what_lies_up_to_each_point(drawing: Any, kind: str) -> None:
    sample = np.array([-2.0, -1.0, 0.5, 0.5, 3.0])
    points = np.array([0.0, 0.5, 1.0, 2.0, 3.0])
    errors = np.abs(sample) if kind == "sizes" else sample
    slow = [sum(error <= point for error in errors) / len(errors) for point in points]
    assert drawing._curve(sample, points, kind).tolist() == slow


def test_releases_have_the_papers_noise(mechanisms: Any) -> None:
    """The noise is σ·√k a counter; the standard sketch has none at all: each row holds a lone key's count, signed."""
    assert mechanisms.release(5, 8, 30 * mechanisms.PUBLISHED, [1]).noise_scale == pytest.approx(352.6, abs=0.05)
    table = mechanisms.release(5, 8, mechanisms.NOISELESS, [1], [12]).table
    assert np.abs(table).sum(axis=1).tolist() == [12] * 5
    assert np.abs(table).max(axis=1).tolist() == [12] * 5


def test_comparing_reads_the_same_releases_in_every_way(mechanisms: Any) -> None:
    keys, truth = np.arange(50), np.arange(50) * 10
    with seeded_noise_for_tests_only(5):
        found = mechanisms.compare((1, 3), 64, 2.0, keys, truth, 2, joint=(3,))
    with seeded_noise_for_tests_only(5):
        made = [mechanisms.release(rows, 64, 2.0, keys, truth, seed=seed) for rows in (1, 3) for seed in range(2)]
    for name in ("median", "mean", "robust"):
        slow = [one.estimate(keys, estimator=name).value - truth for one in made]
        assert np.array_equal(found[name][1], np.concatenate(slow[:2]))
        assert np.array_equal(found[name][3], np.concatenate(slow[2:]))
    assert list(found["joint"]) == [3]
    assert np.array_equal(found["joint"][3], np.concatenate([one.decode(keys).value - truth for one in made[2:]]))


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


def test_the_first_file_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.dat").write_text("1\n")
    run = Run(Expected("", "", "", {}), tmp_path, quick=True)
    monkeypatch.setenv("DPSKETCH_DATA", str(tmp_path))
    assert run.data("a.dat", "b.dat") == tmp_path / "b.dat"
    assert run.left_out == []
    assert run.data("c.dat", "d.dat") is None
    assert "c.dat or d.dat" in run.left_out[0]
