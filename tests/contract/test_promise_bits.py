"""What is not additive noise: flipped bits, survivors of a threshold, secret projections, places that are drawn.

How likely each bit and each survivor is, is counted over many releases on two neighbouring inputs; what a unit can
change is read off these numbers, and must stay within the ε that the release states. The twins of these tests, which
show their power, are mutants (``tests/mutants/releases.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import dpsketch as dps
from dpsketch.laws import recursion
from drawn import Laplace, dependence, problems
from oracles import quantiles as oracle
from sensitive import unit_of

RELATIONS = ["add_remove", "replace"]
RUNS = 1000
pytestmark = pytest.mark.statistical
of_every_unit = pytest.mark.parametrize(("level", "relation"), list(product(["record", "user"], RELATIONS)))


def _bits(words: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


def _runs(release: Callable[[], Any], read: Callable[[Any], np.ndarray], runs: int = RUNS) -> np.ndarray:
    return np.stack([read(release()) for _ in range(runs)])


def _near(rate: np.ndarray | float, truth: float, runs: int) -> bool:
    """Whether rates are within 7 standard deviations, which holds for all of a thousand but once in 10⁸ times."""
    return bool(np.all(np.abs(np.asarray(rate) - truth) < 7 * math.sqrt(max(truth * (1 - truth), 0.01) / runs)))


@of_every_unit
def test_the_bits_of_a_distinct_count(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7. Bits that are set are fair coins; the others cost what is stated.

    A unit sets C bits (and, replaced, clears C): C·ln(½/q), and C·ln((1 − q)/½) more, come to ε.
    """
    unit, epsilon = unit_of(level, relation), 1.5
    sketch = dps.DistinctSketch(buckets=16, unit=unit)
    sketch.update([1, 2, 3], **({"users": ["a", "a", "b"]} if level == "user" else {}))
    seen = _runs(lambda: sketch.release_mergeable(epsilon=epsilon), lambda release: _bits(release.bitmap))
    rates = seen.mean(axis=0)
    quiet = float(np.median(rates))
    set_bits = rates > (quiet + 0.5) / 2
    assert 1 <= set_bits.sum() <= 3
    assert _near(rates[set_bits], 0.5, RUNS)
    flip = float(rates[~set_bits].mean())
    assert _near(rates[~set_bits], flip, RUNS)
    loss = math.log(0.5 / flip) + (math.log((1 - flip) / 0.5) if relation == "replace" else 0.0)
    assert unit.max_keys * loss == pytest.approx(epsilon, rel=0.02)
    centred = (seen - rates) / np.maximum(rates, 1 - rates)
    assert dependence({"bits": centred[:, :: len(rates) // 48]}) == []


@of_every_unit
def test_the_bits_of_a_sparse_histogram(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7. Every bit is flipped with one probability, and one key moves what it may.

    By the table's bits a key of one unit is t/α columns long: g(t) = ⌊t/α⌋·ln(1 + α) + ln(1 + t − α·⌊t/α⌋), with
    α = 2 and a flip probability of ¼, times the keys of a unit, is ε.
    """
    unit, epsilon = unit_of(level, relation), 2.0
    entries = unit.max_keys * (2 if relation == "replace" else 1)

    def histogram(keys: list[int]) -> dps.SparseHistogram:
        built = dps.SparseHistogram(unit=unit, domain=2**20, max_value=3, expected_keys=4)
        if keys:
            built.update(keys, **({"users": list(map(str, keys))} if level == "user" else {}))
        return built

    empty, one = histogram([]), histogram([11])
    budget = {"epsilon": epsilon, "delta": 0.0}
    flipped = _runs(lambda: empty.release(**budget), lambda release: _bits(release.table))
    assert _near(flipped.mean(axis=0), 0.25, RUNS)
    assert abs(float(flipped.mean()) - 0.25) < 7 * math.sqrt(0.1875 / flipped.size)
    assert dependence({"bits": (flipped - 0.25) / 0.75}) == []
    seen = _runs(lambda: one.release(**budget), lambda release: _bits(release.table), 4 * RUNS)
    # ½ of what a rate is above ¼ is the probability that the bit was set. Bits that nothing set are left out.
    above = 2 * (seen.mean(axis=0) - 0.25)
    columns = float(np.sum(above[above > 0.06]))
    step = 2 * columns
    whole = math.floor(step / 2)
    loss = whole * math.log(3) + math.log1p(max(0.0, step - 2 * whole))
    assert entries * loss == pytest.approx(epsilon, rel=0.12)
    assert entries * loss < epsilon * 1.12


def test_no_bits_of_a_large_table_are_flipped_alike() -> None:
    """False-positive rate below 1e-15: of 421,878 words of a table without keys, no two neighbours come again.

    Two words agree in all 128 bits with probability 0.625^128 = 7·10⁻²⁷. Bits that were flipped alike in two places
    would cancel out, so that a table with keys shows where they are.
    """
    histogram = dps.SparseHistogram(unit=dps.per_record(), domain=2**40, max_value=3, expected_keys=180_000)
    words = histogram.release(epsilon=2.0, delta=0).table.reshape(-1)
    assert len(words) > 3 * 2**16
    pairs = np.stack([words[:-1], words[1:]], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_every_key_of_a_sparse_histogram_is_rounded_by_its_own_coin() -> None:
    """False-positive rate below 1e-9: 3,000 keys set about as many bits in each of 30 releases.

    A key of 0.66 columns sets a bit with that probability, hence all together 1,975 ± 26; the flips of 75,008 bits add
    a deviation of 119. With one coin for all keys the ones would differ by 1,500 between releases.
    """
    histogram = dps.SparseHistogram(unit=dps.per_record(), domain=2**40, max_value=1, expected_keys=3000)
    histogram.update(np.arange(3000))
    ones = [int(np.bitwise_count(histogram.release(epsilon=0.84, delta=0).table).sum()) for _ in range(30)]
    assert 50 < np.std(ones) < 300


@of_every_unit
@pytest.mark.parametrize("delta", [0.05, 0.0])
def test_the_survivors_of_a_sparse_histogram(level: str, relation: Any, delta: float) -> None:
    """False-positive rate below 1e-7. A unit that is alone shows with probability δ; values have their stated noise.

    Values far above the cutoff always survive: less their true values, they are the noise. Where δ = 0 absent keys
    survive as well, about one of the domain, and as often as their noise says.
    """
    unit, epsilon = unit_of(level, relation), 4.0 if level == "user" else 2.0
    histogram = dps.SparseHistogram(unit=unit, domain=64, expected_keys=4, threshold_share=0.5)
    large = {3: 200, 5: 300}
    keys = [key for key, count in large.items() for _ in range(count)]
    alone = [40, 41][: unit.max_keys]
    given = {"users": [str(i) for i in range(len(keys))] + ["alone"] * len(alone)} if level == "user" else {}
    histogram.update(keys + alone, **given)
    entries = unit.max_keys * (2 if relation == "replace" else 1)
    law = Laplace(entries / (0.5 * epsilon))

    def read(release: Any) -> np.ndarray:
        values = np.zeros(64, np.int64)
        values[release.kept.positions.astype(np.intp)] = release.kept.values
        return values

    seen = _runs(lambda: histogram.release(epsilon=epsilon, delta=delta), read)
    drawn = {str(key): seen[:, key : key + 1] - count for key, count in large.items()}
    assert problems(drawn, {str(key): law for key in large}) == []
    shown = seen[:, alone].any(axis=1).mean()
    absent = [key for key in range(64) if key not in large and key not in alone]
    if delta:
        # The least cutoff that keeps within δ; one less would pass it up to e^(1/scale) times.
        assert shown < delta + 7 * math.sqrt(delta / RUNS)
        assert not seen[:, absent].any()
    else:
        cutoff = seen[seen > 0].min()
        expected = 1 - float(law.below(np.array([cutoff - 1]))[0])
        assert _near(float((seen[:, absent] > 0).mean()), expected, RUNS * len(absent))
        assert 0.1 < 64 * expected < 2


@of_every_unit
def test_a_moment_has_its_floor_and_a_secret_of_its_own(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7. An empty stream shows the floor; a unit moves it by no more than ε allows.

    Coordinates of scale F^(1/p) that grow by a ratio r lose at most ln r/p each, so ε = size·ln r/p, with
    r = 1 + C·M^p/floor. The floor is the mean of what empty streams are released as; two streams of the same keys
    differ as two of different keys do, as each has a secret of its own.
    """
    size, epsilon, p, weight = 10, 8.0, 1.0, 3.0
    unit = unit_of(level, relation, weight=weight)
    given = {"users": ["ann"] * 2} if level == "user" else {}
    changed = unit.max_keys * weight**p

    def released(keys: list[int], count: int) -> np.ndarray:
        scales = []
        for _ in range(count):
            sketch = dps.MomentSketch(p=p, size=size, unit=unit, key_type="int")
            if keys:
                sketch.update(keys, weights=[weight] * len(keys), **given)
            scales.append(sketch.release(epsilon=epsilon, delta=0.0).scale)
        return np.array(scales)

    nothing = released([], 600)
    # A scale has a relative error of √(2/size) at p = 1, its logarithm a little more.
    spread = float(np.log(nothing).std())
    assert 0.35 < spread < 0.65
    floor = math.exp(float(np.log(nothing).mean()))
    loss = size * math.log(1 + changed / floor) / p
    assert loss == pytest.approx(epsilon, rel=0.2)
    same = released([7, 8] if level == "user" else [7], 300)
    assert float(np.log(same).std()) > 0.3
    places = np.argsort(np.argsort(same)).reshape(-1, 2) / len(same) * 2 - 1
    assert abs(float(np.mean(places[:, 0] * places[:, 1]))) < 0.2


def test_the_moments_of_a_profile_are_drawn_apart() -> None:
    """False-positive rate below 1e-7: two exponents share their budget, not their secret."""
    found = []
    for _ in range(300):
        sketch = dps.MomentProfile(p=[0.5, 1], size=10, unit=dps.per_record(), key_type="int")
        sketch.update([1, 2])
        found.append([moment.scale for moment in sketch.release(epsilon=8.0, delta=0.0)])
    ranks = np.argsort(np.argsort(np.array(found), axis=0), axis=0) / len(found) * 2 - 1
    assert dependence({"moments": ranks}) == []


def test_a_user_alone_on_many_keys_shows_no_more_than_delta_allows() -> None:
    """False-positive rate below 1e-9: 16 keys that nobody else has survive, any of them, with probability δ."""
    delta = 0.1
    histogram = dps.SparseHistogram(unit=dps.per_user(16), domain=2**20, expected_keys=4, threshold_share=0.5)
    histogram.update(list(range(16)), users=["alone"] * 16)
    shown = [len(histogram.release(epsilon=96.0, delta=delta).kept.positions) > 0 for _ in range(RUNS)]
    assert np.mean(shown) < delta + 6 * math.sqrt(delta / RUNS)


# How far ranks of all the data, and of a part of it, may move apart, written out anew (docs/explanation of quantiles).
SPANS: dict[str, Any] = {
    "add_remove": lambda share, whole: 2 * max(share, 1 - share),
    "replace": lambda share, whole: Fraction(2) if whole else 4 * max(share, 1 - share),
}


def drawn_places(
    counts: list[int], unit: dps.Unit, shares: list[Fraction], epsilon: float, draws: int
) -> tuple[Counter[Any], Any]:
    """How often each answer of named quantiles is drawn, and the law from the definition at a multiple of ε."""
    sketch = dps.QuantileSketch(bits=2, quantiles=[float(each) for each in shares], unit=unit, interval_share=0.0)
    keys = np.repeat(np.arange(4), counts)
    sketch.update(keys, **({"users": np.arange(len(keys))} if unit.level == "user" else {}))
    seen = Counter(tuple(sketch.release(epsilon=epsilon, delta=0).cells.tolist()) for _ in range(draws))
    each = epsilon / len(shares).bit_length()
    return seen, lambda times: oracle.law(counts, shares, times * each, unit.max_keys, SPANS[unit.neighbours], 2)


def unlikely(seen: Counter[Any], law: dict[Any, float]) -> bool:
    """Whether a χ² test at 1e-8 refuses a law. Rare answers are taken together, and for no fewer than 20: so a refusal
    is wrong once in 10⁶ times."""
    draws = sum(seen.values())
    common = [answer for answer, chance in law.items() if chance * draws >= 20]
    pairs = [(seen[answer], law[answer] * draws) for answer in common]
    pairs.append((draws - sum(found for found, _ in pairs), max(20.0, draws - sum(wanted for _, wanted in pairs))))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in pairs)
    return bool(chi2.sf(statistic, len(pairs) - 1) < 1e-8)


@of_every_unit
def test_named_quantiles_follow_the_exponential_mechanism(
    level: str, relation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False-positive rate 1e-6. The twin is twice the ε, as of half the sensitivity."""
    monkeypatch.setattr(recursion, "TIE_BITS", 2)
    shares = [Fraction(1, 10), Fraction(1, 2)]
    seen, law = drawn_places([6, 1, 9, 4], unit_of(level, relation), shares, 2.0, 1500)
    assert not unlikely(seen, law(1.0))
    assert unlikely(seen, law(2.0))


@pytest.mark.parametrize("coin", [True, False])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_last_coin_of_a_quantile_weighs_its_places(
    relation: Any, coin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False-positive rate 1e-6. All places are of one level, so that the coin alone tells them apart."""
    monkeypatch.setattr(recursion, "TIE_BITS", 2)
    if not coin:
        monkeypatch.setattr(recursion, "draw_coin", lambda exponent: True)
    epsilon = 0.98 if relation == "add_remove" else 1.96
    seen, law = drawn_places([0, 1, 0, 0], unit_of("record", relation), [Fraction(1, 2)], epsilon, 4000)
    assert unlikely(seen, law(1.0)) is not coin
