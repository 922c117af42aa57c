"""What is not additive noise, or drawn in pieces: bits, survivors of a threshold, secrets, places, shares, classes.

How likely each bit and each survivor is, is counted over many releases on two neighbouring inputs; what a unit can
change is read off these numbers, and must stay within the ε that the release states. The twins of these tests, which
show their power, are mutants (``tests/mutants/releases.txt``).
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
from dpsketch import accounting
from dpsketch.laws import recursion
from drawn import Gaussian, Laplace, Law, dependence, law_of, placed, problems
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


# What is drawn in several pieces: shares, classes and their centre, one row a record. As in ``test_promise``: what was
# published, less the exact tables, is the noise.

DELTA, FEW = 1e-6, 400
SHAPE = {"rows": 3, "width": 8, "key_type": "int"}
ROOM = 1 + 1e-9
Arrays = dict[str, np.ndarray]


def _exact(keys: list[int], unit: dps.Unit, **users: Any) -> np.ndarray:
    """The table of keys, from a release with so large a budget that nothing is added."""
    sketch = dps.CountSketch(unit=unit, **SHAPE)
    sketch.update(keys, **users)
    return sketch.release(rho=1e9).table


def _stacked(run: Callable[[], Arrays], runs: int) -> Arrays:
    found = [run() for _ in range(runs)]
    return {part: np.stack([one[part].ravel() for one in found]) for part in found[0]}


def _moved(unit: dps.Unit) -> np.ndarray:
    """How one record at its worst moves a table: key 66 has the cells of key 7 with other signs, but for a few."""
    moved = _exact([7], unit)
    return moved if unit.neighbours == "add_remove" else moved - _exact([66], unit)


def _share(moved: np.ndarray, law: Law, budget: dict[str, float]) -> float:
    """The share of a budget that a table which moves so far takes under a law."""
    if isinstance(law, Gaussian):
        return float(np.sum(moved**2)) / law.sigma**2 / accounting.gaussian_mu(**budget) ** 2
    assert isinstance(law, Laplace)
    return float(np.sum(np.abs(moved))) / law.scale / budget["epsilon"]


@pytest.mark.parametrize("level", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_shares_of_several_parties(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: each party draws for itself, and those who are honest add up to the promise."""
    user, unit = level == "user", unit_of(level, relation)
    parties, honest, budget = 4, 2, {"epsilon": 1.0, "delta": DELTA}
    sketches = [dps.CountSketch(unit=unit, **SHAPE) for _ in range(parties)]
    for party, sketch in enumerate(sketches):
        sketch.update([party, 1, 2], **({"users": [f"{party} {i}" for i in range(3)]} if user else {}))
    tables = [sketch.release(rho=1e9).table for sketch in sketches]
    laws: dict[str, Law] = {}
    finer = 0

    def run() -> Arrays:
        nonlocal finer
        found = {}
        for party, sketch in enumerate(sketches):
            release = sketch.release(**budget, share=dps.Share(parties, honest / parties, party))
            finer = round(release.spec.grid / release.step)
            laws[f"party {party}"] = law_of(*release.noise)
            found[f"party {party}"] = release.table - finer * tables[party]
        return found

    assert problems(_stacked(run, 60), laws) == []
    # Of a user who is replaced by another, the same cells with opposite signs.
    worst = _exact([7, 8], unit, users=["ann", "ann"]) * (2 if relation == "replace" else 1) if user else _moved(unit)
    law = laws["party 0"]
    assert isinstance(law, Gaussian)
    assert 0.3 < _share(worst * finer, Gaussian(math.sqrt(honest) * law.sigma), budget) < ROOM


@pytest.mark.parametrize("delta", [DELTA, 0.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_classifier_and_its_private_centre(relation: Any, delta: float) -> None:
    """False-positive rate below 1e-7. The centre is a noisy mean; where it is 0, n·2¹⁰ times it is the noise alone.

    Of the share of a private centre, 0.3, one record in a corner takes its four sums of 2¹⁰ steps and the weighted
    count, which is as much as one of them.
    """
    budget, records = {"epsilon": 1.0, "delta": delta}, 2000
    rng = np.random.default_rng(4)
    scaled = rng.uniform(-0.2, 0.2, (records, 4))
    scaled[:, 0] += 0.6
    scaled[:, 1:] -= scaled[:, 1:].mean(axis=0)
    labels = np.where(scaled[:, 0] > 0.6, "a", "b")
    rounded = np.rint(1024 * scaled).astype(np.int64).sum(axis=0)
    shape: dict[str, Any] = {"bounds": (-1, 1), "classes": ["a", "b"], "rows": 2, "power": 2, "centre_share": 0.3}
    laws: dict[str, Law] = {}

    def run() -> Arrays:
        model = dps.DensityClassifier(**budget, **shape, unit=unit_of("record", relation)).fit(scaled, labels)
        found = {"centre": np.rint(model.centre_[1:] * 1024 * records - rounded[1:])}
        for name, density in zip("ab", model.densities_, strict=True):
            exact = dps.DensitySketch.from_spec(density.spec)
            exact.update(scaled[labels == name] - model.centre_)
            laws[name] = law_of(density.noise)
            found[name] = density.table - exact.release(rho=1e9, count_share=0.0).table
        return found

    noise = _stacked(run, 300)
    times = 2 if relation == "replace" else 1
    if delta:
        mu = accounting.gaussian_mu(**budget) * math.sqrt(0.3)
        laws["centre"] = Gaussian(times * 1024 * math.sqrt(5) / mu)
    else:
        laws["centre"] = Laplace(times * 1024 * 5 / 0.3)
    # Dividing by the noisy number of records, and drawing the mean in, change the centre's noise by about a hundredth.
    assert problems(noise, laws) == []
    # The rest of the budget is for the tables: one cell of either row, and another one for a record that is replaced.
    rest = math.sqrt(0.7) if delta else 0.7
    assert 0.99 < _share(np.ones(2 * times) / rest, laws["a"], budget) < ROOM


@pytest.mark.parametrize(("level", "relation"), [("record", "add_remove"), ("user", "replace")])
def test_one_row_is_drawn_for_every_record(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: no record's row follows from its place or from another's, and the noise is whole.

    Three points a sketch, of one user or of three; the row of each is read off an exact release. The rows of points
    that come at the same place in different sketches must be as free as those of neighbours in one sketch.
    """
    user, rows, budget = level == "user", 4, {"epsilon": 1.0, "delta": 0.0}
    unit = unit_of(level, relation, keys=3)
    kernel = dps.kernels.Euclidean(dim=1, bandwidth=1.0)
    points = [[0.0], [100.0], [2000.0]]
    laws: dict[str, Law] = {}

    def start() -> dps.DensitySketch:
        return dps.DensitySketch(kernel=kernel, rows=rows, width=64, unit=unit, placement="one_row")

    def run() -> Arrays:
        sketch, found = start(), {}
        filled = np.zeros((rows, 64))
        for point, name in enumerate("abc"):
            sketch.update([points[point]], **({"users": [name]} if user else {}))
            table = sketch.release(epsilon=1e5, delta=0.0, count_share=0.0).table
            found[f"point {name}"] = 2 * np.argmax((table - filled).sum(axis=1), keepdims=True) / (rows - 1) - 1
            filled = table
        release = sketch.release(**budget, count_share=0.0)
        laws["table"] = law_of(release.noise)
        found["table"] = (release.table - filled)[:, ::8]
        return found

    found = _stacked(run, FEW)
    noise = {"table": found.pop("table")}
    assert problems(noise, laws) == []
    assert dependence({**found, "table": placed(noise["table"], laws["table"])}) == []
    for drawn in found.values():
        counts = np.unique(np.rint(drawn * 10), return_counts=True)[1]
        # A row is drawn 100 times of 400, ± 8.7.
        assert len(counts) == rows
        assert np.all(np.abs(counts - FEW / rows) < 6.5 * math.sqrt(FEW * 3 / 16))
    moved = (3 if user else 1) * (2 if relation == "replace" else 1)
    assert 0.99 < _share(np.ones(moved), laws["table"], budget) < ROOM


def test_rows_of_one_batch_are_drawn_one_by_one() -> None:
    """False-positive rate below 1e-8: two records of one update share their row in one case of four."""
    kernel = dps.kernels.Euclidean(dim=1, bandwidth=1.0)
    together = 0
    for _ in range(FEW):
        sketch = dps.DensitySketch(kernel=kernel, rows=4, width=64, unit=dps.per_record(), placement="one_row")
        sketch.update([[0.0], [100.0]])
        rows = sketch.release(epsilon=1e5, delta=0.0, count_share=0.0).table.sum(axis=1)
        together += int(rows.max() == 2)
    assert abs(together - FEW / 4) < 6 * math.sqrt(FEW * 3 / 16)
