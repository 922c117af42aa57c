"""What surrounds the protocols: set sizes and caps, and heavy hitters among unlisted strings."""

from __future__ import annotations

import string
from collections import Counter

import numpy as np
import pytest

from dpsketch import local, noise
from dpsketch.errors import InvalidInput

pytestmark = pytest.mark.statistical


class TestSetSizes:
    def test_a_private_quantile_of_sizes(self) -> None:
        """20,000 people at ε = 1, sizes 1 + Poisson(19): the 90% quantile is 26; within one step of the grid (a fifth).

        The share above 22 is 0.25 and above 32 0.003: both lie more than 6 standard errors from 0.1.
        """
        rng = np.random.default_rng(2)
        sizes = 1 + rng.poisson(19, 20_000)
        protocol = local.SetSizes(1.0, largest=500)
        sets = (np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([np.arange(size) for size in sizes]))
        with noise.seeded_noise_for_tests_only(5):
            collector = protocol.collector().add(protocol.report(sets))
        distribution = protocol.distribution(collector)
        assert 22 < distribution.quantile(0.9) <= 32
        assert np.all(np.diff(distribution.above) <= 0)
        true = local.SizeDistribution.from_sizes(sizes)
        assert abs(distribution.loss(26).pairs - true.loss(26).pairs) < 0.02
        assert abs(distribution.loss(10).pairs - true.loss(10).pairs) < 0.1

    def test_intervals_cover_and_the_variance_is_the_predicted_one(self) -> None:
        """200 collections of 14 thresholds: coverage .95 ± .004, a variance ± 2.7%; bounds at 4 of these."""
        protocol = local.SetSizes(2.0, largest=20)
        sizes = np.arange(6000) % 15
        sets = (np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([np.arange(size) for size in sizes]))
        true = np.array([np.mean(sizes > threshold) for threshold in protocol.thresholds])
        covered, ratio = [], []
        with noise.seeded_noise_for_tests_only(7):
            for _ in range(200):
                found = protocol.collector().add(protocol.report(sets)).estimate(protocol.thresholds)
                covered.append((found.low <= true) & (true <= found.high))
                predicted = np.array([protocol.variance(share, 6000) for share in true])
                ratio.append((found.value - true) ** 2 / predicted)
        assert 0.934 < np.mean(covered) < 0.97
        assert abs(np.mean(ratio) - 1) < 0.11

    def test_sizes_count_distinct_keys(self) -> None:
        protocol = local.SetSizes(20.0, largest=10)
        collector = protocol.collector().add(protocol.report([["a", "a", "b", None]] * 400))
        found = collector.estimate([1, 2])
        assert found.value[0] > 0.9
        assert found.value[1] < 0.1
        with pytest.raises(InvalidInput):
            collector.estimate([17])

    def test_public_sizes_and_bad_ones(self) -> None:
        distribution = local.SizeDistribution.from_sizes([0, 1, 1, 8])
        assert distribution.quantile(0.5) == 1
        assert distribution.quantile(0.99) == 8
        assert distribution.loss(8) == local.CapLoss(8, 0.0, 0.0)
        assert local.SizeDistribution.from_sizes([0, 0]).loss(1).pairs == 0
        for bad in ([], [-1], [1.5], [[1]]):
            with pytest.raises(InvalidInput):
                local.SizeDistribution.from_sizes(bad)
        with pytest.raises(InvalidInput):
            distribution.quantile(1.0)


class TestHeavyHitters:
    @staticmethod
    def people(n: int) -> tuple[list[list[str]], Counter[str]]:
        rng = np.random.default_rng(17)
        letters = np.array(list(string.ascii_lowercase))
        words = sorted({"".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(2000)})
        weights = 1 / np.arange(1, len(words) + 1)
        chosen = rng.choice(len(words), (n, 3), p=weights / weights.sum())
        sets = [sorted({words[i] for i in row}) for row in chosen]
        return sets, Counter(word for one in sets for word in one)

    @pytest.mark.parametrize("alphabet", [string.ascii_lowercase, None])
    def test_frequent_strings_are_found_without_a_list(self, alphabet: str | None) -> None:
        """150,000 people, ε = 3: the most frequent words are found, and nothing that is no word.

        With the confidence asked for, anything false is returned with probability about 1e-6. A word must pass some 6
        deviations at each length; the fifth most frequent, at 7.2%, lies 8 above that with an alphabet, the fourth,
        at 8.9%, 7 above that without.
        """
        sets, counts = self.people(150_000)
        protocol = local.PrefixHeavyHitters(3.0, max_items=3, length=8, alphabet=alphabet)
        with noise.seeded_noise_for_tests_only(19):
            collector = protocol.collector().add(protocol.report(sets))
        found = protocol.find(collector, confidence=1 - 1e-6)
        assert set(found.key) <= set(counts)
        top = [word for word, _ in counts.most_common(5 if alphabet else 4)]
        assert set(top) <= set(found.key)
        assert (np.diff(found.value) <= 0).all()
        true = np.array([counts[word] / 150_000 for word in found.key])
        assert ((found.low <= true) & (true <= found.high)).all()
        assert protocol.find(collector, threshold=0.1).key == [word for word in found.key if counts[word] > 15_000]
        assert len(protocol.find(collector, at_most=2)) == 2

    @pytest.mark.parametrize("seeds", [64, 128])
    def test_strings_that_nobody_holds_are_rarely_found_where_people_share_hash_functions(self, seeds: int) -> None:
        """All reports of a common string under one function support whatever falls on its bucket there, so supports
        vary more than those of people who are on their own. A false string in more than 8 of 40 collections has
        probability 1e-4 at the 5% stated, and the seeds are fixed; as if independent they came in 18 and 25."""
        held, found_false = ["bad", "cab", "gig"], 0
        for seed in range(40):
            protocol = local.PrefixHeavyHitters(
                4.0, max_items=1, length=3, alphabet="abcdefghijkl", seeds=seeds, seed=seed
            )
            people = np.random.default_rng(seed).choice(held, 2000, p=[0.6, 0.3, 0.1])
            with noise.seeded_noise_for_tests_only(seed):
                collector = protocol.collector().add(protocol.report([[one] for one in people]))
            found = protocol.find(collector).key
            assert found[:1] == ["bad"]
            found_false += not set(found) <= set(held)
        assert found_false <= 8

    def test_nothing_is_found_where_nothing_is_frequent(self) -> None:
        """20,000 people with strings of their own; at confidence 1 − 1e-6 nothing is returned."""
        protocol = local.PrefixHeavyHitters(1.0, max_items=1, length=6, alphabet=string.ascii_lowercase)
        rng = np.random.default_rng(23)
        letters = rng.integers(97, 123, (20_000, 6)).astype(np.uint8)
        people = [[row.tobytes().decode()] for row in letters]
        with noise.seeded_noise_for_tests_only(29):
            collector = protocol.collector().add(protocol.report(people))
        assert len(protocol.find(collector, confidence=1 - 1e-6)) == 0

    def test_short_long_and_foreign_strings(self) -> None:
        protocol = local.PrefixHeavyHitters(10.0, max_items=2, length=3, alphabet="ab")
        people = [["a", "bäb"], ["abbbbb", None], ["a", ""]] * 700
        with noise.seeded_noise_for_tests_only(31):
            collector = protocol.collector().add(protocol.report(people))
        found = protocol.find(collector)
        assert set(found.key) == {"a", "abb", ""}
        assert abs(collector.estimate(["abb"]).value[0] - 1 / 3) < 0.05
        with pytest.raises(InvalidInput):
            collector.estimate(["xyz"])
        with pytest.raises(InvalidInput):
            protocol.report([[1, 2]])
        with pytest.raises(InvalidInput):
            local.PrefixHeavyHitters(10.0, max_items=1, length=3).find(collector)


class TestSVIM:
    def test_it_finds_the_frequent_and_estimates_them(self) -> None:
        """40,000 people, ε = 4: five keys held by a half to a tenth of them among 200."""
        rng = np.random.default_rng(41)
        shares = np.array([0.5, 0.4, 0.3, 0.2, 0.15])
        held = rng.random((40_000, 5)) < shares
        people = [[*np.flatnonzero(row).tolist(), 100 + int(rng.integers(100))] for row in held]
        with noise.seeded_noise_for_tests_only(43):
            found = local.SVIM(4.0, top=5).run(people, domain=np.arange(200))
        assert set(found.key) == {0, 1, 2, 3, 4}
        assert np.abs(found.value - held.mean(axis=0)[found.key]).max() < 0.06

    def test_everyone_reports_in_one_phase_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counted: list[int] = []
        add = local.Collector.add
        monkeypatch.setattr(
            local.Collector, "add", lambda self, table: counted.append(table.num_rows) or add(self, table)
        )
        local.SVIM(2.0, top=2).run([["a", "b"]] * 1000, domain=["a", "b", "c", "d", "e"])
        assert len(counted) == 3
        assert sum(counted) == 1000
