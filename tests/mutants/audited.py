"""Mutants that the audit sees by itself, in what was published beside what was printed."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_TABLE = "tests/privacy/test_audit_table.py -k"
_HOLDS = f"{_TABLE} names_answers_and_levels_hold␣and"
_POWER = "tests/privacy/test_audit_power.py -k test_a_fifth_less_noise_is_noticed␣and"

AUDITED = [
    Mutant(
        "audited-histogram-threshold",
        "CountThreshold.draw",
        "passed = noisy >= self.cutoff",
        "passed = noisy >= self.cutoff - 1",
        f"{_HOLDS}␣histogram-truncated-record-add",
        "a key is named from one below the threshold on",
    ),
    Mutant(
        "audited-histogram-total",
        "HistogramSpec._finding",
        "spent = DiscreteLaplace(epsilon * _TOTAL_SHARE * _HAIR,",
        "spent = DiscreteLaplace(epsilon * _TOTAL_SHARE * 8,",
        f"{_HOLDS}␣histogram-others",
        "the total that tells of all other keys takes most of the budget again",
    ),
    Mutant(
        "audited-votes-threshold",
        "Votes.draw",
        "listed = upper - lower >= self.cutoff",
        "listed = upper - lower >= self.cutoff - 1",
        f"{_HOLDS}␣votes-loads",
        "a bucket's key is named from one below the threshold on",
    ),
    Mutant(
        "audited-votes-replaced",
        "VoteHistogramSpec.tables",
        "Move.each(self.unit.max_keys, 1, signed=True)",
        "Move.each(self.unit.max_keys, 1)",
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
        "audited-svim-report",
        "SVIM.last_phase",
        "return SubsetDirect(self.epsilon, max_items=length",
        "return SubsetDirect(2 * self.epsilon, max_items=length",
        "tests/privacy/test_audit.py -k test_what_is_shipped_holds␣and␣svim-direct",
        "the last report of SVIM is drawn at twice its ε",
    ),
    Mutant(
        "audited-moment-total",
        "Weights.least_moment",
        "return math.pow(self.public_total, self.p) * (1 - ROOM)",
        "return 2 * math.pow(self.public_total, self.p) * (1 - ROOM)",
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
        "AttackGrid._drawn",
        "return release(self._claimed), noise",
        "return release(asked), noise",
        f"{_POWER}␣counts-gaussian-record-add",
        "an audit compares noise with the budget that was spent, not with the one that was claimed",
    ),
    Mutant(
        "drawn-list-others",
        "CountingLaw.draw_counts",
        "arrays[OTHERS] = handle.add(np.array([rest]), OTHERS, member=bound)",
        "arrays[OTHERS] = (rest + handle.add(np.array([rest]), OTHERS, member=bound)) // 2",
        "tests/contract/test_promise.py -k test_a_release_draws␣and␣histogram-list",
        "what tells of all keys beside a list has half of its noise",
    ),
    Mutant(
        "drawn-threshold-one-draw",
        "CountThreshold.draw",
        "noisy = add(block.sums[~on_list])",
        "noisy = block.sums[~on_list] + add(np.zeros(1, np.int64))",
        "tests/contract/test_promise.py -k test_a_release_draws␣and␣histogram-gaussian",
        "all keys that pass a threshold have the same noise",
    ),
    Mutant(
        "drawn-votes-one-draw",
        "Votes.draw",
        'noisy = handle.add(c, "majorities")',
        'noisy = c + handle.add(c[:1], "majorities") - c[:1]',
        "tests/contract/test_promise.py -k test_a_release_draws␣and␣votes",
        "all votes of a release have the same noise",
    ),
]
