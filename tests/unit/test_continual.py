"""Continual counts: nodes and sums against an oracle, the whole year's cost in exact arithmetic, restarts, refusals."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, files, noise
from dpsketch.errors import CounterOverflow, InvalidInput, ReleaseRefused, SensitiveData
from dpsketch.privacy import GaussianCost
from dpsketch.sketches.countsketch import ContinualCountSketch
from dpsketch.sketches.countsketch.continual import blocks, tree_sensitivity

# So large a budget draws no noise: what is published is exact.
BARE = {"epsilon": 1e6, "delta": 1e-6}


def law(sketch: ContinualCountSketch) -> noise.Noise:
    """The noise of a node."""
    return sketch._permit.calibration.law("the nodes")


def make(days: int = 9, **more: object) -> ContinualCountSketch:
    arguments = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int", "seed": 5} | BARE | more
    return ContinualCountSketch(days=days, **arguments)  # type: ignore[arg-type]


def exact(keys: list[int]) -> np.ndarray:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record(), key_type="int", seed=5)
    sketch.update(keys)
    return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["table"])


def test_every_run_of_days_is_the_sum_of_its_days() -> None:
    rng = np.random.default_rng(1)
    streams = [rng.integers(0, 50, rng.integers(0, 30)).tolist() for _ in range(9)]
    sketch = make()
    for day, stream in enumerate(streams, start=1):
        sketch.update(stream[:3])
        sketch.update(stream[3:])
        total = sketch.publish_day()
        np.testing.assert_array_equal(total.table, exact([key for stream in streams[:day] for key in stream]))
        assert len(total.noise) == day.bit_count()
    for first in range(1, 10):
        for last in range(first, 10):
            np.testing.assert_array_equal(
                sketch.between(first, last).table,
                exact([key for stream in streams[first - 1 : last] for key in stream]),
            )


@pytest.mark.parametrize("days", [1, 2, 3, 7, 8, 365])
def test_blocks_tile_every_run_with_few_nodes_that_are_published(days: int) -> None:
    step = max(1, days // 20)
    for first in range(0, days, step):
        for last in range(first + 1, days + 1, step):
            chosen = list(blocks(first, last))
            covered = [day for height, i in chosen for day in range(i << height, (i + 1) << height)]
            assert covered == list(range(first, last))
            assert len(chosen) <= max(1, 2 * (last - first).bit_length() - 1)
            assert all(height < days.bit_length() for height, _ in chosen)


@pytest.mark.parametrize("days", [1, 2, 3, 4, 7, 8, 100, 365, 366])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_year_costs_what_is_charged_in_exact_arithmetic(days: int, neighbours: str) -> None:
    """Σ over the nodes of a record's day of Δ²/σ² is at most μ², for the worst day; with one node fewer it is not."""
    sketch = make(days, unit=dps.per_record(max_weight=2, neighbours=neighbours), epsilon=1.0, delta=1e-6)  # type: ignore[arg-type]
    (cost,) = sketch.guarantee.costs
    assert cost == GaussianCost(accounting.gaussian_mu(1.0, 1e-6))
    sigma = Fraction(law(sketch).sigma)
    # Which nodes is a day ever published in? Count them from what publication does, not from the formula.
    held = [0] * days
    for height in range(days.bit_length() + 1):
        for index in range(days >> height):
            for day in range(index << height, (index + 1) << height):
                held[day] += 1
    times = 2 if neighbours == "replace" else 1
    for nodes in set(held):
        spent = nodes * (times * 2) ** 2 * 3 / sigma**2
        assert spent <= Fraction(cost.mu) ** 2
    assert max(held) * (times * 2) ** 2 * 3 / sigma**2 > Fraction(cost.mu) ** 2 * Fraction(999_999, 1_000_000)
    assert tree_sensitivity(sketch.spec, days).l1 == max(held) * times * 2 * 3


def test_noise_law_of_totals_and_the_log_of_the_days() -> None:
    """The variance of a published counter is (number of nodes) × (a node's), day by day.

    Each of 12 days: 3,000 counters, whose mean square lies within 7 standard errors (3e-12); twin: one node more or
    fewer lies outside.
    """
    with noise.seeded_noise_for_tests_only(4):
        sketch = make(1000, rows=3, width=1000, epsilon=1.0, delta=1e-6)
        node = law(sketch).variance
        published = [sketch.publish_day() for _ in range(300)]
    for day in (1, 2, 3, 4, 7, 8, 15, 16, 31, 127, 255, 300):
        seen = float(np.mean(published[day - 1].table.astype(float) ** 2))
        nodes = day.bit_count()
        assert published[day - 1].noise_scale == pytest.approx(math.sqrt(nodes * node))
        # The counters of one table are independent; 7 errors of a mean of squared normals.
        reach = 7 * nodes * node * math.sqrt(2 / 3000)
        assert abs(seen - nodes * node) < reach
        if nodes <= 4:
            assert abs(seen - (nodes + 1) * node) > reach
            assert abs(seen - (nodes - 1) * node) > reach
    worst = max(len(release.noise) for release in published)
    assert worst == 8 == (255).bit_length()


def test_error_of_a_year_beats_a_release_a_day() -> None:
    """At 365 days a total has at most 8 nodes of noise for 9: 72 units of variance, where fresh releases need 365."""
    sketch = make(365, epsilon=1.0, delta=1e-6)
    once = dps.CountSketch(rows=3, width=16, unit=dps.per_record()).release(epsilon=1.0, delta=1e-6)
    assert law(sketch).variance == pytest.approx(9 * once.noise[0].variance, rel=5e-3)
    assert max(day.bit_count() for day in range(1, 366)) * 9 == 72


def test_restart_from_sensitive_bytes_goes_on_where_it_was() -> None:
    rng = np.random.default_rng(2)
    streams = [rng.integers(0, 50, 20).tolist() for _ in range(9)]
    sketch = make()
    for day, stream in enumerate(streams, start=1):
        sketch.update(stream)
        sketch = ContinualCountSketch.from_sensitive_bytes(sketch.to_sensitive_bytes())
        total = sketch.publish_day()
        sketch = ContinualCountSketch.from_sensitive_bytes(sketch.to_sensitive_bytes())
        np.testing.assert_array_equal(total.table, exact([key for stream in streams[:day] for key in stream]))
        np.testing.assert_array_equal(sketch.total().table, total.table)
        assert sketch.guarantee == total.guarantee
    assert sketch.days_published == 9
    with pytest.raises(ReleaseRefused, match="all 9 days"):
        sketch.publish_day()


def test_a_published_node_is_never_drawn_again() -> None:
    sketch = make(8, epsilon=1.0, delta=1e-6)
    first = sketch.day([1, 2])
    kept = first.table.copy()
    for _ in range(5):
        sketch.day([3])
    np.testing.assert_array_equal(sketch.between(1, 1).table, kept)
    assert not first.table.flags.writeable


def test_the_ledger_is_charged_once_at_the_start(tmp_path: object) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("web", epsilon=1.0, delta=1e-6, unit=dps.per_record())
    sketch = make(30, epsilon=1.0, delta=1e-6, ledger=ledger, dataset="web")
    for _ in range(30):
        release = sketch.day([1])
    assert release.charge is not None
    assert "30 days" in str(release.guarantee)
    with pytest.raises(dps.DpsketchError):
        make(30, epsilon=1.0, delta=1e-6, ledger=ledger, dataset="web")


def test_refusals() -> None:
    sketch = make(2)
    with pytest.raises(ReleaseRefused, match="no day"):
        sketch.total()
    with pytest.raises(InvalidInput, match="protects records"):
        make(unit=dps.per_user(max_keys=2))
    with pytest.raises(InvalidInput, match="days"):
        make(0)
    with pytest.raises(CounterOverflow):
        sketch.update([1, 1], counts=[2**61, 2**61 + 1])
    sketch.day([1])
    for first, last in ((0, 1), (1, 2), (2, 1)):
        with pytest.raises(InvalidInput):
            sketch.between(first, last)
    sketch.day([1])
    with pytest.raises(ReleaseRefused, match="all 2 days"):
        sketch.update([1])
    for forbidden in (pickle.dumps, copy.deepcopy):
        with pytest.raises(SensitiveData):
            forbidden(sketch)
    assert "1" not in repr(sketch).split("spec")[0].replace("3×16", "")
    assert sketch.day.__doc__


def test_seeded_noise_is_never_called_private() -> None:
    sketch = make(4, epsilon=1.0, delta=1e-6)
    with noise.seeded_noise_for_tests_only(1):
        sketch.day([1])
    later = sketch.day([2])
    assert not later.guarantee.holds
    assert not ContinualCountSketch.from_sensitive_bytes(sketch.to_sensitive_bytes()).guarantee.holds
