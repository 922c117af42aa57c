"""Mutants that the audit sees by itself, in what was published beside what was printed."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_TABLE = "tests/privacy/test_audit_table.py -k"
_HOLDS = f"{_TABLE} names_answers_and_levels_hold␣and"
_POWER = "tests/privacy/test_audit_power.py -k test_a_fifth_less_noise_is_noticed␣and"
_NAMES = "tests/contract/test_promise_names.py -k"

AUDITED = [
    Mutant(
        "audited-histogram-threshold",
        "Entries._one_stage",
        "passed = noisy >= threshold.cutoff",
        "passed = noisy >= threshold.cutoff - 1",
        f"{_HOLDS}␣histogram-truncated-record-add",
        "a key is named from one below the threshold on",
    ),
    Mutant(
        "audited-histogram-total",
        "Mechanism._of_unknown",
        "total = DiscreteLaplace(epsilon * _TOTAL_SHARE * (1 - 1e-12), reach.sensitivity.l1)",
        "total = DiscreteLaplace(epsilon * _TOTAL_SHARE * 8, reach.sensitivity.l1)",
        f"{_HOLDS}␣histogram-others",
        "the total that tells of all other keys takes most of the budget again",
    ),
    Mutant(
        "audited-votes-threshold",
        "VoteRelease.draw",
        "listed = upper - lower >= self.threshold.cutoff",
        "listed = upper - lower >= self.threshold.cutoff - 1",
        f"{_HOLDS}␣votes-loads",
        "a bucket's key is named from one below the threshold on",
    ),
    Mutant(
        "audited-votes-replaced",
        "vote",
        "reach = math.sqrt(keys) * (2 if replace else 1)",
        "reach = math.sqrt(keys) * (math.sqrt(2) if replace else 1)",
        f"{_HOLDS}␣votes-gaussian-record-replace",
        "two units in one bucket are taken to move it as two buckets",
    ),
    Mutant(
        "audited-quantile-sensitivity",
        "Recursion.span",
        "return 2 * max(share, 1 - share)",
        "return max(share, 1 - share)",
        f"{_HOLDS}␣quantiles-median",
        "quantiles are drawn with half of their sensitivity",
    ),
    Mutant(
        "audited-classifier-centre",
        "private_centre",
        "noisy, noise = permit.add_noise(centre_vector(scaled), CENTRE), permit.calibration.law(CENTRE)",
        (
            "permit.add_noise(centre_vector(scaled), CENTRE)\n"
            "noisy, noise = centre_vector(scaled), permit.calibration.law(CENTRE)"
        ),
        f"{_TABLE} test_a_private_centre_holds",
        "the private centre of a classifier is the exact mean",
    ),
    Mutant(
        "audited-svim-report",
        "SVIM.last_phase",
        "return SubsetDirect(self.epsilon, max_items=length",
        "return SubsetDirect(2 * self.epsilon, max_items=length",
        "tests/privacy/test_audit.py -k test_what_is_shipped_holds␣and␣svim-direct",
        "the last report of SVIM is drawn at twice its ε",
    ),
    Mutant(
        "audited-moment-total",
        "MomentSpec.least_moment",
        "return math.pow(self.public_total, self.p) * (1 - _ROOM)",
        "return 2 * math.pow(self.public_total, self.p) * (1 - _ROOM)",
        f"{_HOLDS}␣moment-1-total",
        "a public total is taken to be worth twice its moment",
    ),
    Mutant(
        "audited-drawn-noise",
        "least_spread",
        "return math.sqrt(square / float(chdtri(draws, confidence)))",
        "return math.sqrt(square / float(chdtri(draws, 1 - confidence)))",
        f"{_POWER}␣counts-gaussian-record-add",
        "an audit takes the other end of an interval, and finds whole noise too small",
    ),
    Mutant(
        "audited-stated-noise",
        "Grid._drawn",
        "return release(budget.claimed), noise",
        "return release(budget.spent), noise",
        f"{_POWER}␣counts-gaussian-record-add",
        "an audit compares noise with the budget that was spent, not with the one that was claimed",
    ),
    Mutant(
        "audited-local-report",
        "LocalCountSketch.report",
        "return table + self.noise.sample(table.size).reshape(table.shape)",
        "return table + (4 * self.noise.sample(table.size).reshape(table.shape)) // 5",
        f"{_POWER}␣counts-local",
        "a person's report has four fifths of the noise that is due",
    ),
    Mutant(
        "audited-count-min",
        "CountMinForComparison.release",
        "noisy = permit.add_noise(self._table, COUNTERS)",
        "noisy = (self._table + 3 * permit.add_noise(self._table, COUNTERS)) // 4",
        f"{_POWER}␣count-min-gaussian-record-add",
        "the Count-Min for comparison has three quarters of its noise",
    ),
    Mutant(
        "drawn-list-others",
        "Entries._counts",
        "others = rest + int(self.others.sample(1)[0])",
        "others = rest + int(self.others.sample(1)[0]) // 2",
        f"{_NAMES} test_counts_beside_names␣and␣list",
        "what tells of all keys beside a list has half of its noise",
    ),
    Mutant(
        "drawn-threshold-one-draw",
        "Entries._one_stage",
        "noisy = block.sums[~on_list] + threshold.law.sample(len(there))",
        "noisy = block.sums[~on_list] + threshold.law.sample(1)[0]",
        f"{_NAMES} test_counts_beside_names␣and␣gaussian",
        "all keys that pass a threshold have the same noise",
    ),
    Mutant(
        "drawn-votes-one-draw",
        "VoteRelease.draw",
        "noisy = c + law.sample(len(held))",
        "noisy = c + law.sample(1)[0]",
        f"{_NAMES} test_votes",
        "all votes of a release have the same noise",
    ),
]
