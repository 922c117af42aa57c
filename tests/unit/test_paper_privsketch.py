"""What only the reproduction of the PrivSketch paper uses, against slow and obvious versions."""

from __future__ import annotations

import importlib
import lzma
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dpsketch import local
from dpsketch.reproduce import find_papers

PACKAGE = "privsketch_paper_under_test"
ROWS, WIDTH = 2, 8
CERTAIN = 1e4  # an ε at which no bit is flipped


@pytest.fixture(scope="module")
def paper() -> Iterator[ModuleType]:
    """The paper's folder as a package of its own name, so that a reproduction in the same process is not disturbed."""
    package: Any = ModuleType(PACKAGE)
    package.__path__ = [str(find_papers() / "privsketch")]
    sys.modules[PACKAGE] = package
    for name in ("data", "large_budgets", "experiments"):
        setattr(package, name, importlib.import_module(f"{PACKAGE}.{name}"))
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def people(paper: Any) -> Any:
    """400 people with three to six of thirty keys."""
    rng = np.random.default_rng(4)
    return paper.data.zipf_sets("small", rng.integers(3, 7, 400), 30, rng)


@pytest.fixture(scope="module")
def sketches(paper: Any, people: Any) -> Any:
    return paper.large_budgets.Sketches.of(people, ROWS, WIDTH, np.random.default_rng(5))


def held_by(people: Any) -> list[set[int]]:
    return [set(people.items[a:b].tolist()) for a, b in pairwise(people.offsets)]


def slow_occupied(people: Any, columns: np.ndarray, i: int, k: int, cell: int) -> bool:
    return any(columns[k, x] == cell for x in held_by(people)[i])


def test_sets_follow_the_zipf_law_of_drawing_until_distinct(paper: Any) -> None:
    """Against drawing one key after the other: 30 shares of 5,000 people, 6.5 standard errors, 30 · 8e-11 in all.

    Keys drawn evenly are far outside.
    """
    users, rng = 5_000, np.random.default_rng(6)
    made = paper.data.zipf_sets("drawn", np.full(users, 4), 30, np.random.default_rng(7))
    law = 1 / np.arange(1, 31)
    slow, even = np.zeros(30), np.zeros(30)
    for _ in range(users):
        one: set[int] = set()
        while len(one) < 4:
            one.add(int(rng.choice(30, p=law / law.sum())))
        slow[list(one)] += 1 / users
        even[rng.choice(30, 4, replace=False)] += 1 / users
    error = np.sqrt(2 * slow * (1 - slow) / users)
    assert np.all(np.abs(made.shares - slow) < 6.5 * error)
    assert not np.all(np.abs(made.shares - even) < 6.5 * error)


def test_read_sets(paper: Any, tmp_path: Path) -> None:
    path = tmp_path / "sets.dat.xz"
    path.write_bytes(lzma.compress(b"3 1 3\n7\n1 9\n"))
    sets = paper.data.read_sets("read", path)
    assert held_by(sets) == [{1, 3}, {7}, {1, 9}]
    assert sets.keys.tolist() == [1, 3, 7, 9]
    assert sets.shares.tolist() == [2 / 3, 1 / 3, 1 / 3, 1 / 3]
    assert held_by(paper.data.read_sets("read", path, 2)) == [{1, 3}, {7}]


def test_sketches_and_their_minimum(people: Any, sketches: Any) -> None:
    keys = np.array([0, 4, 29])
    slow = [
        sum(
            all(slow_occupied(people, sketches.columns, i, k, sketches.columns[k, x]) for k in range(ROWS))
            for i in range(400)
        )
        for x in keys
    ]
    assert sketches.minimum(keys).tolist() == slow


def test_without_noise_the_estimates_are_the_sketches(paper: Any, people: Any, sketches: Any) -> None:
    """Multi-PCMS from everyone's chosen row, counted slowly; PrivSketch without sampling is the minimum itself."""
    keys = np.arange(30)
    exact = paper.large_budgets.privsketch_unsampled(sketches, keys, CERTAIN, np.random.default_rng(1))
    assert exact == pytest.approx(sketches.minimum(keys) / 400, abs=1e-12)
    mean, least = paper.large_budgets.multi_pcms(sketches, keys, CERTAIN, np.random.default_rng(9))
    chosen = np.random.default_rng(9).integers(0, ROWS, 400)
    ones = np.zeros((ROWS, WIDTH))
    for i in range(400):
        for cell in range(WIDTH):
            ones[chosen[i], cell] += slow_occupied(people, sketches.columns, i, chosen[i], cell)
    overall = ones.sum() / (400 * WIDTH)
    for x in keys:
        own = [ones[k, sketches.columns[k, x]] for k in range(ROWS)]
        assert mean[x] == pytest.approx((sum(own) / 400 - overall) / (1 - overall))
        assert least[x] == pytest.approx(min(own[k] / np.sum(chosen == k) for k in range(ROWS)))


@pytest.mark.statistical
@pytest.mark.parametrize("law", ["sampled", "unsampled"])
def test_noise_is_that_of_the_librarys_protocol(paper: Any, sketches: Any, law: str) -> None:
    """Mean and variance of 3,000 estimates of 30 keys, drawn independently, against the library's prediction.

    The mean of all lies within six standard errors (2e-9). The variances' ratio, a mean over 9·10⁴ nearly normal draws,
    varies by 0.5%: 4% is eight times that (1e-15). Noise for ε·1.1 is 15% and more off where noise is all there is.
    """
    keys, users = np.arange(30), 400
    draw = getattr(paper.large_budgets, f"privsketch_{law}")
    protocol = local.PrivSketchAsPublished(1.0, rows=ROWS, width=WIDTH, variant=law)
    shares = sketches.minimum(keys) / users
    predicted = np.array([protocol.variance(share, users) for share in shares])
    rng = np.random.default_rng(10)

    def ratio(epsilon: float) -> tuple[float, float]:
        values = np.array([draw(sketches, keys, epsilon, rng) for _ in range(3000)])
        bias = float(np.mean(values - shares) / np.sqrt(predicted.mean() / values.size))
        return bias, float(np.mean(values.var(axis=0) / predicted))

    bias, spread = ratio(1.0)
    assert abs(bias) < 6
    assert abs(spread - 1) < 0.04
    assert abs(ratio(1.1)[1] - 1) > 0.04
