"""The shape of a column's values: which bins stand out, and what bounds and slots follow from them."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.laws.bounds import BINS, EDGES, Shape
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian

GAUSSIAN, LAPLACE = RoundedGaussian(30.0), DiscreteLaplace(0.05, 1)


def shape(noise: Noise, **deviations: float) -> Shape:
    """Return a shape with some bins at some numbers of deviations; ``p3`` is the bin of 3, ``m3`` that of −3."""
    bins = np.zeros(BINS)
    for name, each in deviations.items():
        value = float(name[1:].replace("_", ".")) * (1 if name[0] == "p" else -1)
        bins[np.searchsorted(EDGES, value, side="right")] = each * np.sqrt(noise.variance)
    return Shape(np.ceil(bins).astype(np.int64), noise)


def chosen(found: Shape, *, mean: bool = False) -> tuple[float, float]:
    """Return the bounds that are chosen for a table of 50 rows with little noise."""
    return found.choose(rows=50, spread=0.01, values=1e4, column=100.0, users=100.0, mean=mean)[:2]


@pytest.mark.parametrize(("noise", "weak", "strong"), [(GAUSSIAN, 5.0, 5.6), (LAPLACE, 10.0, 13.0)])
def test_a_bin_far_beyond_the_others_needs_more_than_chance_gives(noise: Noise, weak: float, strong: float) -> None:
    """One of 300 shapes has a bin of noise at 4.25σ: bounds of a billion would follow from it."""
    assert chosen(shape(noise, p3=40, p1000000=weak))[1] <= 4
    assert chosen(shape(noise, p3=40, p1000000=strong))[1] > 1e5
    assert chosen(shape(noise, p3=40, m1000000=weak))[0] == 0
    assert chosen(shape(noise, p3=40, m1000000=strong))[0] < -1e5
    # Bins on the way lead there, as tails have them.
    assert chosen(shape(noise, p3=40, p30=weak, p300=weak))[1] > 250
    assert shape(noise, p3=3).seen is None


@pytest.mark.parametrize(("name", "value"), [("p2013", 2013.0), ("m5", -5.0)])
@pytest.mark.parametrize("mean", [False, True])
def test_many_equal_values_are_not_cut(name: str, value: float, mean: bool) -> None:
    """A bound inside the bin of all values cut 13% of 300,000 values of 2013, and said that it cut nothing."""
    found = shape(GAUSSIAN, **{name: 400})
    low, high, cut = found.choose(rows=3, spread=0.5, values=3e5, column=1e3, users=1e3, mean=mean)
    assert low <= value <= high
    assert cut == 0
    inside = found.cut(min(0.0, 0.9 * value), max(0.0, 0.9 * value))
    assert inside is not None
    assert inside > 0.05


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_bounds_of_mere_noise_around_values_stay_near_them(noise: Noise) -> None:
    """Of 2,000 shapes with values near 3 and noise elsewhere; about 6 have a bin of noise that stands out."""
    rng = np.random.default_rng(1)
    deviation, far = np.sqrt(noise.variance), 0
    for _ in range(2000):
        drawn = rng.normal(size=BINS) if noise is GAUSSIAN else rng.laplace(size=BINS) / np.sqrt(2)
        bins = np.rint(drawn * deviation).astype(np.int64)
        bins[np.searchsorted(EDGES, 3.0, side="right")] += int(40 * deviation)
        seen = Shape(bins, noise).seen
        assert seen is not None
        far += int(np.flatnonzero(seen)[-1] > np.searchsorted(EDGES, 100.0))
    assert far == 0


def test_bounds_hold_zero_unless_that_costs() -> None:
    """Sums of numbers from 1,000 to 16,000 get a lower bound of 0; a mean of temperatures in kelvin does not.

    The noise of the head count moves a sum by the middle of the bounds, and a mean by its distance from the middle.
    """
    assert chosen(shape(GAUSSIAN, p1100=50, p4200=50, p16400=50))[0] == 0
    assert chosen(shape(GAUSSIAN, p280=100), mean=True)[0] > 200
    assert chosen(shape(GAUSSIAN, p280=100))[0] == 0


def test_slots_of_a_grid_are_shared_alike_by_its_values() -> None:
    """−4 and −3 lie in one bin of half an octave, and have the same number of slots."""
    found = shape(GAUSSIAN, m4=100, m2=100, p0=100, p1=100, p4=100)
    edges, firsts = found.quantile_cells(1000, 1.0, None)
    widths = dict(zip([-4.0, *edges.tolist()], np.diff(firsts).tolist(), strict=True))
    assert set(widths) >= {-4.0, -3.0, -2.0, 0.0, 1.0, 4.0, 5.0}
    assert widths[-4.0] == pytest.approx(100, abs=2) == widths[-3.0]
    assert widths[-2.0] == pytest.approx(200, abs=2) == widths[0.0] == widths[1.0]
    assert widths[4.0] == pytest.approx(100, abs=2) == widths[5.0]
