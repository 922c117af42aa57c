"""What one unit changes in the release of a histogram or a vote: how likely a key of its own is named, and counts."""

from __future__ import annotations

import math
from dataclasses import replace as changed
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import accounting, files
from dpsketch.laws.content import UserContent
from dpsketch.laws.entries import HistogramState
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.store import Store, rows_of
from drawn import law_of
from texts import colliding_texts

pytestmark = pytest.mark.statistical

PEOPLE, RELEASES = 600, 5
TRIALS = PEOPLE * RELEASES
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05}
# Units that are alone on all of their keys: so many, with so much on each.
UNITS = {
    "record": dps.per_record(),
    "record by weight": dps.per_record(max_weight=3),
    "record replaced": dps.per_record(neighbours="replace"),
    "user of 1": dps.per_user(1),
    "user of 4": dps.per_user(4),
    "user of 4 by weight": dps.per_user(4, max_weight=3),
    "user of 4 replaced": dps.per_user(4, neighbours="replace"),
}
FORMS = ["truncated", "laplace", "gaussian", "weighted", "rounds"]
CASES = [
    (name, form)
    for name, unit in UNITS.items()
    for form in FORMS
    if not (unit.level == "record" and form in ("weighted", "rounds"))
    and not (unit.max_weight > 1 and form == "truncated")
]


def alone(unit: dps.Unit) -> dps.Histogram:
    """Many units, each alone on all of its keys: a release is a trial of each."""
    histogram = dps.Histogram(unit=unit, key_type="int")
    keys = np.arange(PEOPLE * unit.max_keys)
    users = {"users": keys // unit.max_keys} if unit.level == "user" else {}
    histogram.update(keys, weights=np.full(len(keys), unit.max_weight), **users)
    return histogram


def reaching(noise: Any, z: int) -> float:
    """P(Z ≥ z), by the definition of the law."""
    return 1 - float(law_of(noise).below(np.array(z - 1)))


def chance_to_show(law: Any, unit: dps.Unit) -> float:
    """How likely any of the unit's own keys is listed, by the public parameters that the release states."""
    m = unit.max_keys
    if isinstance(law, CountThreshold):
        return float(1 - (1 - reaching(law.noise, law.cutoff - int(unit.max_weight))) ** m)
    assert isinstance(law, WeightedRounds)
    left, hidden = 1.0, math.isqrt(WEIGHT_ONE**2 // m)
    for noise, cutoff in zip(law.noises, law.cutoffs, strict=True):
        left *= (1 - reaching(noise, cutoff - hidden)) ** m
    return 1 - left


def shown(unit: dps.Unit, form: Any) -> tuple[float, Any]:
    histogram, found = alone(unit), 0
    for _ in range(RELEASES):
        release = histogram.release(**BUDGET, form=form)
        found += len({key // unit.max_keys for key in release.found})
    return found / (PEOPLE * RELEASES), release.law


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_key_that_one_unit_alone_has_is_named_as_rarely_as_stated(name: str, form: str) -> None:
    """Through the release, against the law that it states. False-positive rate below 1e-4 a case.

    The stated parameters are then held to δ: the mechanisms' own tests enumerate the rest.
    """
    unit = UNITS[name]
    rate, law = shown(unit, form)
    expected = chance_to_show(law, unit)
    assert expected <= BUDGET["delta"]
    assert abs(rate - expected) <= 4 * math.sqrt(max(expected, 1e-3) / TRIALS)


VOTED = 2000
VOTES = ["loads", "truncated", "gaussian"]
VOTERS = [name for name, unit in UNITS.items() if unit.max_weight == 1]


def votes(unit: dps.Unit, keys: list[int], users: list[int], buckets: int = 512) -> Any:
    sketch: Any = dps.VoteHistogram(unit=unit, max_counters=buckets, key_type="int")
    sketch.update(keys, **({"users": users} if unit.level == "user" else {}))
    return sketch


def leading(noise: Any, z: int) -> float:
    """P(noisy lead ≥ z more than the true one): of two draws where loads are released."""
    if not isinstance(noise, DiscreteLaplace):
        return reaching(noise, z)
    masses = np.diff(law_of(noise).below(np.arange(-2001, 2001)))
    return float(np.convolve(masses, masses)[4000 + z :].sum())


def named(sketch: Any, form: Any) -> tuple[float, Any]:
    releases = [sketch.release(**BUDGET, form=form) for _ in range(VOTED)]
    return float(np.mean([bool(release.keys) for release in releases])), releases[0].mechanism


@pytest.mark.parametrize("form", VOTES)
@pytest.mark.parametrize("name", VOTERS)
def test_a_vote_of_one_unit_alone_is_named_as_rarely_as_stated(name: str, form: str) -> None:
    """Through the release, against the law that it states. False-positive rate below 1e-4 a case."""
    unit = UNITS[name]
    keys = list(range(unit.max_keys))
    rate, threshold = named(votes(unit, keys, [1] * len(keys)), form)
    expected = 1 - (1 - leading(threshold.noise, threshold.cutoff - 1)) ** unit.max_keys
    assert expected <= BUDGET["delta"]
    assert abs(rate - expected) <= 4 * math.sqrt(max(expected, 1e-3) / VOTED)


@pytest.mark.parametrize("form", VOTES)
@pytest.mark.parametrize("name", [name for name in VOTERS if UNITS[name].neighbours == "replace"])
def test_one_unit_in_place_of_another_moves_a_bucket_by_two(name: str, form: str) -> None:
    """{y, y} against {y, x} in one bucket: y leads by two, or nobody does. False-positive rate below 1e-4.

    What is stated must pay for that, and so must the noise: 2m votes move where one unit takes another's place.
    """
    unit = UNITS[name]
    two = votes(unit, [7, 7], [1, 2], buckets=1)
    none = votes(unit, [7, 8], [1, 2], buckets=1)
    rate, threshold = named(two, form)
    expected = leading(threshold.noise, threshold.cutoff - 2)
    assert expected <= BUDGET["delta"]
    assert abs(rate - expected) <= 4 * math.sqrt(max(expected, 1e-3) / VOTED)
    assert named(none, form)[0] == 0
    m, law = unit.max_keys, threshold.noise
    if isinstance(law, RoundedGaussian):
        added = dps.VoteHistogram(unit=dps.per_user(m), max_counters=1)
        assert law.sigma >= 1.99 * added.spec.laws(dps.Budget(**BUDGET), "gaussian")[0].noise.sigma
    else:
        sensitivity = law.sensitivity if isinstance(law, DiscreteLaplace) else 1
        assert law.epsilon / sensitivity <= BUDGET["epsilon"] / (2 * m)


REST = [(11, "eve"), (50, "kim")]
ONE = [(33, "ann"), (34, "ann"), (35, "ann"), (36, "ann"), (70, "ann"), (71, "ann")]
OTHER = [(60, "ann"), (61, "ann"), (62, "ann"), (71, "ann")]
NOTHING: list[Any] = [(None, "ann")]
LIST = [11, 33, 34, 60, 61, 99]


def filled(unit: dps.Unit, records: list[Any]) -> dps.Histogram:
    histogram = dps.Histogram(unit=unit, key_type="int")
    keys, users = zip(*records, strict=True)
    if unit.level == "user":
        histogram.update(list(keys), users=list(users))
    else:
        histogram.update(list(keys))
    return histogram


def listed(histogram: dps.Histogram, **budget: Any) -> np.ndarray:
    """The numbers of a release of a public list, that of all other keys last."""
    release = histogram.release(**budget, keys=LIST, others=True)
    assert release.rest is not None
    return np.array([*release.values, release.rest], float)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("level", ["record", "user"])
def test_a_public_list_with_all_other_keys_pays_for_what_moves(level: str, relation: Any, delta: float) -> None:
    """The stated laws against how far neighbours lie apart, taken from exact releases.

    That the laws are those of the draws is held in tests/contract/test_promise.py. Which keys of a user count is drawn:
    two draws are held.
    """
    unit = dps.per_user(3, neighbours=relation) if level == "user" else dps.per_record(neighbours=relation)
    sides = [ONE, OTHER] if level == "user" else [ONE[:1], OTHER[:1], ONE[4:5]]
    exact = {"rho": 1e9} if delta else {"epsilon": 1e5, "delta": 0.0}
    budget = {"epsilon": 1.0, "delta": delta, "form": "gaussian" if delta else "laplace"}
    release = filled(unit, REST).release(**budget, keys=LIST, others=True)
    laws = [release.noise] * len(LIST) + [release.law.others_under(release.bound)]
    worst = 0.0
    for _ in range(2):
        for one in sides:
            others = [NOTHING, *(side for side in sides if side is not one)] if relation == "replace" else [[]]
            for other in others:
                first, second = (filled(unit, REST + side) for side in (one, other))
                moved = np.abs(listed(first, **exact) - listed(second, **exact))
                if delta:
                    square = sum((each / law.sigma) ** 2 for each, law in zip(moved, laws, strict=True))
                    worst = max(worst, square / accounting.gaussian_mu(1.0, delta) ** 2)
                else:
                    scales = [law.sensitivity / law.epsilon for law in laws]
                    worst = max(worst, sum(moved / np.array(scales)))
    assert 0.3 < worst <= 1 + 1e-9


def published(histogram: dps.Histogram, **budget: Any) -> np.ndarray:
    """What a release of a short public list publishes: centred counts, and the number of users last."""
    arrays = histogram.release(**budget, keys=LIST).drawn.parts["entries"].arrays
    return np.array([*arrays["table"], *arrays["people"]], float)


class NoNoise:
    """A handle that adds nothing."""

    def add(self, values: np.ndarray, slot: str) -> np.ndarray:
        return values


def published_exactly(histogram: dps.Histogram, law: Any) -> np.ndarray:
    """The same numbers without noise."""
    with histogram._opened() as tables:
        state = HistogramState(UserContent(tables), LIST, tables.find(LIST), tables.names)
        arrays = law.draw(state, NoNoise())
    return np.array([*arrays["table"], *arrays["people"]], float)


@pytest.mark.parametrize("weight", [1, 3])
def test_a_short_public_list_pays_for_what_moves(weight: int) -> None:
    """The spread that releases show against how far neighbours lie apart, taken from exact releases.

    250 draws of each number: the mean square of the number of users is within 45% of the truth, and that of the six
    counts within 20%, but for a probability below 1e-5. Half of the noise is seen.
    """
    unit = dps.per_user(9, max_weight=weight)
    rest = filled(unit, REST)
    law = rest.release(epsilon=1.0, delta=1e-6, keys=LIST).law
    exact = published_exactly(rest, law)
    noise = np.array([published(rest, epsilon=1.0, delta=1e-6) for _ in range(250)]) - exact
    variances = np.mean(noise**2, axis=0)
    variances[:-1] = variances[:-1].mean()
    added = {
        "all of the list": [(key, "ann") for key in LIST] * weight,
        "one key of it": [(33, "ann")],
        "no key of it": [(70, "ann")],
    }
    squares = {}
    sigmas = np.array([law.centred.sigma] * len(LIST) + [law.people.sigma])
    stated = sum(cost.mu**2 for cost in law.costs())
    for name, records in added.items():
        moved = published_exactly(filled(unit, REST + records), law) - exact
        assert float(np.sum((moved / sigmas) ** 2)) == pytest.approx(stated if "no" not in name else 0, rel=0.4)
        assert float(np.sum((moved / sigmas) ** 2)) <= stated * (1 + 1e-9)
        squares[name] = float(np.sum(moved**2 / variances)) / accounting.gaussian_mu(1.0, 1e-6) ** 2
    assert squares["no key of it"] < 1e-3
    assert 0.7 < squares["all of the list"] < 1.4
    assert squares["one key of it"] < 1.4
    correlations = np.corrcoef(noise.T) - np.eye(len(exact))
    assert np.max(np.abs(correlations)) < 6 / math.sqrt(len(noise))


def test_a_short_public_list_is_closer_and_covers() -> None:
    """Of 120 releases; plain counts under one bound are wider.

    An interval of 95% covers fewer than 85% of 120 sums with a probability below 1e-4, of 720 counts less often.
    """
    wide = filled(dps.per_user(6), [(key, f"user {i}") for i in range(50) for key in LIST])
    found = [wide.release(epsilon=1.0, delta=1e-6, keys=LIST) for _ in range(120)]
    counts = [release.estimate(LIST) for release in found]
    errors = np.array([each.value - 50 for each in counts])
    covered = np.mean([(each.low <= 50) & (each.high >= 50) for each in counts])
    sums = np.mean([release.sum().low <= 300 <= release.sum().high for release in found])
    plain = wide.release(epsilon=1.0, delta=1e-6, keys=LIST, others=True).noise
    assert plain is not None
    assert errors.std() < 0.95 * math.sqrt(plain.variance)
    assert covered > 0.85
    assert sums > 0.85


def test_a_law_for_a_short_list_draws_no_other() -> None:
    """A list of another length than was paid for is refused at the draw, and so is a file of one."""
    histogram = filled(dps.per_user(9), REST)
    for budget in ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0.0}):
        release = histogram.release(**budget, keys=LIST)
        arrays = release.drawn.parts["entries"].arrays
        assert release.law.fits(arrays)
        assert not changed(release.law, size=5).fits(arrays)  # type: ignore[call-arg]
        with pytest.raises(dps.ReleaseRefused, match="another length"):
            release.law.draw(HistogramState(None, LIST[:-1], np.array([-1]), None), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["weighted", "rounds"])
def test_all_other_keys_beside_found_ones_carry_noise_for_all_keys_of_a_user(form: Any) -> None:
    """A user may have all of its keys among the others: these then cost no more than as many found keys do.

    The file of a release is read back with the same law.
    """
    histogram = dps.Histogram(unit=dps.per_user(12), key_type="int")
    release = histogram.release(epsilon=1.0, delta=1e-6, form=form, others=True)
    law, others = release.noise, release.law.others_under(release.bound)
    assert isinstance(law, RoundedGaussian)
    assert isinstance(others, RoundedGaussian)
    assert release.bound / others.sigma <= math.sqrt(release.bound) / law.sigma * (1 + 1e-9)
    again: Any = dps.load(files.encode(release.to_document()))
    assert again.law == release.law


@settings(max_examples=20)
@given(
    st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=6),
    st.sets(st.integers(0, 9), min_size=1, max_size=9),
    st.sets(st.integers(0, 9)),
)
def test_a_user_moves_the_weights_by_one_at_most(others: list[set[int]], added: set[int], known: set[int]) -> None:
    """In L2, upward only, and each by no more than its share; whatever is known before."""
    cap = 6

    def weights(sets: list[set[int]]) -> np.ndarray:
        pairs = [(user, key) for user, keys in enumerate(sets) for key in sorted(keys)]
        users, keys = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
        store = Store(by_user=True)
        store.add(rows_of(pa.chunked_array([keys]), pa.chunked_array([users])))
        tables, sums = store.tables(), np.zeros(10, np.int64)
        places = tables.find(sorted(known))
        for block in UserContent(tables).weights(places[places >= 0], cap):
            sums[tables.names(block.places)] = block.sums
        return sums

    moved = weights([*others, added]) - weights(others)
    assert np.all(moved >= 0)
    assert math.isqrt(int(np.sum(moved**2))) <= WEIGHT_ONE
    held = np.count_nonzero(moved)
    assert held <= cap
    assert moved.max() <= WEIGHT_ONE / math.sqrt(max(1, held))


def test_texts_that_share_a_fingerprint_keep_their_names() -> None:
    """A rare text that collides with a frequent one in the public hash and comes first would be published as it."""
    rare, frequent = colliding_texts(2)
    histogram = dps.Histogram(unit=dps.per_record())
    histogram.update([rare])
    histogram.update([frequent] * 500)
    assert histogram.release(epsilon=1.0, delta=1e-6).keys == [frequent]


def test_a_user_counts_for_no_more_keys_of_a_short_list_than_the_release_states() -> None:
    """Once all seven counted, and the release stated six."""
    histogram = dps.Histogram(unit=dps.per_user(max_keys=6))
    histogram.update(np.tile(np.arange(7), 4000), users=np.repeat(np.arange(4000), 7))
    found = histogram.release(epsilon=1.0, delta=1e-6, keys=range(7)).estimate(range(7))
    assert "at most 6 keys" in found.counts
    assert abs(found.value.sum() - 6 * 4000) < 2000  # more than 20 standard deviations
