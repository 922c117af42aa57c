"""ε-local privacy by exact enumeration: all sets over a small universe, all reports, every probability a fraction.

The probabilities are those of the program itself. A decision compares a random word with a threshold, and the threshold
is found by bisection on the program; a choice takes a word modulo m, and each residue is tried; words that would be
biased are refused (tested with the kernels), so residues are equally likely. Nothing is taken from a formula.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations, product
from typing import Any

import mpmath
import numpy as np
import pytest

from dpsketch import local, noise
from dpsketch.hashing import fingerprint
from dpsketch.local.protocol import People, keep_threshold, odds_below, read_people
from oracles.local import Law, boundary, worst_ratio

WORDS = 2**64
LAST = WORDS - 1


def all_sets(universe: int) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(range(universe), size) for size in range(universe + 1)))


def realised(laws: list[Law], epsilon: float) -> float:
    """Assert that the worst ratio is at most e^ε, exactly; return its logarithm, to see how tight the claim is."""
    for law in laws:
        assert sum(law.values()) == 1
    ratio = worst_ratio(laws)
    with mpmath.workdps(60):
        worst = mpmath.mpf(ratio.numerator) / ratio.denominator
        assert worst <= mpmath.exp(mpmath.mpf(epsilon))
        return float(mpmath.log(worst))


def repeat(people: People, seeds: int) -> tuple[People, np.ndarray]:
    """Everyone under every hash function."""
    chosen = np.repeat(np.arange(len(people)), seeds)
    return people.take(chosen), np.tile(np.arange(seeds), len(people)).astype(np.uint32)


def two_stage_laws(decide: Any, cases: int, outputs: int, order: int = 0) -> list[Law]:
    """The law of a program that compares one word, then chooses uniformly on either side of the threshold.

    ``order`` is the word by which sets above the cap are cut; the law is that given the word.
    """

    def outcomes(inside: np.ndarray, choice: int) -> np.ndarray:
        words = np.full((cases, 3), order, np.uint64)
        words[:, 0] = inside
        words[:, 1] = choice
        return np.asarray(decide(words))

    everything = np.arange(outputs)
    # Which outputs lie on which side: try every residue with a word that is certainly on that side.
    lowest = np.stack([outcomes(np.zeros(cases, np.uint64), choice) for choice in everything])
    highest = np.stack([outcomes(np.full(cases, LAST, np.uint64), choice) for choice in everything])
    same = (lowest == highest).all(axis=0)  # no word is below the threshold: an empty set
    above = [set(highest[:, i]) for i in range(cases)]
    marked = outcomes(np.zeros(cases, np.uint64), 0)

    def keeps(middle: np.ndarray) -> np.ndarray:
        found = outcomes(middle, 0)
        return np.array([not same[i] and found[i] == marked[i] for i in range(cases)])

    below_count = boundary(keeps, cases)
    laws: list[Law] = []
    for i in range(cases):
        law: Law = dict.fromkeys(range(outputs), Fraction(0))
        chance = Fraction(below_count[i], WORDS)
        inside = [] if same[i] else sorted(set(lowest[:, i]))
        assert not set(inside) & above[i]
        for output in inside:
            law[int(output)] = chance / len(inside)
        for output in above[i]:
            law[int(output)] = (1 - chance) / len(above[i])
        # Each residue modulo the number of alternatives gives another one: the choice is uniform.
        assert len(set(highest[: len(above[i]), i])) == len(above[i])
        assert not inside or len(set(lowest[: len(inside), i])) == len(inside)
        laws.append(law)
    return laws


def laws_of_hashing(hashing: Any, people: People, order: int = 0) -> list[list[Law]]:
    """For each hash function, the laws of everyone's bucket."""
    everyone, seeds = repeat(people, hashing.seeds)
    laws = two_stage_laws(lambda words: hashing.decide(everyone, seeds, words), len(everyone), hashing.width, order)
    return [laws[seed :: hashing.seeds] for seed in range(hashing.seeds)]


@pytest.mark.parametrize(
    ("epsilon", "max_items", "width"),
    [(0.001, 2, 5), (0.1, 1, 2), (1.0, 2, None), (1.0, 4, 5), (3.0, 3, 7), (8.0, 2, 9), (20.0, 1, 3)],
)
def test_subset_hashing_for_all_sets_and_hash_functions(epsilon: float, max_items: int, width: int | None) -> None:
    """Sets above the cap are cut by an order word; all laws given any of several order words are compared."""
    protocol = local.SubsetHashing(epsilon, max_items, width=width, seeds=6)
    people = read_people(all_sets(5))
    parts = [laws_of_hashing(protocol, people, order) for order in (0, 12345, LAST)]
    worst = [realised([law for part in parts for law in part[seed]], epsilon) for seed in range(6)]
    assert max(worst) > 0.999 * epsilon


@pytest.mark.parametrize(("epsilon", "max_items", "domain"), [(0.1, 1, 1), (1.0, 2, 4), (3.0, 3, 5), (8.0, 4, 3)])
def test_subset_direct_for_all_sets(epsilon: float, max_items: int, domain: int) -> None:
    protocol = local.SubsetDirect(epsilon, max_items, domain)
    placed = protocol.place(read_people(all_sets(domain)))
    orders = (0, 12345, LAST)
    laws = [
        two_stage_laws(lambda words: protocol.decide(placed, words), len(placed), domain + max_items, order)
        for order in orders
    ]
    assert realised(list(chain.from_iterable(laws)), epsilon) > 0.999 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 20.0])
def test_optimal_local_hashing_for_all_items(epsilon: float) -> None:
    protocol = local.OptimalLocalHashing(epsilon, width=4, seeds=6)
    assert max(realised(laws, epsilon) for laws in laws_of_hashing(protocol, ITEMS)) > 0.999 * epsilon


ITEMS = People(np.arange(9, dtype=np.int64), fingerprint(range(8)).fingerprints)
# A protocol that reports one bit; who reports; and what is drawn of which the bit says nothing, in its range.
BITS: dict[str, tuple[Any, People, tuple[int, ...]]] = {
    "SampledBit": (lambda epsilon: local.SampledBit(epsilon, width=3, rows=4), read_people(all_sets(5)), (4, 3)),
    "HadamardCountMean": (lambda epsilon: local.HadamardCountMean(epsilon, rows=3, width=4), ITEMS, (3, 4)),
    "SetSizes": (lambda epsilon: local.SetSizes(epsilon, largest=4), read_people(all_sets(5)), ()),
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
def test_protocols_of_one_bit(name: str, epsilon: float) -> None:
    make, people, shape = BITS[name]
    protocol, worst = make(epsilon), []
    for places in product(*map(range, shape or (len(protocol.thresholds),))):
        drawn = tuple(np.full(len(people), place, np.uint32 if shape else np.uint16) for place in places)
        laws = coin_laws(lambda words, drawn=drawn: protocol.decide(people, drawn, words), len(people))
        worst.append(realised(laws, epsilon))
    assert max(worst) > 0.999 * epsilon


def coin_laws(decide: Any, cases: int) -> list[Law]:
    """The law of a program that reports one bit, kept or flipped by one word."""
    kept = np.asarray(decide(np.zeros(cases, np.uint64)))
    counts = boundary(lambda middle: np.asarray(decide(middle)) == kept, cases)
    return [
        {int(kept[i]): Fraction(counts[i], WORDS), 1 - int(kept[i]): 1 - Fraction(counts[i], WORDS)}
        for i in range(cases)
    ]


def bit_row_laws(bit_rows: Any, people: People, row: int) -> list[Law]:
    """The law of a whole row of bits, from the law of each bit by itself (each has a word of its own)."""
    width, n = bit_rows.width, len(people)
    rows = np.full(n, row, np.uint32)

    def bits(halves: np.ndarray) -> np.ndarray:
        packed = np.zeros((n, -(-width // 8)), np.uint8)
        bit_rows.decide(people, rows, halves, packed)
        return np.unpackbits(packed, axis=1, bitorder="little")[:, :width]

    kept = bits(np.zeros((n, width), np.uint32))
    chances = np.empty((n, width), object)
    for m in range(width):

        def keeps(middle: np.ndarray, m: int = m) -> np.ndarray:
            halves = np.zeros((n, width), np.uint32)
            halves[:, m] = middle
            found = bits(halves)
            others = np.arange(width) != m
            assert (found[:, others] == kept[:, others]).all()
            return np.asarray(found[:, m] == kept[:, m])

        chances[:, m] = [Fraction(count, 2**32) for count in boundary(keeps, n, bits=32)]
    laws: list[Law] = []
    for i in range(n):
        law: Law = {}
        for output in product((0, 1), repeat=width):
            chance = Fraction(1)
            for m in range(width):
                chance *= chances[i, m] if output[m] == kept[i, m] else 1 - chances[i, m]
            law[output] = chance
        laws.append(law)
    return laws


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_protocols_of_a_row_of_bits(epsilon: float) -> None:
    one, many = local.CountMeanSketch(epsilon, rows=2, width=4), local.MultiPCMS(epsilon, rows=2, width=3)
    for row in range(2):
        assert realised(bit_row_laws(one, ITEMS, row), epsilon) > 0.999 * epsilon
        assert realised(bit_row_laws(many, read_people(all_sets(6)), row), epsilon) > 0.99 * epsilon


@pytest.mark.parametrize(("epsilon", "length"), [(1.0, 2), (3.0, 4)])
def test_pad_and_sample_for_all_sets(epsilon: float, length: int) -> None:
    """A mixture over the sampled item; a dummy is any of the laws, so an ε-private one."""
    protocol = local.PadAndSample(epsilon, length=length, width=3, seeds=4)
    universe = 4
    items = People(np.arange(universe + 1, dtype=np.int64), fingerprint(range(universe)).fingerprints)
    for laws in laws_of_hashing(protocol, items):
        low = min(min(law.values()) for law in laws)
        # The worst dummies for privacy: everyone pads with what makes one bucket most or least likely.
        extremes = [
            {b: high if b == chosen else (1 - high) / 2 for b in range(3)}
            for chosen in range(3)
            for high in [1 - 2 * low]
        ]
        mixed: list[Law] = []
        for held in all_sets(universe):
            size = max(len(held), length)
            for dummy in extremes:
                parts = [laws[item] for item in held] + [dummy] * (size - len(held))
                mixed.append({b: sum(part[b] for part in parts) / size for b in range(3)})
        realised(mixed, epsilon)


def test_prefix_heavy_hitters_at_every_length() -> None:
    """Given its length, a report is that of subset hashing about the prefixes; the length is drawn blindly."""
    protocol = local.PrefixHeavyHitters(1.0, max_items=2, length=4, alphabet="ab", seeds=3)
    strings = ["ab", "abab", "abba", "b"]
    sets = [[strings[i] for i in held] for held in all_sets(4)]
    read = protocol.read(sets)
    for length in protocol.lengths:
        prints = fingerprint([row[:length].tobytes() for row in read.letters]).fingerprints
        for laws in laws_of_hashing(protocol, People(read.offsets, prints)):
            realised(laws, 1.0)
    with noise.seeded_noise_for_tests_only(2):
        levels = [protocol.randomise(protocol.read(people * 50))["level"] for people in (sets, [["ab"]] * 16)]
    assert (levels[0] == levels[1]).all()


def test_twice_the_budget_is_caught() -> None:
    """The twin: a protocol at 2ε held to ε."""
    protocol = local.SubsetHashing(2.0, 2, width=9, seeds=2)
    laws = [law for laws in laws_of_hashing(protocol, read_people(all_sets(4))) for law in laws]
    assert realised(laws, 2.0) > 1.999
    with pytest.raises(AssertionError):
        realised(laws, 1.999)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.7, 1.0, 3.3, 8.0, 20.0])
@pytest.mark.parametrize("shares", [1, 2, 3, 128, 512])
def test_odds_lie_just_below_the_exponential(epsilon: float, shares: int) -> None:
    odds = odds_below(epsilon, shares)
    with mpmath.workdps(60):
        true = mpmath.exp(mpmath.mpf(epsilon) / shares)
        assert 0 <= true - mpmath.mpf(odds.numerator) / odds.denominator < mpmath.mpf(2) ** -47
    for bits in (32, 64):
        kept = keep_threshold(odds, bits)
        assert Fraction(kept, 2**bits - kept) <= odds


@pytest.mark.parametrize(("domain", "size", "exact"), [(1000, 1, 0.99), (10_000, 1, 0.99), (1000, 5, 0.97)])
def test_the_attack_on_privsketch_as_published_recovers_sets(domain: int, size: int, exact: float) -> None:
    """From the ordering matrix alone, at ε = 0.1: of one-item users at least 99%; MATH has 100% and 99.5%."""
    protocol = local.PrivSketchAsPublished(0.1)
    rng = np.random.default_rng(3)
    secret = [sorted(rng.choice(domain, size, replace=False).tolist()) for _ in range(1000)]
    found = local.recover_sets(protocol, protocol.report(secret), range(domain))
    assert np.mean([a == b for a, b in zip(found, secret, strict=True)]) >= exact
