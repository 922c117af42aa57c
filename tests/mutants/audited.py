"""Mutants that the audit sees by itself, in what was published beside what was printed."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_TABLE = "tests/privacy/test_audit_table.py -k"
_HOLDS = f"{_TABLE} names_answers_and_levels_hold␣and"

AUDITED = [
    Mutant(
        "audited-histogram-threshold",
        "sketches/histogram/entries.py",
        "passed = noisy >= threshold.cutoff",
        "passed = noisy >= threshold.cutoff - 1",
        f"{_HOLDS}␣histogram-truncated-record-add",
        "a key is named from one below the threshold on",
    ),
    Mutant(
        "audited-histogram-total",
        "sketches/histogram/mechanism.py",
        "total = DiscreteLaplace(epsilon * _TOTAL_SHARE * (1 - 1e-12), reach.sensitivity.l1)",
        "total = DiscreteLaplace(epsilon * _TOTAL_SHARE * 8, reach.sensitivity.l1)",
        f"{_HOLDS}␣histogram-others",
        "the total that tells of all other keys takes most of the budget again",
    ),
    Mutant(
        "audited-votes-threshold",
        "sketches/histogram/votes/mechanism.py",
        "listed = upper - lower >= self.threshold.cutoff",
        "listed = upper - lower >= self.threshold.cutoff - 1",
        f"{_HOLDS}␣votes-loads",
        "a bucket's key is named from one below the threshold on",
    ),
    Mutant(
        "audited-votes-replaced",
        "sketches/histogram/vote_thresholds.py",
        "reach = math.sqrt(keys) * (2 if replace else 1)",
        "reach = math.sqrt(keys) * (math.sqrt(2) if replace else 1)",
        f"{_HOLDS}␣votes-gaussian-record-replace",
        "two units in one bucket are taken to move it as two buckets",
    ),
    Mutant(
        "audited-quantile-sensitivity",
        "sketches/quantiles/mechanism.py",
        "return 2 * max(share, 1 - share)",
        "return max(share, 1 - share)",
        f"{_HOLDS}␣quantiles-median",
        "quantiles are drawn with half of their sensitivity",
    ),
    Mutant(
        "audited-classifier-centre",
        "sketches/density/centre.py",
        "noisy, noise = permit.add_noise(centre_vector(scaled), CENTRE), permit.calibration.law(CENTRE)",
        "permit.add_noise(centre_vector(scaled), CENTRE)\n"
        "    noisy, noise = centre_vector(scaled), permit.calibration.law(CENTRE)",
        f"{_TABLE} test_a_private_centre_holds",
        "the private centre of a classifier is the exact mean",
    ),
    Mutant(
        "audited-svim-report",
        "local/comparison/rivals.py",
        "return SubsetDirect(self.epsilon, max_items=length",
        "return SubsetDirect(2 * self.epsilon, max_items=length",
        "tests/privacy/test_audit.py -k test_what_is_shipped_holds␣and␣svim-direct",
        "the last report of SVIM is drawn at twice its ε",
    ),
    Mutant(
        "audited-moment-total",
        "sketches/moment/spec.py",
        "return math.pow(self.public_total, self.p) * (1 - _ROOM)",
        "return 2 * math.pow(self.public_total, self.p) * (1 - _ROOM)",
        f"{_HOLDS}␣moment-1-total",
        "a public total is taken to be worth twice its moment",
    ),
]
