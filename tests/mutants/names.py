"""Mutants of what publishes names and chosen values: histograms, vote buckets, named quantiles."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_HISTOGRAM = "sketches/histogram"
_PRIVACY = "tests/privacy/test_histogram_privacy.py -k"
_THRESHOLDS = "tests/unit/test_histogram_thresholds.py"
_VOTES = "tests/privacy/test_votes_privacy.py"
_UNIT = "tests/unit/test_histogram.py -k"
_NAMED = "tests/privacy/test_histogram_privacy.py -k named_as_rarely"

HISTOGRAMS = [
    Mutant(
        "histogram-cutoff-one-less",
        f"{_HISTOGRAM}/entries.py",
        "passed = noisy >= threshold.cutoff",
        "passed = noisy >= threshold.cutoff - 1",
        f"{_NAMED}␣and␣record-truncated",
        "a key is named from one below the stated threshold on",
    ),
    Mutant(
        "histogram-half-noise",
        f"{_HISTOGRAM}/entries.py",
        "noisy = sums[there] + threshold.law.sample(len(there))",
        "noisy = sums[there] + threshold.law.sample(len(there)) // 2",
        f"{_PRIVACY} counts_carry",
        "counts that pass a threshold carry half of the noise",
    ),
    Mutant(
        "histogram-list-half-noise",
        f"{_HISTOGRAM}/entries.py",
        "return counts + self.noise.sample(len(listed))",
        "return counts + self.noise.sample(len(listed)) // 2",
        f"{_PRIVACY} public_list",
        "counts of a public list carry half of the noise",
    ),
    Mutant(
        "histogram-one-draw-for-all",
        f"{_HISTOGRAM}/entries.py",
        "return counts + self.noise.sample(len(listed))",
        "return counts + self.noise.sample(1)",
        f"{_PRIVACY} public_list",
        "all counts of a public list carry one draw",
    ),
    Mutant(
        "histogram-others-without-noise",
        f"{_HISTOGRAM}/entries.py",
        "others = rest + int(self.others.sample(1)[0])",
        "others = rest",
        f"{_PRIVACY} public_list",
        "the count of all other keys carries no noise",
    ),
    Mutant(
        "histogram-rounds-cutoff-of-the-weight",
        f"{_HISTOGRAM}/entries.py",
        "found[there[noisy >= cutoff]] = True",
        "found[there[noisy >= cutoff - (1 << 19)]] = True",
        f"{_NAMED}␣and␣rounds",
        "a round's threshold is half a weight too low",
    ),
    Mutant(
        "histogram-uncapped",
        f"{_HISTOGRAM}/content.py",
        "kept = crowded[order[ranks < limit]]",
        "kept = crowded[order[ranks < limit + 1]]",
        f"{_UNIT} so_many_keys",
        "a user counts on one key more than the bound",
    ),
    Mutant(
        "histogram-cap-by-order",
        f"{_HISTOGRAM}/content.py",
        "order = np.lexsort((random_words(len(crowded)), whose))",
        "order = np.arange(len(crowded))",
        f"{_UNIT} same_chance",
        "which keys of a user count follows the order of the keys",
    ),
    Mutant(
        "histogram-weights-rounded-up",
        f"{_HISTOGRAM}/rounds.py",
        "math.isqrt(WEIGHT_ONE**2 // d) for d",
        "math.isqrt(WEIGHT_ONE**2 // d) + 1 for d",
        "tests/unit/test_histogram_rounds.py",
        "a user's weights have a length above 1",
    ),
    Mutant(
        "histogram-replace-as-add",
        f"{_HISTOGRAM}/mechanism.py",
        "        times = 2 if self.replace else 1\n        l2",
        "        times = 1\n        l2",
        f"{_PRIVACY} public_list␣and␣replace",
        "one unit in place of another is charged as one more",
    ),
    Mutant(
        "histogram-names-of-exact-order",
        f"{_HISTOGRAM}/sketch.py",
        "        order = self._keys.order()\n        if self._spec",
        "        order = np.argsort(-self._keys.units, kind='stable')\n        if self._spec",
        f"{_UNIT} order_of_names",
        "names are published in the order of exact counts",
    ),
    Mutant(
        "histogram-threshold-truncated",
        f"{_HISTOGRAM}/thresholds.py",
        "_threshold(TruncatedLaplace(rate, bound), bound + 1,",
        "_threshold(TruncatedLaplace(rate, bound), bound,",
        _THRESHOLDS,
        "the threshold of truncated noise is one too low",
    ),
    Mutant(
        "histogram-threshold-of-weight-one",
        f"{_HISTOGRAM}/thresholds.py",
        "_laplace_delta(law, cutoff - weight, keys)",
        "_laplace_delta(law, cutoff - 1, keys)",
        _THRESHOLDS,
        "a threshold for heavy records is that of records of weight 1",
    ),
    Mutant(
        "histogram-threshold-rounding",
        f"{_HISTOGRAM}/thresholds.py",
        "log_hidden((cutoff - weight - 0.5) / sigma)",
        "log_hidden((cutoff - weight + 0.5) / sigma)",
        _THRESHOLDS,
        "a Gaussian threshold forgets that noise is rounded",
    ),
    Mutant(
        "histogram-leak-forgotten",
        f"{_HISTOGRAM}/joint.py",
        "there = shown + np.exp(-leaks)",
        "there = np.exp(-leaks)",
        _THRESHOLDS,
        "the chance that a name shows is not part of δ",
    ),
    Mutant(
        "histogram-mass-of-users-unchecked",
        f"{_HISTOGRAM}/sketch.py",
        "        mass = checked_total(self._mass, units, 1, n)\n        check_room",
        "        mass = self._mass\n        check_room",
        f"{_UNIT} never_wrap",
        "counts by user may wrap, so that one user decides whether a key is listed",
    ),
    Mutant(
        "histogram-listed-names-share",
        f"{_HISTOGRAM}/sketch.py",
        "            places[firsts] = numbers\n",
        "            places = self._keys.find(column)\n",
        f"{_UNIT} never_share",
        "one record counts for two names of a list",
    ),
    Mutant(
        "histogram-file-of-another-unit",
        f"{_HISTOGRAM}/mechanism.py",
        "if (keys, weight) != (reach.keys, reach.units):",
        "if weight != reach.units:",
        f"{_UNIT} held_to_its_unit",
        "a file's threshold is for another unit than it states",
    ),
]

VOTES = [
    Mutant(
        "votes-one-draw-for-two",
        f"{_HISTOGRAM}/votes/mechanism.py",
        "lower = pairs + law.sample(len(held))",
        "lower = upper - c",
        _VOTES,
        "both loads of a bucket carry one draw",
    ),
    Mutant(
        "votes-cutoff-one-less",
        f"{_HISTOGRAM}/votes/mechanism.py",
        "listed = upper - lower >= self.threshold.cutoff",
        "listed = upper - lower >= self.threshold.cutoff - 1",
        _VOTES,
        "a bucket's key is named from one below the stated threshold on",
    ),
    Mutant(
        "votes-empty-buckets",
        f"{_HISTOGRAM}/votes/mechanism.py",
        "held = np.flatnonzero(votes >= 1)",
        "held = np.flatnonzero(votes >= 0)",
        _VOTES,
        "a bucket without a majority names a key",
    ),
]

QUANTILES = [
    Mutant(
        "quantiles-sensitivity-of-the-median",
        "sketches/quantiles/mechanism.py",
        "return 2 * max(share, 1 - share)",
        "return Fraction(1)",
        "tests/privacy/test_quantiles_privacy.py",
        "every quantile is drawn with the sensitivity of the median",
    ),
    Mutant(
        "quantiles-ties-left",
        "sketches/quantiles/mechanism.py",
        "TIE_BITS = 24",
        "TIE_BITS = 0",
        "tests/unit/test_quantiles.py -k equal_values",
        "values that many records share go to one side",
    ),
    Mutant(
        "quantiles-users-as-records",
        "sketches/quantiles/mechanism.py",
        "(self.weight << TIE_BITS))",
        "(1 << TIE_BITS))",
        "tests/unit/test_quantiles.py -k enumerated",
        "a user's values are charged as one record",
    ),
    Mutant(
        "quantiles-share-of-a-double",
        "sketches/quantiles/spec.py",
        "return Fraction(repr(number))",
        "return Fraction(number)",
        "tests/unit/test_quantiles.py -k fraction",
        "0.1 is the double nearest to it",
    ),
]
